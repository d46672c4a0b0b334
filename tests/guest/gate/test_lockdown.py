"""Each wall in a real child: put up by lockdown.py, then looked at with the kernel's eyes and leaned against."""

import ast
import base64
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import sandbox_kernel
from sandbox_kernel.jail.rules.seccomp import build_filter, host_arch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="these walls are Linux's")

LOCKDOWN = Path(sandbox_kernel.__file__).parent / "guest" / "gate" / "lockdown.py"
PRELUDE = f"""
import importlib.util, json, os, sys
spec = importlib.util.spec_from_file_location("lockdown", {str(LOCKDOWN)!r})
lockdown = importlib.util.module_from_spec(spec); spec.loader.exec_module(lockdown)
def status():
    return dict(line.split(":\\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\\t" in line)
"""


def _child(code: str, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-I", "-c", PRELUDE + textwrap.dedent(code), *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert not check or done.returncode == 0, done.stderr
    return done


def _filter(program: bytes) -> str:
    return base64.b64encode(program).decode()


def test_it_uses_nothing_but_the_standard_library_and_little_of_that() -> None:
    tree = ast.parse(LOCKDOWN.read_text())
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported <= {"__future__", "_ctypes", "ctypes", "os", "sys", "resource", "collections", "typing"}


def test_importing_it_loads_no_slow_module() -> None:
    code = f"import sys; sys.path.insert(0, {str(LOCKDOWN.parent)!r}); import lockdown; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert not {"typing", "json", "re", "enum", "dataclasses", "collections", "subprocess"} & set(done.stdout.split())


def test_limits_never_rise_above_the_hard_limit_that_is_there() -> None:
    done = _child("""
        import resource
        lockdown.set_rlimits({"NOFILE": 128, "CORE": 0, "CPU": (7, 9)})
        lockdown.set_rlimits({"NOFILE": 4096, "CPU": -1})
        print([resource.getrlimit(getattr(resource, f"RLIMIT_{name}")) for name in ("NOFILE", "CORE", "CPU")])
    """)
    assert done.stdout == "[(128, 128), (0, 0), (9, 9)]\n"


_PLAN = {"handled_net": 0, "scoped": 0, "identities": {}}
_NO_FILTER = "bytes; a filter has 1 to 4096 records of 8 bytes"
#: A step of the lock-down, and the error that names it.
REFUSED_STEPS = [
    ("set_rlimits({'PATIENCE': 1})", "set_rlimits: there is no limit 'PATIENCE'"),
    ("set_rlimits({'NOFILE': (9, 5)})", "set_rlimits NOFILE=(9, 5): "),
    ("load_seccomp(b'')", _NO_FILTER),
    ("load_seccomp(b'1234567')", _NO_FILTER),
    ("load_seccomp(bytes(8 * 4097))", _NO_FILTER),
    ("load_seccomp(bytes(8))", "load_seccomp: Invalid argument"),
    ("set_pdeathsig(9, parent=1 << 22)", "set_pdeathsig: parent 4194304 is gone"),
    (
        f"landlock_restrict({_PLAN | {'handled_fs': 4, 'paths': [['/no/such', 4]]}})",
        "landlock_restrict: path '/no/such': No such file",
    ),
    (
        f"landlock_restrict({_PLAN | {'handled_fs': 1 << 60, 'paths': []}})",
        "landlock_restrict: ruleset: Invalid argument",
    ),
    ("drop_capabilities(); lockdown.drop_capabilities((2,))", "drop_capabilities: Operation not permitted"),
]


@pytest.mark.parametrize(("step", "message"), REFUSED_STEPS)
def test_a_step_that_cannot_be_done_is_an_error_that_names_it(step: str, message: str) -> None:
    done = _child(f"""
        lockdown.no_new_privs()
        try: lockdown.{step}
        except OSError as error: print(error.strerror)
    """)
    assert message in done.stdout


def test_no_new_privs_is_set_and_capabilities_are_gone_at_once_and_do_not_come_back_with_exec() -> None:
    done = _child("""
        before = status()["NoNewPrivs"]; lockdown.no_new_privs(); lockdown.drop_capabilities()
        print(before, *[int(status()[name], 16) for name in ("NoNewPrivs", "CapInh", "CapPrm", "CapEff", "CapAmb")], flush=True)
        os.execv("/bin/grep", ["grep", "^Cap", "/proc/self/status"])
    """)
    at_once, *lines = done.stdout.splitlines()
    sets = dict(line.split(":\t") for line in lines)
    assert at_once == "0 1 0 0 0 0"
    assert {int(sets[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {0}
    if os.geteuid() == 0:
        assert int(sets["CapBnd"], 16) == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to give up being root")
def test_without_the_right_to_empty_the_bounding_set_no_new_privs_must_come_first() -> None:
    done = _child("""
        lockdown.load()  # nobody may be unable to reach the interpreter's modules
        os.setgroups([]); os.setgid(65534); os.setuid(65534)
        try: lockdown.drop_capabilities()
        except OSError as error: print(error.strerror)
        lockdown.no_new_privs(); lockdown.drop_capabilities(); print(status()["CapEff"].strip("0") or "none")
    """)
    assert done.stdout == "drop_capabilities: bounding set keeps 0; call no_new_privs first\nnone\n"


def test_a_second_thread_is_noticed_because_it_would_stay_outside() -> None:
    done = _child("""
        import threading
        stop = threading.Event(); threading.Thread(target=stop.wait).start()
        for step in (lockdown.no_new_privs, lockdown.drop_capabilities, lambda: lockdown.landlock_restrict({})):
            try: step(); print("went on")
            except OSError as error: print(error.strerror)
        stop.set()
    """)
    assert done.stdout.splitlines() == [
        f"{step}: 2 threads run; lock down before any is started"
        for step in ("no_new_privs", "drop_capabilities", "landlock_restrict")
    ]


def test_a_second_thread_is_noticed_without_proc_too() -> None:
    done = _child("""
        import threading
        def no_proc(path): raise FileNotFoundError(path)
        os.listdir = no_proc
        lockdown.require_single_thread("alone"); print("alone")
        stop = threading.Event(); threading.Thread(target=stop.wait).start()
        try: lockdown.require_single_thread("two")
        except OSError as error: print(error.strerror)
        stop.set()
    """)
    assert done.stdout == "alone\ntwo: 2 threads run; lock down before any is started\n"


def test_the_filter_is_loaded_for_all_threads() -> None:
    done = _child(
        """
        import base64, socket, threading
        go, seen = threading.Event(), []
        def late():
            go.wait()
            try: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)
            except OSError as error: seen.append(error.errno)
        lockdown.no_new_privs()
        thread = threading.Thread(target=late); thread.start()
        lockdown.load_seccomp(base64.b64decode(sys.argv[1])); go.set(); thread.join()
        print(seen, status()["Seccomp"])
        """,
        _filter(build_filter(host_arch())),
    )
    assert done.stdout == "[97] 2\n"


def test_dumpable_can_be_taken_away() -> None:
    done = _child("""
        get = lambda: lockdown._libc.prctl(3, 0, 0, 0, 0)
        lockdown.set_dumpable(False); print(get()); lockdown.set_dumpable(True); print(get())
    """)
    assert done.stdout == "0\n1\n"


def test_the_child_dies_with_its_parent() -> None:
    # The parent forks a child that waits for its end, and is itself killed; the pipe closes when both are gone.
    code = """
        import signal
        ready, w = os.pipe(); parent = os.getpid()
        if os.fork() == 0:
            lockdown.set_pdeathsig(9, parent=parent); print("armed", flush=True); os.write(w, b"x")
            signal.signal(signal.SIGALRM, lambda *_: None); signal.alarm(20); signal.pause()
            print("outlived its parent", flush=True); os._exit(0)
        os.read(ready, 1); os.kill(parent, 9)
    """
    done = _child(code, check=False)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "armed\n")


def test_a_subreaper_becomes_the_parent_of_orphans() -> None:
    done = _child("""
        lockdown.set_subreaper(); r, w = os.pipe(); gone, g = os.pipe()
        if os.fork() == 0:
            if os.fork() == 0:
                os.close(g); os.read(gone, 1); os.write(w, str(os.getppid()).encode())
            os._exit(0)
        os.wait(); os.close(g)
        print(int(os.read(r, 99)) == os.getpid())
    """)
    assert done.stdout == "True\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to give up being root")
@pytest.mark.parametrize(("keep", "mask"), [((), 0), ((2,), 1 << 2), ((1, 2), 0b110)])
def test_root_becomes_another_user_for_good_with_the_capabilities_that_it_keeps(
    keep: tuple[int, ...], mask: int
) -> None:
    done = _child(f"""
        lockdown.become_user(4711, {keep!r})
        print(os.getresuid(), os.getresgid(), os.getgroups())
        for back in (lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.setgroups([0])):
            try: back(); print("back again")
            except PermissionError: pass
        sys.stdout.flush()
        os.execv("/bin/grep", ["grep", "^Cap", "/proc/self/status"])
    """)
    ids, *sets = done.stdout.splitlines()
    assert ids == "(4711, 4711, 4711) (4711, 4711, 4711) []"
    assert {int(line.split()[1], 16) for line in sets} == {mask}


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to give up being root")
@pytest.mark.parametrize(("keep", "answer"), [((), False), ((2,), True), ((1,), True)])
def test_access_answers_by_the_capabilities_that_were_kept(keep: tuple[int, ...], answer: bool, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir(0o700)
    (tmp_path / "home" / "file").touch(0o600)
    path = str(tmp_path / "home" / "file")
    asked = f"import os; print(os.access({path!r}, os.R_OK), os.access({path!r}, os.R_OK, effective_ids=True))"
    done = _child(f"""
        lockdown.become_user(4711, {keep!r})
        os.execv("/usr/bin/python3", ["python3", "-I", "-c", {asked!r}])
    """)
    assert done.stdout == f"{answer} {answer}\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs capabilities to keep one")
def test_a_kept_capability_is_the_only_one_and_outlives_an_exec() -> None:
    done = _child("""
        lockdown.no_new_privs(); lockdown.drop_capabilities((2,))
        os.execv("/bin/grep", ["grep", "-E", "^Cap(Prm|Eff|Bnd|Amb|Inh)", "/proc/self/status"])
    """)
    assert {int(line.split()[1], 16) for line in done.stdout.splitlines()} == {1 << 2}

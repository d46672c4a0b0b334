"""Jails without namespaces: behind Landlock, and behind nothing where that was asked for by name."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from sandbox_kernel import (
    EnforcerFailed,
    ExecRequest,
    ExecResult,
    Language,
    Limits,
    PolicyViolation,
    ProcessBackend,
    ProcessConfig,
    SandboxPolicy,
    Status,
)
from sandbox_kernel.backends import process
from sandbox_kernel.jail.accounting import meter
from sandbox_kernel.jail.accounting.processes import living
from sandbox_kernel.jail.enforcer import start_jail
from sandbox_kernel.jail.gate_messages import Step
from sandbox_kernel.jail.interpreter import find_python
from sandbox_kernel.jail.open_jail import OpenJail
from sandbox_kernel.jail.rules.landlock import landlock_abi
from sandbox_kernel.jail.run_job import Job, run_job
from sandbox_kernel.jail.walls import Walls, sizes
from sandbox_kernel.languages import recipe
from sandbox_kernel.languages.recipe import availability
from sandbox_kernel.model import Events
from sandbox_kernel.policy import Grant
from sandbox_kernel.session.open_session import open_session
from tests.conftest import need
from tests.waiting import until_gone

pytestmark = [
    pytest.mark.usefixtures("nothing_left"),
    pytest.mark.skipif(landlock_abi() < 1, reason="this kernel has no Landlock"),
]
STANDARD = SandboxPolicy.preset("standard")
ROOT = os.geteuid() == 0

#: A daemon in a session of its own, which says who it is; its parent waits for it to have said so.
DAEMON = """
import os, time
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True); os.write(write, b"x"); time.sleep(60)
    os._exit(0)
os.read(read, 1)
"""


def box(enforcer: str | None = "landlock", policy: SandboxPolicy = STANDARD) -> ProcessBackend:
    return ProcessBackend(ProcessConfig(pool_size=0), enforcer=enforcer, policy=policy)


def python(code: str, **options: object) -> ExecRequest:
    return ExecRequest(language=Language.PYTHON, code=code, **{"timeout": 20, **options})  # type: ignore[arg-type]


def command(code: str, **options: object) -> ExecRequest:
    return ExecRequest(language=Language.COMMAND, code=code, **{"timeout": 20, **options})  # type: ignore[arg-type]


@pytest.fixture(params=["landlock", None], ids=["landlock", "bare"])
def either(request: pytest.FixtureRequest) -> ProcessBackend:
    return box(request.param)


@pytest.fixture(params=[True, False], ids=["with control groups", "without"])
def grouped(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Both ways to hold a tree of processes together."""
    if not request.param:
        for room in (meter, process, recipe):
            monkeypatch.setattr(room, "find_hierarchies", lambda: None)
    return bool(request.param)


@pytest.fixture
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    (folder / "seen").mkdir()
    (folder / "seen" / "a.txt").write_text("content")
    (folder / "hidden.txt").write_text("secret")
    return folder


# Where a program finds itself.


def test_a_program_has_private_folders_that_are_gone_afterwards(either: ProcessBackend) -> None:
    code = (
        "import os\nfor n in ('HOME', 'TMPDIR'): print(os.environ[n])\nprint(os.getcwd(), os.stat('.').st_mode & 0o777)"
    )
    result = either.run(python(code))
    home, tmp, where = result.stdout.splitlines()
    assert where == f"{home} {0o700}"
    assert os.path.dirname(home) == os.path.dirname(tmp)
    assert not os.path.exists(os.path.dirname(home))


def test_the_environment_is_what_was_asked_and_where_things_are(
    either: ProcessBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOST_SECRET", "leaked")
    result = either.run(python("import os; print(*sorted(os.environ))", env={"MINE": "1"}))
    assert result.stdout.split() == ["GIT_CONFIG_NOSYSTEM", "HOME", "LANG", "MINE", "PATH", "TMPDIR"]


def test_git_works_although_it_may_not_read_the_hosts_configuration(either: ProcessBackend) -> None:
    """Git takes an /etc/gitconfig that exists and cannot be read for a fatal mistake."""
    need(shutil.which("git"), "git is not installed")
    result = either.run(python("import subprocess; print(subprocess.run(['git', 'config', '--list']).returncode)"))
    assert (result.stdout, result.stderr) == ("0\n", "")


def test_temporary_files_work_and_standard_streams_have_their_names(either: ProcessBackend) -> None:
    code = (
        "import tempfile\nwith tempfile.NamedTemporaryFile() as f: f.write(b'x')\nopen('/dev/stdout','w').write('out')"
    )
    assert either.run(python(code)).stdout == "out"


def test_files_go_in_and_what_was_made_is_told(either: ProcessBackend) -> None:
    result = either.run(python("import mod; open('out', 'w').write(mod.text)", files={"mod.py": "text = 'made'"}))
    assert [(change.path, str(change.kind)) for change in result.changes] == [("out", "created")]


def test_the_isolation_is_named() -> None:
    assert box("landlock").run(python("1")).isolation == "process+sandbox"
    assert box(None).run(python("1")).isolation == "process"


def test_a_bare_program_is_the_caller_and_may_what_the_caller_may(data: Path) -> None:
    result = box(None).run(python(f"import os; print(os.getuid(), open('{data}/hidden.txt').read())"))
    assert result.stdout == f"{os.getuid()} secret\n"


def test_behind_landlock_a_program_has_no_privilege_and_not_roots_name() -> None:
    code = (
        "import os\nlines = open('/proc/self/status').read().splitlines()\n"
        "status = dict(l.split(':\\t') for l in lines if ':\\t' in l)\n"
        "print(os.getuid(), int(status['CapEff'], 16), int(status['CapBnd'], 16), status['NoNewPrivs'], status['Seccomp'])"
    )
    uid, effective, bounding, no_new_privs, filtered = map(int, box().run(python(code)).stdout.split())
    assert (uid != 0, no_new_privs, filtered) == (True, 1, 2)
    # To read an interpreter that only root may read: CAP_DAC_READ_SEARCH or nothing.
    assert effective in (0, 1 << 2)
    assert not ROOT or bounding == effective


# What the policy allows, where it is.


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda p, d: p.mount(d / "seen", "/data"), "cannot mount"),
        (lambda p, d: p.allow_read_write(d).allow_read(d / "seen"), "landlock cannot enforce that"),
        (lambda p, d: p.allow_domain("example.org"), r"allow_domain\('example.org'\).*without a network namespace"),
        (lambda p, d: p.allow_network(), r"allow_network\(\).*without a network namespace"),
    ],
    ids=["mount", "read-only inside writable", "domain", "network"],
)
def test_what_landlock_cannot_hold_is_refused_before_anything_runs(
    change: Callable[[SandboxPolicy, Path], SandboxPolicy], words: str, data: Path
) -> None:
    with pytest.raises(PolicyViolation, match=words):
        box(policy=change(STANDARD, data)).run(python("open('ran', 'w')"))


@pytest.mark.skipif(not ROOT, reason="only root's sandboxes have a user of their own")
@pytest.mark.parametrize("writable", [False, True])
def test_what_a_user_of_its_own_may_read_for_root_it_cannot_touch_or_watch(data: Path, writable: bool) -> None:
    policy = STANDARD.allow_read_write(data / "seen") if writable else STANDARD.allow_read(data / "seen")
    victim = data / "hidden.txt"
    victim.chmod(0o600)
    before = victim.stat()
    code = (
        "import ctypes, os, sys\npath = sys.argv[1]\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "def watch():\n  if libc.inotify_add_watch(libc.inotify_init(), path.encode(), 0xFFF) < 0:\n"
        "    raise OSError(ctypes.get_errno(), '')\n"
        "for act in (lambda: open(path), lambda: os.utime(path), lambda: os.chmod(path, 0o777), lambda: os.truncate(path, 0),"
        " lambda: os.setxattr(path, 'user.x', b'1'), lambda: os.unlink(path), watch):\n"
        "  try: act(); print('DONE')\n  except OSError as error: print(error.errno)"
    )
    result = box(policy=policy).run(python(code, args=[str(victim)]))
    assert "DONE" not in result.stdout and len(result.stdout.split()) == 7, result.stderr
    after = victim.stat()
    assert (after.st_mode, after.st_mtime_ns, after.st_size) == (before.st_mode, before.st_mtime_ns, before.st_size)


def test_what_a_program_may_read_it_is_also_told_that_it_may(data: Path) -> None:
    """Linkers and shells ask ``access`` before they use a file: "cannot find 'ld'" was such an answer."""
    data.chmod(0o700)
    tool = data / "seen" / "tool"
    tool.write_text("#!/bin/sh\necho ran\n")
    tool.chmod(0o755)
    code = "import os, subprocess, sys; print(os.access(sys.argv[1], os.R_OK | os.X_OK)); subprocess.run(sys.argv[1])"
    result = box(policy=STANDARD.allow_read(data / "seen")).run(python(code, args=[str(tool)]))
    assert result.stdout == "True\nran\n", result.stderr


# Walls stand or nothing runs.


def _walls(enforcer: str | None, *grants: Grant) -> Walls:
    interpreter = find_python("python3")
    return Walls(
        interpreter.executable, interpreter.runtime, grants, *sizes(Limits(), 128), preload=(), enforcer=enforcer
    )


def _job(jail: OpenJail, source: str) -> Job:
    work = jail.places.work
    step = Step(kind="python", argv=["cell.py"], env={}, rlimits={}, cwd=work, source=source.encode())
    return Job(steps=(step,), timeout_s=20.0, memory_bytes=128 << 20, processes=16, output_bytes=1 << 16)


def test_a_wall_that_does_not_stand_is_an_error_and_the_program_is_not_run(tmp_path: Path) -> None:
    granted = tmp_path.resolve() / "granted"
    granted.mkdir()
    jail = start_jail(_walls("landlock", Grant(str(granted), str(granted), False)))
    assert isinstance(jail, OpenJail)
    jail.wait_ready()
    granted.rmdir()
    heard: list[str] = []
    with pytest.raises(EnforcerFailed, match=r"a wall could not be built, nothing was run: .*granted"):
        run_job(jail, _job(jail, "print('it was run')"), Events(on_output=lambda _, text: heard.append(text)))
    jail.forget()
    assert "it was run" not in "".join(heard)


def test_the_program_cannot_say_that_its_walls_did_not_stand() -> None:
    code = "import os\nfor fd in range(3, 256):\n  try: os.write(fd, b'no wall'); print('WROTE', fd)\n  except OSError: pass"
    assert box().run(python(code)).stdout == ""


def test_a_jail_that_cannot_start_says_why_and_leaves_nothing() -> None:
    walls = _walls("landlock")
    broken = Walls("/bin/false", walls.runtime, (), *sizes(Limits(), 128), preload=(), enforcer="landlock")
    jail = start_jail(broken)
    with pytest.raises(EnforcerFailed, match="the walls did not come up"):
        jail.wait_ready()


# Nothing outlives its run.


@pytest.mark.parametrize(("wait", "status"), [("", Status.OK), ("time.sleep(60)", Status.TIMEOUT)])
@pytest.mark.one_case
def test_a_daemon_that_called_setsid_is_gone_with_the_run(
    either: ProcessBackend, grouped: bool, wait: str, status: Status
) -> None:
    result = either.run(python(DAEMON + wait, timeout=1.5 if wait else 20))
    assert result.status is status
    until_gone(int(result.stdout))


#: Eight processes that fork and exit for ten seconds; their name goes from one to the next.
HOPPERS = """
import ctypes, os, time
ctypes.CDLL(None).prctl(15, b"%s", 0, 0, 0)
until = time.monotonic() + 10
for _ in range(8):
    if os.fork() == 0:
        while time.monotonic() < until:
            if os.fork():
                os._exit(0)
            os.setsid()
        os._exit(0)
print(open("/proc/self/comm").read(), end="", flush=True)
time.sleep(60)
"""


@pytest.mark.slow
def test_processes_that_hop_from_pid_to_pid_are_gone_with_the_run(either: ProcessBackend, grouped: bool) -> None:
    name = f"hop-{os.getpid()}"
    result = either.run(python(HOPPERS % name, timeout=1, limits=Limits(processes=200)))
    assert (result.status, result.stdout) == (Status.TIMEOUT, name + "\n")
    # One look can miss them; a hundred cannot. The dead, whom the system's init has yet to collect, hop no more.
    looks = (p.info for _ in range(100) for p in psutil.process_iter(["name", "status"]))
    assert not [info for info in looks if info["name"] == name and info["status"] != psutil.STATUS_ZOMBIE]


@pytest.mark.slow
def test_processes_that_hop_are_ended_by_the_gate_when_the_host_is_killed() -> None:
    name = f"hop-{os.getpid()}"
    # Longer than a hundred looks take on a machine under load.
    hoppers = HOPPERS.replace("+ 10", "+ 45") % name
    code = f"""
import sys
from sandbox_kernel import *
from sandbox_kernel.backends.base import RunContext
backend = ProcessBackend(ProcessConfig(pool_size=0), enforcer=None, policy=SandboxPolicy.preset("standard"))
request = ExecRequest(language=Language.PYTHON, code={hoppers!r}, timeout=60, limits=Limits(processes=200))
backend.run(request, RunContext(on_output=lambda _, text: print(text, flush=True)))
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        assert host.stdout.readline() == name + "\n"
        host.kill()
    deadline, quiet = time.monotonic() + 40, 0
    while quiet < 100 and time.monotonic() < deadline:
        states = [p.info["status"] for p in psutil.process_iter(["name", "status"]) if p.info["name"] == name]
        quiet = 0 if set(states) - {psutil.STATUS_ZOMBIE} else quiet + 1
    assert quiet == 100


def test_stopped_processes_are_gone_with_the_run(either: ProcessBackend, grouped: bool) -> None:
    result = either.run(python(DAEMON.replace("time.sleep(60)", "os.kill(os.getpid(), 19)")))
    until_gone(int(result.stdout))


@pytest.mark.parametrize("enforcer", ["landlock", None])
@pytest.mark.one_case
def test_when_the_gate_is_killed_its_orphans_are_killed_too(enforcer: str | None, grouped: bool) -> None:
    jail = start_jail(_walls(enforcer))
    assert isinstance(jail, OpenJail)
    jail.wait_ready()
    pids: list[int] = []

    def kill_the_gate(_: str, text: str) -> None:
        if not text.strip():
            return
        pids.append(int(text))
        # As a run's ticks do: what was seen once is not lost.
        jail._members()
        os.kill(jail.init_pid, signal.SIGKILL)

    run_job(jail, _job(jail, DAEMON + "time.sleep(60)"), Events(on_output=kill_the_gate))
    jail.forget()
    until_gone(pids[0])


def test_a_program_cannot_kill_its_gate_or_its_host() -> None:
    code = (
        "import os\nfor pid in (os.getppid(), int(os.environ['HOST'])):\n"
        "  for number in (9, 19):\n    try: os.kill(pid, number); print('SENT')\n    except OSError as e: print(e.strerror)"
    )
    if landlock_abi() < 6:
        pytest.skip("this kernel's Landlock does not see signals")
    result = box().run(python(code, env={"HOST": str(os.getpid())}))
    assert result.stdout == "Operation not permitted\n" * 4


# The limits that have no file system and no namespace behind them.


@pytest.mark.one_case
def test_a_file_beyond_the_disk_limit_is_refused_and_told(either: ProcessBackend) -> None:
    result = either.run(python("open('f', 'wb').write(bytes(20 << 20))", limits=Limits(disk_mb=16)))
    assert (result.status, result.limit) == (Status.FAILED, "disk")
    assert "File too large" in result.stderr
    below = either.run(python("open('f', 'wb').write(bytes(12 << 20))", limits=Limits(disk_mb=16)))
    assert (below.status, below.limit) == (Status.OK, None)


def test_many_files_beyond_the_disk_limit_end_the_run(either: ProcessBackend) -> None:
    code = "import time\nfor i in range(8): open(f'f{i}', 'wb').write(bytes(4 << 20))\ntime.sleep(30)"
    result = either.run(python(code, limits=Limits(disk_mb=16)))
    assert (result.status, result.limit) == (Status.KILLED, "disk")


HIDING_PLACES = {
    "an open file": "def hide(f): kept.append(f)",
    # Python's own keeps a descriptor beside the mapping.
    "a mapping": (
        "import ctypes\nlibc = ctypes.CDLL(None)\n"
        "def hide(f): libc.mmap(None, ctypes.c_size_t(4096), 1, 1, f.fileno(), ctypes.c_long(0)); f.close()"
    ),
    "a message": (
        "import socket\npair = socket.socketpair()\ndef hide(f): socket.send_fds(pair[0], [b'x'], [f.fileno()]); f.close()"
    ),
    "the table of a thread": (
        "import ctypes, threading\nlibc = ctypes.CDLL(None)\n"
        "def hide(f):\n  done = threading.Event()\n"
        # CLOSE_RANGE_UNSHARE: from here on this thread has descriptors of its own.
        "  def keep(): libc.syscall(436, 1 << 20, 1 << 20, 2); done.set(); time.sleep(60)\n"
        "  threading.Thread(target=keep, daemon=True).start(); done.wait(); f.close()"
    ),
    "a process that cannot be looked into": (
        "import ctypes\nctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\ndef hide(f): kept.append(f)"
    ),
}


@pytest.mark.parametrize("place", HIDING_PLACES)
@pytest.mark.one_case
def test_deleted_files_count_when_they_are_hidden_in(place: str, either: ProcessBackend) -> None:
    code = (
        f"import os, time\nkept = []\n{HIDING_PLACES[place]}\nfor i in range(16):\n  f = open('f', 'wb+'); os.unlink('f')\n"
        "  f.write(bytes(4 << 20)); f.flush(); hide(f)\ntime.sleep(30)"
    )
    result = either.run(python(code, limits=Limits(disk_mb=16)))
    assert (result.status, result.limit) == (Status.KILLED, "disk"), result


@pytest.mark.skipif(ROOT, reason="root looks into every folder")
def test_a_folder_that_was_closed_to_the_watchdog_ends_the_run() -> None:
    code = "import os, time\nos.mkdir('d'); os.fchmod(os.open('d', 0), 0)\ntime.sleep(30)"
    result = box().run(python(code))
    assert (result.status, result.limit) == (Status.KILLED, "disk")


@pytest.mark.parametrize(("children", "limit"), [(10, None), (40, "processes")])
@pytest.mark.one_case
def test_processes_are_limited(either: ProcessBackend, grouped: bool, children: int, limit: str | None) -> None:
    code = (
        "import os, time\ntry:\n"
        f"  for _ in range({children}):\n    if os.fork() == 0: time.sleep(30)\n"
        "except OSError: print('refused')\ntime.sleep(0.2)"
    )
    result = either.run(python(code, limits=Limits(processes=16)))
    assert result.limit == limit
    assert (result.status is Status.KILLED) == (limit is not None and "refused" not in result.stdout)


@pytest.mark.parametrize(("children", "status"), [(1, Status.OK), (6, Status.MEMORY_EXCEEDED)])
@pytest.mark.one_case
def test_memory_of_the_whole_tree_is_limited(
    either: ProcessBackend, grouped: bool, children: int, status: Status
) -> None:
    code = (
        f"import os, time\npids = []\nfor _ in range({children}):\n  pid = os.fork()\n"
        "  if pid == 0:\n    b = b'x' * (40 << 20); time.sleep(1.5); os._exit(0)\n  pids.append(pid)\n"
        "for p in pids: os.waitpid(p, 0)"
    )
    assert either.run(python(code, memory_limit_mb=128)).status is status


@pytest.mark.one_case
def test_locked_and_deep_folders_are_removed(either: ProcessBackend) -> None:
    code = (
        "import os\nfor _ in range(1500):\n  os.mkdir('a'); os.chdir('a')\n"
        "open('f', 'w').close(); os.fchmod(os.open('f', 0), 0); os.fchmod(os.open('.', 0), 0o500)\nprint(os.environ['HOME'])"
    )
    result = either.run(python(code, timeout=60))
    assert result.stdout and not os.path.exists(os.path.dirname(result.stdout.strip())), result


# The rest of the house works with them unchanged.


def test_a_box_that_was_taken_keeps_its_files_until_it_is_given_back() -> None:
    jail = start_jail(_walls("landlock"))
    assert isinstance(jail, OpenJail)
    jail.wait_ready()
    run_job(jail, _job(jail, "open('kept', 'w').write('x')"))
    assert os.listdir(jail.box_fd) == ["kept"]
    folder = os.path.dirname(jail.places.work)
    assert os.path.exists(folder)
    jail.forget()
    assert not os.path.exists(folder)


def test_a_forked_child_of_the_host_forgets_the_jail_and_leaves_it_alone() -> None:
    jail = start_jail(_walls("landlock"))
    jail.wait_ready()
    child = os.fork()
    if child == 0:
        jail.forget()
        os._exit(0)
    os.waitpid(child, 0)
    assert jail.alive
    assert os.path.isdir(jail.places.work)
    jail.destroy()
    assert not os.path.exists(jail.places.work)


def test_destroying_twice_is_fine_and_nothing_is_left() -> None:
    jail = start_jail(_walls(None))
    jail.wait_ready()
    gate = jail.init_pid
    jail.destroy()
    jail.destroy()
    jail.forget()
    assert not living((gate,))
    assert not jail.alive


@pytest.mark.slow
def test_a_session_keeps_its_state_and_its_files_over_a_hard_stop(either: ProcessBackend) -> None:
    session = open_session(either)
    try:
        session.run("x = 41; open('f', 'w').write('before')")
        stopped = session.run("x = 0; open('f', 'w').write('lost')\nwhile True: pass", timeout=1)
        assert (stopped.status, stopped.rolled_back) == (Status.TIMEOUT, True)
        assert session.run("print(x + 1, open('f').read())").stdout == "42 before\n"
    finally:
        session.close()


def test_a_session_that_landlock_cannot_let_out_is_refused() -> None:
    with pytest.raises(PolicyViolation, match="without a network namespace"):
        open_session(box(policy=STANDARD.allow_domain("example.org")))


@pytest.mark.parametrize("language", ["javascript", "c"])
@pytest.mark.one_case
def test_other_languages_run_in_place(either: ProcessBackend, language: str) -> None:
    code = {"javascript": "console.log('hello')", "c": '#include <stdio.h>\nint main(void) { puts("hello"); }'}[
        language
    ]
    found = availability(either.config, Language.parse(language))
    need(found.available, found.reason)
    request = ExecRequest(language=Language.parse(language), code=code, timeout=60, memory_limit_mb=256)
    result: ExecResult = either.run(request)
    assert result.stdout == "hello\n", result.stderr

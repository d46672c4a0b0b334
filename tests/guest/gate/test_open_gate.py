"""The gate of a jail without namespaces, as far as it can be tried without a jail: in a child, by its functions."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import sandbox_kernel
from sandbox_kernel.jail.accounting.processes import living

GUEST = str(Path(sandbox_kernel.__file__).parent / "guest")


def child(code: str, *arguments: object) -> str:
    """Run code that has the gate's modules; what it printed."""
    prelude = f"import os, json, sys\np = sys.modules['sandbox_guest'] = type(sys)('sandbox_guest'); p.__path__ = [{GUEST!r}]\nfrom sandbox_guest.gate import gate, lockdown, open_gate\n"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", prelude + textwrap.dedent(code), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


MARK = """
open_gate.make_executable(sys.argv[1], {"kind": sys.argv[3], "argv": [sys.argv[2]]})
"""


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize(
    ("kind", "before", "after"), [("exec", 0o644, 0o744), ("python", 0o600, 0o600), ("session", 0o600, 0o600)]
)
def test_a_compiled_program_is_made_executable_and_what_is_not_executed_is_left_alone(
    tmp_path: Path, kind: str, before: int, after: int
) -> None:
    program = tmp_path / "cell"
    program.write_text("x")
    program.chmod(before)
    child(MARK, tmp_path, program, kind)
    assert mode(program) == after


def test_what_a_hostile_compiler_put_there_instead_is_left_alone(tmp_path: Path) -> None:
    cell, outside = tmp_path / "cell", tmp_path / "outside"
    cell.mkdir()
    outside.mkdir()
    victim = outside / "key"
    victim.write_text("secret")
    victim.chmod(0o600)
    (cell / "link").symlink_to(victim)
    os.link(victim, cell / "hard")
    (cell / "deeper").symlink_to(outside)
    os.mkfifo(cell / "fifo", 0o600)
    (cell / "folder").mkdir(mode=0o600)
    for name in ("link", "hard", "deeper/key", "fifo", "folder", "missing"):
        child(MARK, cell, cell / name, "exec")
    child(MARK, cell, victim, "exec")
    child(MARK, cell, f"{cell}/../outside/key", "exec")
    assert mode(victim) == mode(cell / "fifo") == mode(cell / "folder") == 0o600


def test_the_whole_tree_is_ended_also_those_who_left_their_session() -> None:
    said = child("""
        lockdown.set_subreaper()
        read, write = os.pipe()
        for _ in range(3):
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    os.write(write, b"%d " % os.getpid())
                    import signal; signal.signal(15, signal.SIG_IGN); signal.pause()
                os._exit(0)
        pids = b""
        while pids.count(b" ") < 3: pids += os.read(read, 99)
        for _ in range(3): os.wait()
        found = [open_gate.children()]
        open_gate.open = lambda path: os.open("/nowhere", 0)  # as on a kernel without the list
        found.append(open_gate.children())
        print(json.dumps([sorted(map(int, pids.split())), *map(sorted, found)]), flush=True)
        open_gate.end_everything()
    """)
    started, found, by_parent = json.loads(said)
    assert set(started) <= set(found)
    assert found == by_parent
    assert not living(started)


def test_tasks_of_a_user_are_threads_and_not_only_processes() -> None:
    said = child("""
        import threading
        before = open_gate.tasks_of_user()
        stop = threading.Event()
        threads = [threading.Thread(target=stop.wait) for _ in range(40)]
        for thread in threads: thread.start()
        print(open_gate.tasks_of_user() - before); stop.set()
    """)
    # Others of the same user come and go meanwhile.
    assert int(said) > 10


def test_the_gate_does_not_start_when_its_host_is_gone_already(tmp_path: Path) -> None:
    import marshal

    spec = {
        "parent": 1 << 22, "work": str(tmp_path), "cell": str(tmp_path), "tmp": str(tmp_path), "uid": None,
        "capabilities": [], "landlock": None, "seccomp": [], "task_room": 0,
    }  # fmt: skip
    file = tmp_path / "spec"
    file.write_bytes(marshal.dumps(spec, 2))
    said = child(
        """
        fd = os.open(sys.argv[1], os.O_RDONLY)
        sys.argv[1:] = [str(fd), "0", "0"]
        try: open_gate.main()
        except OSError as error: print(error.strerror)
        """,
        file,
    )
    assert said.startswith("set_pdeathsig: parent 4194304 is gone")

"""Sandboxes are started by a thread that lives as long as the host, and end with the host however it ends."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import sandbox_kernel
from sandbox_kernel import ExecRequest, Language, ProcessBackend, ProcessConfig
from sandbox_kernel.jail.accounting.processes import living, tree
from sandbox_kernel.jail.open_jail import PREFIX, choose_parent, sweep
from sandbox_kernel.jail.rules.landlock import landlock_abi
from sandbox_kernel.jail.spawner import SpawnOrder, spawn
from tests.waiting import until

SOURCE = str(Path(sandbox_kernel.__file__).parent.parent)
KINDS = ["bubblewrap", None, *(["landlock"] if landlock_abi() else [])]

#: A host that runs a program with a daemon and says when that is under way; its spares wait beside it.
HOST = """
import sys
from sandbox_kernel import *
from sandbox_kernel.backends.base import RunContext
enforcer = None if sys.argv[1] == "None" else sys.argv[1]
box = ProcessBackend(ProcessConfig(pool_size=int(sys.argv[2])), enforcer=enforcer)
box.run(ExecRequest(language="python", code="1", timeout=20))
program = '''
import os, signal
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
read, write = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: print("under way", flush=True)
    signal.pause()
signal.pause()
'''
if sys.argv[3] == "run":
    shown = RunContext(on_output=lambda _, text: print(text, flush=True))
    box.run(ExecRequest(language="python", code=program, timeout=60), shown)
else:
    print("under way", flush=True); sys.stdin.readline()
"""


@contextlib.contextmanager
def host(enforcer: str | None, pool_size: int, then: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOST, str(enforcer), str(pool_size), then],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": SOURCE},
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        assert process.stdout.readline() == "under way\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


def all_end(pids: list[int]) -> bool:
    """Whether all of these end within a while."""
    descriptors = []
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            descriptors.append(os.pidfd_open(pid))
    try:
        return all(select.select([fd], [], [], 20)[0] for fd in descriptors)
    finally:
        for fd in descriptors:
            os.close(fd)


def test_a_sandbox_that_a_short_lived_thread_asked_for_outlives_that_thread() -> None:
    backend = ProcessBackend(ProcessConfig(pool_size=0), enforcer="bubblewrap")
    request = ExecRequest(language=Language.PYTHON, code="1", timeout=20)
    walls = backend.walls(request, backend._recipe(request))
    taken = []
    thread = threading.Thread(target=lambda: taken.append(backend._pool.take(walls)))
    thread.start()
    thread.join()
    (jail,) = taken
    # The kernel tells children of a thread's end when it is gone for good; until then it is listed.
    assert thread.native_id is not None
    until(lambda: not os.path.exists(f"/proc/self/task/{thread.native_id}"))
    assert jail.alive
    jail.destroy()


def spawn_from_a_thread(start: SpawnOrder) -> subprocess.Popen[bytes]:
    found: list[subprocess.Popen[bytes]] = []
    thread = threading.Thread(target=lambda: found.append(spawn(start)))
    thread.start()
    thread.join()
    return found[0]


def parent_thread(pid: int) -> str:
    """The thread of ours whose child this is. The kernel's list may miss some while others end, so look again."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for task in os.listdir("/proc/self/task"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
                if str(pid) in Path(f"/proc/self/task/{task}/children").read_text().split():
                    return task
    raise AssertionError(f"no thread has the child {pid}")


def test_every_child_is_started_by_one_and_the_same_thread() -> None:
    parents = set()
    for _ in range(2):
        read, write = os.pipe()
        child = spawn_from_a_thread(SpawnOrder(["/bin/cat"], (), read, 1, 2))
        parents.add(parent_thread(child.pid))
        os.close(read)
        os.close(write)
        child.wait()
    assert len(parents) == 1


def test_children_get_an_empty_environment_and_nothing_of_ours() -> None:
    read, write = os.pipe()
    keep, _ = os.pipe()
    os.set_inheritable(keep, True)
    null = os.open("/dev/null", os.O_RDONLY)
    child = spawn(SpawnOrder(["/bin/sh", "-c", "env | grep -v PWD= ; ls /proc/$$/fd; pwd"], (), null, write, 2))
    os.close(write)
    with open(read) as file:
        said = file.read().split()
    child.wait()
    for fd in (keep, _, null):
        os.close(fd)
    assert str(keep) not in said
    assert said[-1] == "/"
    assert not [word for word in said if "=" in word and not word.startswith(("SHLVL=", "_=", "OLDPWD="))]


def test_what_cannot_be_started_is_an_error_to_who_asked() -> None:
    with pytest.raises(FileNotFoundError):
        spawn(SpawnOrder(["/nowhere/at/all"], (), 0, 1, 2))


def test_a_forked_host_has_a_spawner_of_its_own() -> None:
    spawn(SpawnOrder(["/bin/true"], (), 0, 1, 2)).wait()
    child = os.fork()
    if child == 0:
        code = 1
        with contextlib.suppress(BaseException):
            code = spawn(SpawnOrder(["/bin/true"], (), 0, 1, 2)).wait()
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("enforcer", KINDS)
@pytest.mark.one_case
def test_a_host_that_is_killed_in_the_middle_leaves_no_process(enforcer: str | None) -> None:
    with host(enforcer, 1, "run") as process:
        below = [pid for pid in tree(process.pid) if pid != process.pid]
        assert len(below) >= 4, "the program, its daemon and a spare are not all there"
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert all_end(below)
        assert not living(below)


@pytest.mark.skipif(not landlock_abi(), reason="this kernel has no Landlock")
def test_what_a_killed_host_left_on_disk_is_swept_by_the_next_one() -> None:
    with host("landlock", 0, "run") as process:
        below = tree(process.pid)
        parent, mark = choose_parent(64 << 20), f"{PREFIX}{process.pid}-"
        sweep(parent)
        assert [name for name in os.listdir(parent) if name.startswith(mark)], "a living host's folder was swept"
        process.kill()
        process.wait()
        assert all_end(below)
        assert [name for name in os.listdir(parent) if name.startswith(mark)], "there is nothing to sweep"
        sweep(parent)
        assert not [name for name in os.listdir(parent) if name.startswith(mark)]


@pytest.mark.parametrize("enforcer", KINDS)
@pytest.mark.one_case
def test_a_host_that_exits_leaves_no_spare(enforcer: str | None) -> None:
    with host(enforcer, 2, "wait") as process:
        until(lambda: len(tree(process.pid)) >= 3)  # spares are made in the background
        below = [pid for pid in tree(process.pid) if pid != process.pid]
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.wait(60) == 0
        assert all_end(below)
        marks = [name for name in os.listdir(choose_parent(1 << 20)) if name.startswith(f"{PREFIX}{process.pid}-")]
        assert not marks

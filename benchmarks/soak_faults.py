"""Faults that are made around a host while it runs programs. Each returns what it did, and undoes it.

Used by ``benchmarks.soak_waves``. During a fault runs may fail with an error of our types; after it everything must
work again.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import resource
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox_kernel.backends.process import ProcessBackend
from sandbox_kernel.jail.accounting.cgroup_place import GROUP_PREFIX, mounts, own_folder, own_groups
from sandbox_kernel.jail.accounting.cgroups import find_hierarchies
from sandbox_kernel.jail.accounting.processes import tree
from sandbox_kernel.jail.rules.bubblewrap import find_bwrap

#: A second host with the same cache; its arguments are the folder and the number of programs to run.
NEIGHBOUR = """
import sys
from benchmarks.soak_programs import backend_with, program
backend = backend_with(sys.argv[1])
for number in range(int(sys.argv[2])):
    code, wanted = program("c", f"n{number % 3}")
    result = backend.run(code)
    assert result.stdout == wanted, result
print("well")
"""

#: Hosts that will be killed in the middle of a run, and of a cell.
VICTIMS = {
    "run": """
from sandbox_kernel import ExecRequest, Language, ProcessBackend
from sandbox_kernel.backends.base import RunContext
code = "import os, time\\nif os.fork() == 0: os.setsid()\\nelse: print('up', flush=True)\\ntime.sleep(60)"
ProcessBackend().run(
    ExecRequest(language=Language.PYTHON, code=code, timeout=60),
    RunContext(on_output=lambda *_: print("up", flush=True)),
)
""",
    "cell": """
from sandbox_kernel import Sandbox
code = "import os, time\\nif os.fork() == 0: os.setsid()\\nelse: print('up', flush=True)\\ntime.sleep(60)"
with Sandbox() as box:
    session = box.session("python")
    session.run("x = 1")
    session.run(code, timeout=60, on_output=lambda *_: print("up", flush=True))
""",
}
#: A file next to our copy of bwrap. Only a copy with this file is ever removed.
OURS = "made-by-the-soak"
#: Content of the bait file, to which damaged cache files are linked.
BAIT = b"outside of every cache"
#: How far a clock jumps.
DAY_S = 86_400.0


def own_bwrap(folder: Path) -> None:
    """Put a removable copy of bwrap first on PATH. Call it before any sandbox is made."""
    found = shutil.which("bwrap")
    if found is None:
        return  # the bwrap of the registry consists of more files; it is kept
    folder.mkdir(mode=0o755)
    (folder / OURS).touch()
    shutil.copy(found, folder / "bwrap")
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"


def kill_spares(backend: ProcessBackend, dice: random.Random) -> int:
    """Kill ready-made sandboxes from outside; returns how many."""
    with backend._pool._lock:
        spares = [jail for shelf in backend._pool._kinds.values() for jail in shelf.spares]
    chosen = [jail for jail in spares if dice.random() < 0.7]
    for jail in chosen:
        with contextlib.suppress(ProcessLookupError):
            os.kill(jail.init_pid, signal.SIGKILL)
    return len(chosen)


def empty_groups() -> int:
    """Move all processes of this host's sandboxes into the host's control group, and remove theirs."""
    where, removed = find_hierarchies(), 0
    if where is None:
        return 0
    groups, mounted = own_groups(), mounts()
    names = (
        {where.unified: "", where.memory: "memory", where.pids: "pids"} if where.version == 1 else {where.memory: ""}
    )
    for folder, name_of_hierarchy in names.items():
        host = own_folder(name_of_hierarchy, groups, mounted)
        if folder is None or host is None:
            continue
        for name in os.listdir(folder):
            if name.startswith(GROUP_PREFIX):
                removed += _emptied(Path(folder, name), Path(host))
    return removed


def _emptied(leaf: Path, host: Path) -> bool:
    """Move all processes out and remove the group; repeat for processes that start or end meanwhile."""
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            for pid in (leaf / "cgroup.procs").read_text().split():
                with contextlib.suppress(OSError):
                    (host / "cgroup.procs").write_text(pid)
            leaf.rmdir()
            return True
    return False


@contextmanager
def without_bwrap() -> Iterator[None]:
    """Remove the bwrap program for a while."""
    path = find_bwrap()
    if not Path(path).with_name(OURS).exists():
        yield
        return
    os.rename(path, f"{path}.away")
    try:
        yield
    finally:
        os.rename(f"{path}.away", path)


@contextmanager
def without_descriptors(left: int) -> Iterator[None]:
    """Let this host open only a few more files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(highest + 64, hard), hard))
    held: list[int] = []
    try:
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))
        for _ in range(min(left, len(held))):
            os.close(held.pop())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in held:
            os.close(fd)


@contextmanager
def jumping_clock() -> Iterator[None]:
    """Let the time of day jump a day forward or back at every call, so that code that relies on it fails at once."""
    seconds, nanoseconds = time.time, time.time_ns
    jumps = itertools.cycle((DAY_S, -DAY_S, 0.0))
    time.time = lambda: seconds() + next(jumps)
    time.time_ns = lambda: nanoseconds() + int(next(jumps) * 1e9)
    try:
        yield
    finally:
        time.time, time.time_ns = seconds, nanoseconds


def spoil(cache: Path, bait: Path, dice: random.Random) -> int:
    """Cut, change or replace the files of a cache; some become links to the bait, which must not be used."""
    bait.write_bytes(BAIT)
    spoilt = 0
    for path in sorted(cache.rglob("*")) if cache.is_dir() else []:
        # Skip links: writing through one would change a file outside of the cache.
        # A store without its key must be made again by its owner.
        if path.is_file() and not path.is_symlink() and path.name != "key":
            content = bytearray(path.read_bytes())
            place = dice.randrange(len(content)) if content else 0
            match dice.randrange(4):
                case 0:
                    path.write_bytes(content[:place])
                case 1 if content:
                    content[place] ^= 0xFF
                    path.write_bytes(content)
                case 1 | 2:
                    path.write_bytes(b"")
                case _:
                    path.unlink()
                    path.symlink_to(bait)
            spoilt += 1
    return spoilt


def neighbour(cache: Path, programs: int) -> subprocess.Popen[str]:
    """Start another host that compiles the same programs into the same cache."""
    argv = [sys.executable, "-c", NEIGHBOUR, str(cache), str(programs)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)


def kill_a_host(victim: str) -> list[str]:
    """Start a host, kill it while its program runs, and return which of its processes do not end."""
    with subprocess.Popen([sys.executable, "-c", VICTIMS[victim]], stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        assert host.stdout.readline() == "up\n", f"the host of a {victim} ended before its program ran"
        watches = {}
        for pid in tree(host.pid):
            with contextlib.suppress(OSError):  # it has ended meanwhile
                watches[os.pidfd_open(pid)] = f"{pid} {Path(f'/proc/{pid}/cmdline').read_text()[:200]!r}"
        host.kill()
    assert len(watches) > 2, f"a host with its {victim} is more than {list(watches.values())}"
    try:
        return [name for watch, name in watches.items() if not select.select([watch], [], [], 20)[0]]
    finally:
        for watch in watches:
            os.close(watch)

"""Faults of the world around a host, done to it while it runs programs; each says what it did, and undoes it.

Used by ``benchmarks.soak_waves``. A fault may make runs fail with a typed error while it lasts; once it is undone
everything must work again.
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
from sandbox_kernel.jail.cgroups.cgroup import GROUP_PREFIX, find_hierarchies
from sandbox_kernel.jail.cgroups.cgroup_tree import mounts, own_folder, own_groups
from sandbox_kernel.jail.meter.process_tree import tree
from sandbox_kernel.jail.rules.bubblewrap import find_bwrap

#: A second host on the same cache: argv is the folder and how many programs it runs.
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
code = "import os, time\\nif os.fork() == 0: os.setsid()\\nelse: print('up', flush=True)\\ntime.sleep(60)"
ProcessBackend().run(
    ExecRequest(language=Language.PYTHON, code=code, timeout=60), on_output=lambda *_: print("up", flush=True)
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
#: Beside the bwrap that was copied to be taken away; no other is touched.
OURS = "made-by-the-soak"
#: What the file holds that spoilt cache files lead to.
BAIT = b"outside of every cache"
#: How far a clock jumps.
DAY_S = 86_400.0


def own_bwrap(folder: Path) -> None:
    """Put a copy of bwrap that may be taken away before all others; call before any sandbox is made."""
    found = shutil.which("bwrap")
    if found is None:
        return  # the one from the registry is not only a program; it stays
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
    """Move every process of this host's sandboxes out of its control group, into the host's, and remove the group."""
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
    """Move everything out and remove the group; what is started or ends meanwhile is looked for again."""
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
    """The program that builds the walls is gone."""
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
    """The time of day goes a day forth or back whenever somebody looks; what is measured by it goes wrong at once."""
    seconds, nanoseconds = time.time, time.time_ns
    jumps = itertools.cycle((DAY_S, -DAY_S, 0.0))
    time.time = lambda: seconds() + next(jumps)
    time.time_ns = lambda: nanoseconds() + int(next(jumps) * 1e9)
    try:
        yield
    finally:
        time.time, time.time_ns = seconds, nanoseconds


def spoil(cache: Path, bait: Path, dice: random.Random) -> int:
    """Cut, change or replace the files of a cache; some become links to the bait, which nobody may read or write."""
    bait.write_bytes(BAIT)
    spoilt = 0
    for path in sorted(cache.rglob("*")) if cache.is_dir() else []:
        # What is a link already would lead our own writing out of the cache.
        # Without its key a store must be made anew by its owner.
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
    """Another host that compiles the same programs into the same cache."""
    argv = [sys.executable, "-c", NEIGHBOUR, str(cache), str(programs)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)


def kill_a_host(victim: str) -> bool:
    """Start a host, kill it while its program runs, and say whether everything of it ends."""
    with subprocess.Popen([sys.executable, "-c", VICTIMS[victim]], stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        host.stdout.readline()
        watches = []
        for pid in tree(host.pid):
            with contextlib.suppress(ProcessLookupError):
                watches.append(os.pidfd_open(pid))
        host.kill()
    try:
        return len(watches) > 2 and all(select.select([watch], [], [], 20)[0] for watch in watches)
    finally:
        for watch in watches:
            os.close(watch)

"""Thousands of mixed executions under faults: is every result accounted for, and is nothing left behind?

    python -m benchmarks.soak_executions [--runs 10000] [--concurrent 16] [--seed 1] [--minutes 60] [--short]

In waves. In each, programs of all languages run at once: good ones, failing ones, ones that die, hang, hog or flood,
and ones that are cancelled at a random moment. Between and during waves the world breaks: spares are killed, control
groups and the bwrap program vanish, descriptors run out, the compile cache is spoilt, another host shares it, a host is
killed.
Ends with the first result that is not as expected, or with a line of counts, what is left, and how the memory grew.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import gc
import os
import random
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import soak_faults
from sandbox_kernel.backends.process import ProcessBackend, shared_pool
from sandbox_kernel.errors import SandboxError
from sandbox_kernel.jail.pool import close_all
from sandbox_kernel.jail.process_tree import tree
from sandbox_kernel.languages.recipe import ProcessConfig
from sandbox_kernel.limits import Limits
from sandbox_kernel.model import ExecRequest, Language, Status

#: Kinds of waves: one where nothing breaks, and one for each fault.
FAULTS = 8
#: A program that prints its token, by language.
GOOD = {
    "python": "print('@')",
    "javascript": "console.log('@')",
    "typescript": "const said: string = '@'; console.log(said)",
    "command": "echo @",
    "c": '#include <stdio.h>\nint main(){puts("@");}',
    "cpp": '#include <iostream>\nint main(){std::cout << "@\\n";}',
    "rust": 'fn main() { println!("@"); }',
    "ruby": "puts '@'",
    "perl": 'print "@\\n"',
    "php": '<?php echo "@\\n";',
    "lua": "print('@')",
}
#: Ways to end badly: code in Python, statuses that are right, and the limits of the run.
BAD: dict[str, tuple[str, tuple[Status, ...], Limits]] = {
    "fails": ("print('@'); raise SystemExit(3)", (Status.FAILED,), Limits()),
    "dies": ("import os; print('@', flush=True); os.kill(os.getpid(), 9)", (Status.KILLED,), Limits()),
    "crashes": ("import ctypes; print('@', flush=True); ctypes.string_at(0)", (Status.FAILED, Status.KILLED), Limits()),
    "hogs memory": ("print('@', flush=True); x = b'1' * (1 << 30)", (Status.MEMORY_EXCEEDED,), Limits()),
    "fills the disk": (
        "print('@', flush=True); open('f', 'wb').write(bytes(64 << 20))", (Status.FAILED,), Limits(disk_mb=8),
    ),
    "burns": ("print('@', flush=True)\nwhile True: pass", (Status.CPU_LIMIT,), Limits(cpu_seconds=0.2)),
    "hangs": ("import time; print('@', flush=True); time.sleep(60)", (Status.TIMEOUT,), Limits()),
    "floods": ("print('@')\nfor _ in range(200): print('x' * 65536)", (Status.OK,), Limits(output_bytes=4096)),
    "forks": (
        "import os; print('@', flush=True)\nwhile True: os.fork()",
        (Status.FAILED, Status.TIMEOUT, Status.KILLED), Limits(processes=8),
    ),
}  # fmt: skip


def backend_with(cache: str) -> ProcessBackend:
    """The backend of this soak: a warm pool and a cache of its own."""
    return ProcessBackend(ProcessConfig(pool_size=2, cache_dir=cache))


def program(language: str, token: str) -> tuple[ExecRequest, str]:
    """A good program and what it must print."""
    code = GOOD[language].replace("@", token)
    return ExecRequest(language=Language.parse(language), code=code, timeout=120), f"{token}\n"


@dataclass
class Soak:
    """One soak; ``counts`` is every result by what it was."""

    backend: ProcessBackend
    dice: random.Random
    languages: list[str]
    counts: collections.Counter[str] = field(default_factory=collections.Counter)
    asked: int = 0

    async def wave(self, size: int, concurrent: int, *, broken: bool = False) -> None:
        """Run so many at once; while the world is ``broken`` a typed error is a result too."""
        places = asyncio.Semaphore(concurrent)
        kinds = self.dice.choices(("good", "bad", "cancelled"), (6, 3, 1), k=size)
        jobs = [self.one(kind, f"t{self.dice.randrange(10**9)}", self.dice.random(), broken) for kind in kinds]

        async def bounded(job: asyncio.Future[str]) -> str:
            async with places:
                return await job

        self.asked += size
        for label in await asyncio.gather(*(bounded(job) for job in jobs)):  # type: ignore[arg-type]
            self.counts[label] += 1

    async def one(self, kind: str, token: str, chance: float, broken: bool) -> str:
        """One execution, checked; returns what it was."""
        try:
            return await getattr(self, kind)(token, chance, broken)
        except SandboxError as error:
            assert broken, f"{type(error).__name__}: {error}"
            return f"refused while broken ({type(error).__name__})"

    async def good(self, token: str, chance: float, broken: bool) -> str:
        """A program that prints its token and ends."""
        language = self.languages[int(chance * len(self.languages))]
        request, wanted = program(language, token if chance < 0.5 else f"same-{language}")
        result = await self.backend.execute(request)
        if broken and not result.ok:
            return f"ended while broken ({result.status})"
        assert (result.status, result.stdout) == (Status.OK, wanted), result
        return f"good {language}"

    async def bad(self, token: str, chance: float, broken: bool) -> str:
        """A program that ends badly after it has printed its token."""
        name = sorted(BAD)[int(chance * len(BAD))]
        code, statuses, limits = BAD[name]
        request = ExecRequest(
            language=Language.PYTHON, code=code.replace("@", token), memory_limit_mb=128, limits=limits,
            timeout=1.0 if name in ("hangs", "forks") else 60.0,
        )  # fmt: skip
        result = await self.backend.execute(request)
        if not broken:
            assert result.status in statuses, (name, result)
            assert result.stdout.startswith(token), (name, result)
        return f"{name}"

    async def cancelled(self, token: str, chance: float, broken: bool) -> str:
        """A program that is cancelled before, while or after it runs."""
        cancel = asyncio.Event()
        code = f"import time; print('{token}', flush=True); time.sleep({60 if chance < 0.7 else 0})"
        request = ExecRequest(language=Language.PYTHON, code=code, timeout=90)
        asyncio.get_running_loop().call_later(chance * 0.4, cancel.set)
        result = await self.backend.execute(request, cancel=cancel)
        if not broken:
            assert result.status in (Status.INTERRUPTED, Status.OK), result
            assert result.stdout.strip() in ("", token), result
        return f"cancelled ({result.status})"


@dataclass(frozen=True)
class Holdings:
    """What this process holds of the machine."""

    processes: int
    descriptors: int
    threads: int
    groups: int
    mounts: int
    folders: int

    @classmethod
    def now(cls, folder: Path) -> Holdings:
        """Look."""
        gc.collect()
        mine = f"sandbox-kernel-{os.getpid()}-"
        groups = [name for _, names, _ in os.walk("/sys/fs/cgroup") for name in names if name.startswith(mine)]
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        shared = [name for name in os.listdir("/dev/shm") if f"-{os.getpid()}-" in name]
        return cls(
            processes=len([pid for pid in tree(os.getpid()) if pid != os.getpid()]),
            descriptors=len(os.listdir("/proc/self/fd")),
            threads=len([thread for thread in threading.enumerate() if not thread.name.startswith("sandbox-run")]),
            groups=len(groups),
            mounts=sum("sandbox-kernel" in line or str(folder) in line for line in mounts),
            folders=len(os.listdir(folder)) + len(shared),
        )


def resident_kb() -> int:
    """Memory of this process now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def slope(points: list[tuple[int, int]]) -> float:
    """Kilobytes for each thousand executions: the line through the points, the first quarter (warming up) left out."""
    points = points[len(points) // 4 :]
    count = len(points)
    middle_x, middle_y = sum(x for x, _ in points) / count, sum(y for _, y in points) / count
    spread = sum((x - middle_x) ** 2 for x, _ in points)
    return 1000 * sum((x - middle_x) * (y - middle_y) for x, y in points) / spread if spread else 0.0


async def soak_all(soak: Soak, cache: Path, runs: int, concurrent: int, seconds: float) -> list[tuple[int, int]]:
    """Waves and faults until so many have run or the time is over; returns memory by number of executions."""
    began, memory, number = time.monotonic(), [(0, resident_kb())], 0
    size = max(8, min(200, runs // 8))
    while (soak.asked < runs or number < FAULTS) and time.monotonic() - began < seconds:
        await fault(soak, cache, number % FAULTS, size, concurrent)
        number += 1
        memory.append((soak.asked, resident_kb()))
        print(f"{soak.asked} executions, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    return memory


async def fault(soak: Soak, cache: Path, kind: int, size: int, concurrent: int) -> None:
    """One wave, with what breaks in it."""
    match kind:
        case 1:
            soak.counts["fault: spares killed"] += soak_faults.kill_spares(soak.backend, soak.dice)
            # One that is dying when it is handed out is a typed error: nothing of the program ran.
            await soak.wave(size, concurrent, broken=True)
        case 2:
            soak.counts["fault: cache files spoilt"] += soak_faults.spoil(cache, soak.dice)
        case 3:
            wave = asyncio.ensure_future(soak.wave(size, concurrent, broken=True))
            while not wave.done():
                await asyncio.wait([wave], timeout=0.3)
                soak.counts["fault: control groups removed"] += soak_faults.empty_groups()
            return await wave
        case 4:
            close_spares = asyncio.to_thread(soak_faults.kill_spares, soak.backend, random.Random(0))
            with soak_faults.without_bwrap():
                await close_spares
                await soak.wave(size, concurrent, broken=True)
            soak.counts["fault: bwrap gone"] += 1
        case 5:
            with soak_faults.without_descriptors(soak.dice.randrange(4, 40)):
                await soak.wave(size, concurrent, broken=True)
            soak.counts["fault: no descriptors"] += 1
        case 6:
            with soak_faults.neighbour(cache, 6) as other:
                await soak.wave(size, concurrent)
                said = await asyncio.to_thread(other.communicate)
            assert said[0] == "well\n", said
            soak.counts["fault: another host on the cache"] += 1
        case 7:
            assert await asyncio.to_thread(soak_faults.kill_a_host), "a killed host left processes"
            soak.counts["fault: host killed"] += 1
    return await soak.wave(size, concurrent)


def main() -> int:
    """Run the soak; the exit code is 0 when all was as expected and nothing is left."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--concurrent", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--short", action="store_true", help="each fault once, in half a minute")
    options = parser.parse_args()
    runs, minutes = (64, 1.0) if options.short else (options.runs, options.minutes)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="soak-") as made:
        folder = Path(made)
        os.chmod(folder, 0o755)
        soak_faults.own_bwrap(folder / "bin")
        (folder / "tmp").mkdir()
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder / "tmp")
        backend = backend_with(str(folder / "cache"))
        known = [str(language) for language in backend.available_languages()]
        spoken = [name for name in GOOD if name in known]
        soak = Soak(backend, random.Random(options.seed), spoken)
        asyncio.run(soak.wave(2, 2))
        close_all()
        shared_pool.cache_clear()
        before = Holdings.now(folder / "tmp")
        soak.backend = backend_with(str(folder / "cache"))
        memory = asyncio.run(soak_all(soak, folder / "cache", runs, options.concurrent, minutes * 60))
        close_all()
        after = Holdings.now(folder / "tmp")
    told = sum(count for label, count in soak.counts.items() if not label.startswith("fault"))
    print(f"{told} of {soak.asked} executions accounted for, seed {options.seed}, {time.monotonic() - began:.0f} s")
    print(f"languages: {', '.join(spoken)}")
    print(", ".join(f"{label} {count}" for label, count in sorted(soak.counts.items())))
    print(f"held before {before}, after {after}; memory {slope(memory):+.0f} KB per 1000 executions")
    left = [name for name in vars(after) if getattr(after, name) > getattr(before, name)]
    if left:
        print(f"left behind: {', '.join(left)}")
    return 1 if left or told != soak.asked else 0


if __name__ == "__main__":
    sys.exit(main())

"""Measures executions at a given concurrency: how many a second, and how long each. Used by ``bench_scaling``."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field

from benchmarks.library_peer import LibraryPeer
from sandbox_kernel import ExecRequest, Language, Sandbox
from sandbox_kernel.languages.recipe import recipe_of

Run = Callable[[], Awaitable[object]]


@dataclass
class Pace:
    """Results of one contender at one level: executions a second of each round, milliseconds of each, failures."""

    rates: list[float] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Contender:
    """One way to run the program.

    ``restock`` returns when spares are as before the first execution. A ``slow`` one runs only as many as the level
    needs.
    """

    run: Run
    restock: Callable[[], None] | None = None
    slow: bool = False

    def executions(self, level: int, count: int) -> int:
        """Return how many executions one turn at a level has."""
        return max(4, level) if self.slow else max(count, 2 * level)


def sandboxed(box: Sandbox, code: str) -> Contender:
    """Our sandbox; its time includes making the spares for later executions."""
    pool = box.backend._pool
    request = ExecRequest(language=Language.PYTHON, code=code, timeout=120)
    walls = box.backend.walls(request, recipe_of(Language.PYTHON))

    async def run() -> None:
        result = await box.arun(code, "python", timeout=120)
        assert result.ok, result

    def restock() -> None:
        while len(pool._kinds[walls].spares) < pool.size:
            time.sleep(0.001)

    return Contender(run, restock)


def library(peer: LibraryPeer) -> Contender:
    """A library peer, in a separate process."""

    async def run() -> None:
        await asyncio.wrap_future(peer.submit())

    return Contender(run)


def command(
    argv: list[str], cwd: str | None = None, env: Mapping[str, str] | None = None, *, slow: bool = False
) -> Contender:
    """A peer that is a program, started by asyncio."""

    async def run() -> None:
        child = await asyncio.create_subprocess_exec(
            *argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd, env=env
        )
        said = await child.communicate()
        assert child.returncode == 0, said

    return Contender(run, slow=slow)


async def turn(contender: Contender, level: int, count: int, pace: Pace) -> None:
    """Run ``count`` executions, ``level`` at a time. Failed ones are not counted."""
    turns = iter(range(count))

    async def one() -> None:
        for _ in turns:
            began = time.perf_counter()
            try:
                await contender.run()
            except Exception as error:  # any exception of a peer under load is a result
                pace.failures.append(str(error) or type(error).__name__)
            else:
                pace.times.append((time.perf_counter() - began) * 1e3)

    before, began = len(pace.times), time.perf_counter()
    await asyncio.gather(*(one() for _ in range(level)))
    if contender.restock is not None:
        contender.restock()
    pace.rates.append((len(pace.times) - before) / (time.perf_counter() - began))


def measure(
    contenders: Mapping[str, Contender], levels: Iterable[int], rounds: int, count: int
) -> dict[int, dict[str, Pace]]:
    """Measure every contender at every level, in turns."""
    found = {level: {name: Pace() for name in contenders} for level in levels}

    async def all_of_them() -> None:
        if sys.version_info < (3, 12):
            # No thread for each child process, as later versions of Python do by default.
            watcher = asyncio.PidfdChildWatcher()
            asyncio.get_event_loop_policy().set_child_watcher(watcher)
            watcher.attach_loop(asyncio.get_running_loop())
        for name in contenders:
            await turn(contenders[name], 2, 4, Pace())
        for _ in range(rounds):
            for level, paces in found.items():
                for name, pace in paces.items():
                    contender = contenders[name]
                    await turn(contender, level, contender.executions(level, count), pace)

    asyncio.run(all_of_them())
    return found

"""Runs thousands of mixed executions under faults. Is every result as expected, and is nothing left behind?

    python -m benchmarks.soak_executions [--runs 10000] [--concurrent 16] [--seed 1] [--minutes 15] [--short]

In each wave programs of all languages run at once: programs that succeed, fail, crash, hang, use too much memory, print
too much, or are cancelled at a random moment; sessions; and WebAssembly. Faults are made between and during waves
(``soak_waves.py``). Stops at the first unexpected result; else prints counts, what is left behind, and how the memory
of this process grew.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import soak_disk, soak_faults
from benchmarks.soak_holdings import Holdings, resident_mb, slope
from benchmarks.soak_programs import BAD, GOOD, backend_with, module, program
from benchmarks.soak_waves import WAVES, Place
from sandbox_kernel.backends.process import ProcessBackend, shared_pool
from sandbox_kernel.backends.wasm.store import WasmStore
from sandbox_kernel.backends.wasm.wasm_backend import WasmBackend
from sandbox_kernel.errors import SandboxError
from sandbox_kernel.jail.pool import close_all
from sandbox_kernel.model import ExecRequest, Language, Status
from sandbox_kernel.session.open_session import open_session

#: How often each kind of execution is chosen.
KINDS = {"good": 56, "bad": 26, "cancelled": 10, "session": 4, "wasm": 4}


@dataclass
class Soak:
    """One soak. ``counts`` holds the number of results of each kind."""

    backend: ProcessBackend
    wasm_backend: WasmBackend
    dice: random.Random
    languages: list[str]
    counts: collections.Counter[str] = field(default_factory=collections.Counter)
    asked: int = 0

    async def wave(self, size: int, concurrent: int, *, broken: bool = False) -> None:
        """Run this many at once. During a fault (``broken``) an error of our types is a valid result too."""
        places = asyncio.Semaphore(concurrent)
        kinds = self.dice.choices(list(KINDS), list(KINDS.values()), k=size)
        jobs = [self.one(kind, f"t{self.dice.randrange(10**9)}", self.dice.random(), broken) for kind in kinds]

        async def bounded(job: asyncio.Future[str]) -> str:
            async with places:
                return await job

        self.asked += size
        for label in await asyncio.gather(*(bounded(job) for job in jobs)):  # type: ignore[arg-type]
            self.counts[label] += 1

    async def one(self, kind: str, token: str, chance: float, broken: bool) -> str:
        """Run and check one execution; return its kind of result."""
        try:
            return await getattr(self, kind)(token, chance, broken)
        except SandboxError as error:
            assert broken, f"{type(error).__name__}: {error}"
            return f"refused while broken ({type(error).__name__})"

    async def good(self, token: str, chance: float, broken: bool) -> str:
        """Run a program that prints its token and ends."""
        language = self.languages[int(chance * len(self.languages))]
        request, wanted = program(language, token if chance < 0.5 else f"same-{language}")
        result = await self.backend.execute(request)
        if broken and not result.ok:
            return f"ended while broken ({result.status})"
        assert (result.status, result.stdout) == (Status.OK, wanted), result
        return f"good {language}"

    async def bad(self, token: str, chance: float, broken: bool) -> str:
        """Run a program that prints its token and then fails."""
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
        """Run a program and cancel it before, while or after it runs."""
        cancel = asyncio.Event()
        code = f"import time; print('{token}', flush=True); time.sleep({60 if chance < 0.7 else 0})"
        request = ExecRequest(language=Language.PYTHON, code=code, timeout=90)
        asyncio.get_running_loop().call_later(chance * 0.4, cancel.set)
        result = await self.backend.execute(request, cancel=cancel)
        if not broken:
            assert result.status in (Status.INTERRUPTED, Status.OK), result
            assert result.stdout.strip() in ("", token), result
        return f"cancelled ({result.status})"

    async def session(self, token: str, chance: float, broken: bool) -> str:
        """Open a session, let a cell be ended, and check that its variables are still there."""

        def cells() -> str:
            with open_session(self.backend, memory_mb=256) as session:
                session.run(f"said = '{token}'", timeout=60)
                lost = session.run("said = ''\nwhile True: pass", timeout=0.2)
                kept = session.run("print(said)", timeout=60)
            if not broken:
                assert (lost.status, lost.rolled_back) == (Status.TIMEOUT, True), lost
                assert kept.stdout == f"{token}\n", kept
            return f"session ({kept.status})"

        return await asyncio.to_thread(cells)

    async def wasm(self, token: str, chance: float, broken: bool) -> str:
        """Run a wasm module that prints a word; one of a few, because compiled modules are kept in memory."""
        said = f"word{int(chance * 20)}"
        request = ExecRequest(language=Language.WASM, code=module(said), timeout=60)
        result = await self.wasm_backend.execute(request)
        if not broken:
            assert (result.status, result.stdout) == (Status.OK, f"{said}\n"), result
        return f"wasm ({result.status})"


async def soak_all(soak: Soak, place: Place, runs: int, concurrent: int, seconds: float) -> list[tuple[int, float]]:
    """Run waves until there were enough executions or time is up; return memory by number of executions."""
    began, memory, number = time.monotonic(), [(0, resident_mb())], 0
    size = max(6, min(200, runs // len(WAVES)))
    while (soak.asked < runs or number < len(WAVES)) and time.monotonic() - began < seconds:
        name, wave = list(WAVES.items())[number % len(WAVES)]
        soak.counts[f"fault: {name}"] += await wave(soak, place, size, concurrent)
        number += 1
        memory.append((soak.asked, resident_mb()))
        told = f"{soak.asked} executions, {time.monotonic() - began:.0f} s, {memory[-1][1]:.1f} MB: {name}"
        print(told, file=sys.stderr, flush=True)
    return memory


@contextlib.contextmanager
def places() -> Iterator[Place]:
    """Make the folders of this soak, on their own disk where possible."""
    with tempfile.TemporaryDirectory(prefix="soak-") as made:
        folder = Path(made)
        os.chmod(folder, 0o755)
        soak_faults.own_bwrap(folder / "bin")
        with soak_disk.own_disk(folder / "disk") as disk:
            place = Place(folder / "disk" / "tmp", folder / "disk" / "cache", folder / "disk" / "wasm", disk)
            place.temporary.mkdir()
            os.environ["TMPDIR"] = tempfile.tempdir = str(place.temporary)
            yield place


def main() -> int:
    """Run the soak; returns 0 if all was as expected and nothing is left."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--concurrent", type=int, default=16)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=15.0, help="begin no wave after so long")
    parser.add_argument("--short", action="store_true", help="each fault once, with a few executions")
    options = parser.parse_args()
    runs, minutes = (60, 1.5) if options.short else (options.runs, options.minutes)
    began = time.monotonic()
    with places() as place:
        backend = backend_with(str(place.cache))
        known = [str(language) for language in backend.available_languages()]
        spoken = [name for name in GOOD if name in known]
        wasm = WasmBackend(store=WasmStore(str(place.wasm)))
        soak = Soak(backend, wasm, random.Random(options.seed), spoken)
        asyncio.run(soak.wave(2, 2))
        close_all()
        shared_pool.cache_clear()
        before = Holdings.now(place.temporary)
        soak.backend, soak.wasm_backend = backend_with(str(place.cache)), WasmBackend(store=WasmStore(str(place.wasm)))
        memory = asyncio.run(soak_all(soak, place, runs, options.concurrent, minutes * 60))
        close_all()
        after = Holdings.now(place.temporary)
    told = sum(count for label, count in soak.counts.items() if not label.startswith("fault"))
    print(f"{told} of {soak.asked} executions accounted for, seed {options.seed}, {time.monotonic() - began:.0f} s")
    print(f"languages: {', '.join(spoken)}")
    print(", ".join(f"{label} {count}" for label, count in sorted(soak.counts.items())))
    print(f"held before {before}, after {after}")
    print(
        f"resident memory of this process: {memory[0][1]:.1f} MB at first, {memory[-1][1]:.1f} MB at last, slope "
        f"{slope(memory):+.2f} MB per 1000 executions (least squares, {len(memory)} samples, first quarter left out)"
    )
    left = [name for name in vars(after) if getattr(after, name) > getattr(before, name)]
    if left:
        print(f"left behind: {', '.join(left)}")
    return 1 if left or told != soak.asked else 0


if __name__ == "__main__":
    sys.exit(main())

"""Every goal of the speed work in one table: what was measured beside what, and whether it is reached.

    python -m benchmarks.bench_speed [--rounds 20] [--notebooks FOLDER]

Ratios come from one run in which both sides take turns; run it on a machine that does nothing else. The children use
compiled modules, as an installed package does. Cells late in a session have a table of their own.
"""

from __future__ import annotations

import argparse
import asyncio
import compileall
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from benchmarks import speed_kernels
from benchmarks.kernel_peers import REPOSITORY
from benchmarks.measure import machine
from benchmarks.speed_row import HEAD, Row
from sandbox_kernel import ExecRequest, Language, ProcessBackend, ProcessConfig, Sandbox

LIMIT_S = 0.1
AT_ONCE = 16
#: Libraries of the session, and the goal in milliseconds.
HEAPS = {"small heap": ("1", 3.0), "pandas": ("import pandas", 5.0)}
#: Why a goal is not reached, by its rows. Times of segments: the fastest of many turns, on two busy cores.
REASONS = {
    "small cells": (
        "a cell runs about 1200 Python functions in the kernel's process and 800 in the worker, and is followed "
        "by a checkpoint, which ipykernel does not make; the CPU of the kernel's own process is that of "
        "ipykernel's"
    ),
    "20 cells back to back": (
        "with these libraries the worker has 1320 mappings, 1190 of them of files, and 110 MB. Its fork takes 3 "
        "to 5 ms, a cell after one 2 ms instead of 0.2 (475 pages are copied), and the end of a copy 3 to 5 ms, "
        "which nobody waits for unless the cores are busy. Half of the fork goes with the pages, half with the "
        "mappings"
    ),
    "kernel start": (
        "what a sandbox needs is imported, then bubblewrap, Python and IPython start one after the other, while "
        "the protocol is imported. A seventh of all imports is asyncio, which the first part names too"
    ),
    "idle kernel": (
        "of 63 MB, where ipykernel has 37, the kernel's process has 30, the gate 10 (6 of its own: pages that the"
        " worker has written to since it was forked), the worker 8 and its two checkpoints 15"
    ),
    "public notebooks": ("the start, and cells back to back"),
    "rollback": (
        "three processes run one after the other: the one that is ended, the gate that restores the folder, and "
        "the checkpoint that wakes and copies the pages that it touches"
    ),
    "first run and command line": (
        "bubblewrap and then a Python start, while `python3` is one start; the command line imports about 75 "
        "modules of ours before"
    ),
    "CPU of the host": (
        "1260 calls of functions on the calling thread; on others the next sandbox is made and the control groups"
        " of the last one are removed"
    ),
    "runs a second": (
        "a fresh run takes about 12 ms of CPU, most of it in the jail (copied pages, namespaces) and not in the "
        "host, so sixteen cores cannot do 1500 a second"
    ),
}
NOT_REACHED = "\n".join(["What is not reached, and why:", "", *(f"- {row}: {why}." for row, why in REASONS.items())])


def cpu_of(words: Sequence[str]) -> tuple[float, float]:
    """Run a program and return its seconds, by the clock and of CPU, with those of the processes that it waited for."""
    quiet = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    began = time.perf_counter()
    pid = os.posix_spawn(words[0], words, os.environ, file_actions=quiet)
    usage = os.wait4(pid, 0)[2]
    return time.perf_counter() - began, usage.ru_utime + usage.ru_stime


def fresh_runs(rounds: int) -> list[Row]:
    """A fresh ``print(1)`` against ``python3``: warm, without a template, and by the command line."""
    plain = [sys.executable, "-c", "print(1)"]
    line = [sys.executable, "-m", "sandbox_kernel", "run", "-q", "-c", "print(1)"]
    request = ExecRequest(language=Language.PYTHON, code="print(1)", timeout=60)
    bare, warm, first, command, cpu = [], [], [], [], []
    bare_backend = ProcessBackend(ProcessConfig(pool_size=0, templates=False))
    with Sandbox() as box:
        box.run("print(1)")
        for _ in range(rounds):
            bare.append(cpu_of(plain))
            command.append(cpu_of(line))
            first.append(_timed(partial(bare_backend.run, request)))
            while box.backend._pool.spares() < 1:
                time.sleep(0.001)
            warm.append(_timed(partial(box.run, "print(1)")))
        for _ in range(rounds):
            began = time.process_time()
            box.run("print(1)")
            cpu.append(time.process_time() - began)
    clock = [seconds for seconds, _ in bare]
    by_cpu = statistics.median(used for _, used in command) / statistics.median(used for _, used in bare)
    by_clock = statistics.median(seconds for seconds, _ in command) / statistics.median(clock)
    return [
        Row.ratio("warm fresh `print(1)` ÷ python3", warm, clock, goal=0.22),
        Row.ratio("first run of a process, without a template ÷ python3", first, clock, goal=1.5),
        Row('`sandbox-kernel run -c "print(1)"` ÷ python3', f"by CPU time {by_cpu:.1f}", f"{by_clock:.1f}", 6),
        Row("CPU of the host for a fresh run", "this process", f"{statistics.median(cpu) * 1e3:.2f}", 0.8, "ms"),
    ]


def _timed(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def rollbacks(rounds: int) -> list[Row]:
    """What a rollback takes beyond the time limit that caused it."""
    rows = []
    for heap, (code, goal) in HEAPS.items():
        what = f"rollback beyond the limit, {heap}"
        with Sandbox() as box, box.session() as session:
            if not session.run(code, timeout=60).ok:
                rows.append(Row.absent(what, goal, "not installed"))
                continue
            beyond = []
            for _ in range(rounds):
                time.sleep(0.02)  # as a person would: the checkpoint is made meanwhile
                began = time.perf_counter()
                session.run("while True: pass", timeout=LIMIT_S)
                beyond.append((time.perf_counter() - began - LIMIT_S) * 1e3)
        rows.append(Row(what, f"fastest {min(beyond):.2f} ms", f"{statistics.median(beyond):.2f}", goal, "ms"))
    return rows


def many_at_once(count: int) -> Row:
    """Runs a second, this many at once."""
    what = f"runs a second, {AT_ONCE} at once"

    async def rate() -> float:
        backend = ProcessBackend()
        gate = asyncio.Semaphore(AT_ONCE)

        async def one() -> None:
            async with gate:
                await backend.execute(ExecRequest(language=Language.PYTHON, code="print(1)", timeout=60))

        # Runners are started one by one while it is crowded.
        await asyncio.gather(*(one() for _ in range(AT_ONCE * 40)))
        began = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(count)))
        return count / (time.perf_counter() - began)

    cores = len(os.sched_getaffinity(0))
    plain = _plain_rate(count // 4)
    return Row(
        what, f"{cores} cores; plain python3 {plain:.0f}", f"{asyncio.run(rate()):.0f}", 1500, "/s", at_least=True
    )


def _plain_rate(count: int) -> float:
    began = time.perf_counter()
    waiting: list[subprocess.Popen[bytes]] = []
    for _ in range(count):
        if len(waiting) == AT_ONCE:
            waiting.pop(0).wait()
        waiting.append(subprocess.Popen([sys.executable, "-c", "print(1)"], stdout=subprocess.DEVNULL))
    for program in waiting:
        program.wait()
    return count / (time.perf_counter() - began)


def late_cells(count: int, parts: int = 4) -> str:
    rows = ["### Cells late in a session", "", "| cells before | CPU of the host, ms a cell |", "|---|---|"]
    with Sandbox() as box, box.session() as session:
        session.run("pass")
        for part in range(parts):
            began = time.process_time()
            for _ in range(count // parts):
                session.run("pass")
            used = (time.process_time() - began) / (count // parts) * 1e3
            rows.append(f"| {part * count // parts} | {used:.2f} |")
    return "\n".join(rows) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--cells", type=int, default=2000)
    parser.add_argument("--notebooks", type=Path, help="a folder of public notebooks")
    options = parser.parse_args()
    compileall.compile_dir(REPOSITORY / "sandbox_kernel", quiet=2)
    rounds = options.rounds
    print(f"{machine()}\n\n### Every goal\n\n{HEAD}")
    for rows in (
        speed_kernels.small_cells(rounds * 3),
        [speed_kernels.bursts(max(3, rounds // 4))],
        speed_kernels.starts(max(3, rounds // 3)),
        [speed_kernels.notebooks(options.notebooks, 1)],
        rollbacks(rounds),
        fresh_runs(rounds),
        [many_at_once(rounds * 10)],
    ):
        print("\n".join(row.markdown() for row in rows), flush=True)
    print(f"\n{NOT_REACHED}\n")
    print(late_cells(options.cells))


if __name__ == "__main__":
    main()

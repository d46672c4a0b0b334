"""The goals of the speed work that no other benchmark prints, as ratios to ``python3`` of the same run.

    python -m benchmarks.bench_speed [--rounds 20]

CPU time of the command line, of this process for each run, what a rollback takes beyond the limit, and whether late
cells of a session take longer. ``bench_start`` has the fresh runs, ``bench_kernel`` the kernels, ``many_at_once`` the
runs on many cores.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Sequence

from benchmarks.measure import machine
from sandbox_kernel import Sandbox

LIMIT_S = 0.1
HEAPS = {"small": "", "pandas": "import pandas"}


def cpu_of(words: Sequence[str]) -> tuple[float, float]:
    """Run a program and return its seconds, by the clock and of CPU, with those of the processes that it waited for."""
    quiet = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    began = time.perf_counter()
    pid = os.posix_spawn(words[0], words, os.environ, file_actions=quiet)
    usage = os.wait4(pid, 0)[2]
    return time.perf_counter() - began, usage.ru_utime + usage.ru_stime


def command_line(rounds: int) -> str:
    cases = {
        "python3 -c": [sys.executable, "-c", "print(1)"],
        "sandbox-kernel run -c": [sys.executable, "-m", "sandbox_kernel", "run", "-q", "-c", "print(1)"],
    }
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, words in cases.items():
            seen[name].append(cpu_of(words))
    rows = ["### The command line", "", "| | ms | CPU ms | ÷ by the clock | ÷ by CPU |", "|---|---|---|---|---|"]
    medians = {name: [statistics.median(column) * 1e3 for column in zip(*seen[name], strict=True)] for name in cases}
    base = medians["python3 -c"]
    for name, (clock, cpu) in medians.items():
        rows.append(f"| {name} | {clock:.1f} | {cpu:.1f} | {clock / base[0]:.1f} | {cpu / base[1]:.1f} |")
    return "\n".join(rows) + "\n"


def host_cpu(rounds: int) -> str:
    with Sandbox() as box:
        box.run("print(1)")
        began = time.process_time()
        for _ in range(rounds):
            box.run("print(1)")
        used = (time.process_time() - began) / rounds * 1e3
    return f"CPU of the host's process for a fresh run, the making of the next sandbox included: {used:.2f} ms.\n"


def rollback(rounds: int) -> str:
    rows = ["### A rollback, beyond the limit that caused it", "", "| heap | median ms | min ms |", "|---|---|---|"]
    for heap, code in HEAPS.items():
        with Sandbox() as box, box.session() as session:
            if not session.run(code or "1", timeout=60).ok:
                rows.append(f"| {heap} | not installed | |")
                continue
            beyond = []
            for _ in range(rounds):
                time.sleep(0.02)  # as a person would: the checkpoint is made meanwhile
                began = time.perf_counter()
                session.run("while True: pass", timeout=LIMIT_S)
                beyond.append((time.perf_counter() - began - LIMIT_S) * 1e3)
        rows.append(f"| {heap} | {statistics.median(beyond):.2f} | {min(beyond):.2f} |")
    return "\n".join(rows) + "\n"


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
    options = parser.parse_args()
    print(f"{machine()}\n")
    print(command_line(options.rounds))
    print(host_cpu(options.rounds * 5))
    print(rollback(options.rounds))
    print(late_cells(options.cells))


if __name__ == "__main__":
    main()

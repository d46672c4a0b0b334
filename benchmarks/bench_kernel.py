"""Compares notebook kernels in one run. Cells run in turns, so that load on the machine affects all kernels.

    python -m benchmarks.bench_kernel --rounds 100

Prints Markdown: medians, 95th percentiles and the ratio to ipykernel, whether output was lost, and what could not be
compared. A cell is done when both its reply and the idle message have arrived; its output is always checked.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.bench_cases import (
    MANY,
    Contestant,
    contestants,
    run_cells,
    run_hurried_cells,
    run_interrupts,
    run_many,
    run_output,
    run_starts,
)
from benchmarks.bench_samples import Samples
from benchmarks.kernel_peers import DEFAULT_SCRATCH, Field, find_kernels
from benchmarks.markdown_section import table
from benchmarks.measure import machine

CASES = {
    "start": "start to first reply",
    "memory": "memory (PSS)",
    "empty": "an empty cell",
    "nothing": "`pass`",
    "print": "`print(1)`",
    "hurried": "`print(1)`, no pause",
    "many": f"each of {MANY} sent at once",
    "interrupt": "interrupt",
    "output": "10 MB of output",
}
NOT_COMPARABLE = (
    "deno runs TypeScript and bash_kernel runs Bash: the programs do the same, the languages do not.",
    "sandbox runs cells behind walls, the others in their own process; `--fresh` takes new walls for each cell.",
    "sandbox keeps 1 MB of each stream unless told otherwise; here it was told `--output 16M`.",
    "Small cells come after a pause of 50 ms, as a person's do; those sent at once (`print(1)`) have none.",
    "start ends with the reply to a first `print(1)`; what it printed may still be under way.",
)


def markdown(field: Field, everyone: Sequence[Contestant], samples: Samples, where: str) -> str:
    """Return the table, with one row for each kernel, and notes for reading it."""
    rows = [[who.title, *(samples.text(case, who.title) for case in CASES)] for who in everyone]
    versions = ", ".join(f"{kernel.label} {kernel.version}" for kernel in field.kernels)
    notes = [
        f"Median / 95th percentile (ratio of the medians to {samples.baseline}).",
        f"{where}; {versions}.",
        *NOT_COMPARABLE,
        *(f"Not measured: {reason}." for reason in field.absent),
    ]
    return table(["", *CASES.values()], rows) + "\n\n" + "\n".join(f"- {note}" for note in notes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=100, help="how often each small cell runs")
    parser.add_argument("--scratch", type=Path, default=DEFAULT_SCRATCH, help="where other kernels are installed")
    parser.add_argument("--no-install", action="store_true", help="use only what is installed already")
    options = parser.parse_args()
    where = machine()
    field = find_kernels(options.scratch, install=not options.no_install)
    everyone = contestants(field.kernels)
    samples = Samples(baseline="ipykernel")
    for group, rounds in (
        (run_starts, max(3, options.rounds // 10)),
        (run_cells, options.rounds),
        (run_hurried_cells, options.rounds),
        (run_many, max(3, options.rounds // 10)),
        (run_interrupts, max(3, options.rounds // 10)),
        (run_output, max(2, options.rounds // 30)),
    ):
        print(f"{group.__name__}: {rounds} rounds", file=sys.stderr)
        group(everyone, samples, rounds=rounds)
    text = markdown(field, everyone, samples, where)
    print(text)


if __name__ == "__main__":
    main()

"""What does it cost to work on a folder of 20 000 files, copy-on-write?

    python benchmarks/bench_here.py [--files 20000] [--runs 40]

Runs and cells with and without ``here``, in turns; then the list of 100 changed files, and the three goals. Compare
rows of one run. The tables of CPU time are what the host's process itself spends, which a busy machine changes least;
the kernel's work in the jail (mounting the layer) is only in the other tables.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.measure import interleaved, machine, table
from sandbox_kernel import Sandbox

#: Milliseconds of each turn, by case.
Timings = Mapping[str, list[float]]

CHANGE = "for n in range(100): open(f'folder000/new{n}', 'w').write(str(n))"


def fill(top: Path, files: int) -> None:
    """Make the files, a hundred to a folder."""
    for number in range(files):
        path = top / f"folder{number // 100:03}" / f"file{number % 100:02}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"%010d" % number)


def cpu(cases: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Return the milliseconds of CPU time that the host's process spends on each case, in turns."""
    spent: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, case in cases.items():
            began = time.process_time()
            case()
            spent[name].append((time.process_time() - began) * 1000)
    return spent


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=40)
    given = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as made, tempfile.TemporaryDirectory() as place:
        fill(Path(made), given.files)
        with Sandbox() as plain, Sandbox() as here:
            here.work_on(made, keep_in=place)  # as a notebook does: changes are written to disk after each cell
            named = f"here, {given.files} files"
            runs = {"plain": lambda: plain.run("1"), named: lambda: here.run("1")}
            for case in runs.values():
                case()
                case()
            fresh = interleaved(runs, given.runs)
            print(table("Warm fresh run", fresh))
            print(table("Warm fresh run: CPU time of the host", cpu(runs, given.runs)))
            with plain.session() as one, here.session() as two:
                cells = {"plain": lambda: one.run("1"), named: lambda: two.run("1")}
                cell = interleaved(cells, given.runs)
                print(table("A cell", cell))
                print(table("A cell: CPU time of the host", cpu(cells, given.runs)))
            here.run(CHANGE)
            changed = {"100 changed files": here.diff, "their patch": here.patch}
            listed = interleaved(changed, given.runs)
            print(table("The list of changes", listed))
    print(goals(fresh, cell, listed["100 changed files"]))


def goals(fresh: Timings, cell: Timings, listed: list[float]) -> str:
    """Return what was asked of the layer beside what was measured: medians of wall-clock times, in milliseconds."""
    rows = [("a warm fresh run with here takes longer by", _more(fresh), 2.0), ("a cell with here", _more(cell), 1.0)]
    rows.append(("the list of 100 changed files takes", statistics.median(listed), 10.0))
    lines = [f"| {what} | {found:.2f} | {most:g} |" for what, found, most in rows]
    return "\n".join(["### Goals", "", "| | ms | at most |", "|---|---|---|", *lines])


def _more(timings: Timings) -> float:
    """Return by how much the second case is slower, as the median of the differences of each turn."""
    plain, here = timings.values()
    return statistics.median(after - before for before, after in zip(plain, here, strict=True))


if __name__ == "__main__":
    main()

"""What does it cost to work on a folder of 20 000 files, copy-on-write?

    python benchmarks/bench_here.py [--files 20000] [--runs 40]

Runs and cells with and without ``here``, in turns; then the list of 100 changed files. Compare rows of one run. The
tables of CPU time are what the host's process itself spends, which a busy machine changes least; the kernel's work in
the jail (mounting the layer) is only in the other tables.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.measure import interleaved, machine, table
from sandbox_kernel import Sandbox

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
    with tempfile.TemporaryDirectory() as made:
        fill(Path(made), given.files)
        with Sandbox() as plain, Sandbox(here=made) as here:
            runs = {"plain": lambda: plain.run("1"), f"here, {given.files} files": lambda: here.run("1")}
            for case in runs.values():
                case()
                case()
            print(table("Warm fresh run", interleaved(runs, given.runs)))
            print(table("Warm fresh run: CPU time of the host", cpu(runs, given.runs)))
            with plain.session() as one, here.session() as two:
                cells = {"plain": lambda: one.run("1"), f"here, {given.files} files": lambda: two.run("1")}
                print(table("A cell", interleaved(cells, given.runs)))
                print(table("A cell: CPU time of the host", cpu(cells, given.runs)))
            here.run(CHANGE)
            changed = {"100 changed files": here.diff, "their patch": here.patch}
            print(table("The list of changes", interleaved(changed, given.runs)))


if __name__ == "__main__":
    main()

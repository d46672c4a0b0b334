"""How long does it take to find what a program changed in a work folder of 10 000 files?

    python benchmarks/bench_diff.py [--files 10000] [--runs 15] [--folder /dev/shm]

Prints median and p95 in milliseconds. Variants run in turns, so that load on the machine affects all of them; compare
the ratios. The baseline hashes every file before and after.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from sandbox_kernel.workspace import changes
from sandbox_kernel.workspace.changes import Snapshot, compare, snapshot
from sandbox_kernel.workspace.transfer import PackedFiles
from sandbox_kernel.workspace.tree.rooted import Rooted

FOLDERS = 100
CHANGED = 100


def fill(top: Path, files: int) -> list[Path]:
    made = []
    for number in range(files):
        path = top / f"folder{number % FOLDERS:03}" / f"file{number:05}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"%010d" % number * 100)
        made.append(path)
    return made


def hash_everything(top: Path) -> dict[str, bytes]:
    found = {}
    for folder, _, names in os.walk(top):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                found[path] = hashlib.sha256(file.read()).digest()
    return found


def timed(act: Callable[[], object]) -> float:
    start = time.perf_counter()
    act()
    return (time.perf_counter() - start) * 1e3


def p95(times: list[float]) -> float:
    return sorted(times)[math.ceil(0.95 * len(times)) - 1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--folder", default=None, help="where the files are made")
    options = parser.parse_args()
    rows: dict[str, list[float]] = {}

    def note(name: str, act: Callable[[], object]) -> None:
        rows.setdefault(name, []).append(timed(act))

    with tempfile.TemporaryDirectory(dir=options.folder) as base:
        top, out = Path(base, "work"), Path(base, "out")
        top.mkdir()
        out.mkdir()
        made = fill(top, options.files)
        with Rooted.at(top) as work, Rooted.at(out) as artefacts:
            looks: list[Snapshot] = []
            for run in range(options.runs):
                time.sleep(2 * changes.TICK_NS / 1e9)  # until the last round's files no longer count as new
                note("hash every file, one look", lambda: hash_everything(top))
                looks.clear()
                note("one look", lambda: looks.append(snapshot(work)))
                for path in made[run :: max(1, options.files // CHANGED)][:CHANGED]:
                    path.write_bytes(b"changed in run %d" % run)
                note("second look, 100 files just changed", lambda: looks.append(snapshot(work, since=looks[0])))
                note("compare the two looks", lambda: compare(*looks))
                note("pack for a sandbox (names and sizes)", lambda: PackedFiles(work))
            artefacts.put_tree(work.walk(), work)
            note("clear a folder of so many files (once)", artefacts.clear)
    yardstick = statistics.median(rows["hash every file, one look"])
    print(f"{options.files} files in {FOLDERS} folders, {options.runs} runs, {platform.platform()}")
    print(f"{'':44}{'median ms':>10}{'p95 ms':>10}{'ratio':>8}")
    for name, times in rows.items():
        median = statistics.median(times)
        print(f"{name:44}{median:10.1f}{p95(times):10.1f}{median / yardstick:8.2f}")


if __name__ == "__main__":
    main()

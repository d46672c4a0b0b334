"""Runs the benchmarks, one after the other: ``make bench``, or ``python -m benchmarks SECTION …`` for some.

What each prints goes to ``artifacts/benchmarks/SECTION.md``, with its date, machine and plots. ``--write`` puts
one line for each question into docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import datetime
import shlex
import subprocess
import sys
from pathlib import Path

from benchmarks.markdown_section import replace_section, section_of, table
from benchmarks.measure import machine
from benchmarks.page_plots import draw, with_pictures
from benchmarks.results import HEAD, result_rows

ROOT = Path(__file__).resolve().parents[1]
ARTIFACTS = ROOT / "artifacts" / "benchmarks"
MARKERS = ("<!-- results -->", "<!-- /results -->")

#: The command of each benchmark. What needs files of others is run by hand, and its output put beside those of these.
SECTIONS = {
    "start": "python -m benchmarks.bench_start --rounds 40",
    "speed": "python -m benchmarks.bench_speed --rounds 20",
    "scaling": "python -m benchmarks.bench_scaling --rounds 3",
    "kernel": "python -m benchmarks.bench_kernel --rounds 100",
    "languages": "python -m benchmarks.bench_languages --rounds 5",
    "diff": "python benchmarks/bench_diff.py --files 10000 --runs 15",
    "here": "python -m benchmarks.bench_here",
    "network": "python -m benchmarks.bench_network --rounds 200 --megabytes 200",
    "frames": "python -m benchmarks.bench_frames --rounds 2",
    "output": "python -m benchmarks.bench_output --megabytes 512 --rounds 5",
    "cleaning": "python -m benchmarks.bench_cleaning",
    "memory": "python -m benchmarks.bench_memory --rounds 7",
    "report": "python -m benchmarks.bench_report --rounds 5",
    "functions": "python -m benchmarks.bench_functions",
    "volume": "python -m benchmarks.bench_volume",
    "agent": "python -m benchmarks.bench_agent",
    "session": "python -m benchmarks.bench_session",
    "wasm": "python -m benchmarks.bench_wasm --rounds 10",
    "wrapped": "python -m benchmarks.bench_wrapped",
    "soak_sessions": "python -m benchmarks.soak_sessions --minutes 16",
    "soak_executions": "python -m benchmarks.soak_executions --minutes 8",
}


def run(name: str) -> str | None:
    """Run a benchmark and return its output; None if it failed. It prints the reason itself."""
    print(f"\n## {name}: {SECTIONS[name]}\n", flush=True)
    lines = []
    argv = [sys.executable, *shlex.split(SECTIONS[name])[1:]]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    return "".join(lines) if process.returncode == 0 else None


def keep(name: str, told: str, folder: Path = ARTIFACTS) -> None:
    """Write what a benchmark printed, and its plots, into a folder."""
    (folder / "plots").mkdir(parents=True, exist_ok=True)
    for file, picture in draw(name, told).items():
        (folder / "plots" / file).write_text(picture)
    (folder / f"{name}.md").write_text(with_pictures(name, told, "plots"))


def write(page: Path, folder: Path = ARTIFACTS) -> None:
    """Put the results of all benchmarks whose output lies in the folder into the page; other lines stay."""
    printed = {path.stem: path.read_text() for path in folder.glob("*.md")}
    rows = result_rows(section_of(page, *MARKERS), printed)
    replace_section(page, *MARKERS, table(list(HEAD), rows))


def main() -> int:
    """Run the chosen benchmarks and print which failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="SECTION", help=f"one of: {', '.join(SECTIONS)} (default: all)")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the results into this page")
    parser.add_argument("--no-run", action="store_true", help="run nothing; take what lies in artifacts/benchmarks")
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in SECTIONS]:
        parser.error(f"no section {unknown[0]!r}; there are: {', '.join(SECTIONS)}")
    failed = []
    for name in () if options.no_run else options.names or SECTIONS:
        printed = run(name)
        if printed is None:
            failed.append(name)
        else:
            keep(name, f"{datetime.date.today().isoformat()} · {machine()}\n\n{printed}")
    if options.write:
        write(options.write)
    if failed:
        print(f"\nfailed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

"""Runs every benchmark of docs/benchmarks.md, one after the other: ``make bench``.

The page is the list of benchmarks: each section names a command and has a place for its output, so that every number on
the page can be reproduced by the command next to it.
"""

from __future__ import annotations

import argparse
import datetime
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.markdown_section import replace_section, section_of
from benchmarks.measure import machine
from benchmarks.page_plots import draw, with_pictures

PAGE = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"
END = "<!-- /bench -->"
_SECTION = re.compile(r"```\n(python [^\n]+)\n```\n\n<!-- bench:(\w+) -->")


@dataclass(frozen=True)
class Section:
    """A benchmark of the page."""

    name: str
    command: str


def sections(page: str) -> list[Section]:
    """Return the benchmarks of the page, in its order."""
    return [Section(name, command) for command, name in _SECTION.findall(page)]


def run(section: Section) -> str | None:
    """Run a benchmark and return its output; None if it failed. It prints the reason itself."""
    print(f"\n## {section.name}: {section.command}\n", flush=True)
    lines = []
    argv = [sys.executable, *shlex.split(section.command)[1:]]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=PAGE.parents[1]) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    return "".join(lines) if process.returncode == 0 else None


def put(page: Path, name: str, told: str) -> None:
    """Write a section into the page, and its plots next to the page."""
    folder = page.parent / "plots"
    for file, picture in draw(name, told).items():
        folder.mkdir(exist_ok=True)
        (folder / file).write_text(picture)
    replace_section(page, f"<!-- bench:{name} -->", END, with_pictures(name, told, folder.name))


def main() -> int:
    """Run the chosen benchmarks and print which failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    known = {section.name: section for section in sections(PAGE.read_text())}
    parser.add_argument("names", nargs="*", metavar="SECTION", help=f"one of: {', '.join(known)} (default: all)")
    parser.add_argument(
        "--write", type=Path, metavar="FILE", help="put what is printed between the markers of this page"
    )
    parser.add_argument(
        "--draw", type=Path, metavar="FILE", help="run nothing; draw the plots anew from the tables of this page"
    )
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in known]:
        parser.error(f"no section {unknown[0]!r}; there are: {', '.join(known)}")
    if options.draw:
        for name in options.names or known:
            put(options.draw, name, section_of(options.draw, f"<!-- bench:{name} -->", END))
        return 0
    failed = []
    for name in options.names or known:
        printed = run(known[name])
        if printed is None:
            failed.append(name)
        elif options.write:
            told = f"{datetime.date.today().isoformat()} · {machine()}\n\n{printed}"
            put(options.write, name, told)
    if failed:
        print(f"\nfailed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

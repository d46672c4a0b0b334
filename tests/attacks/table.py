"""Runs every test of an attack and writes what they saw into ``docs/security.md``: ``python -m tests.attacks.table [RECORD]``.

Nothing here is typed by hand: how each attack ended comes from the record that the tests leave
(``SANDBOX_KERNEL_ATTACK_RECORD``). An attack that was not held, or not tried where it must be, is a cell that says so,
and the exit code is 1.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.markdown_section import replace_section, table
from tests.attacks.titles import LINES, places

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "security.md"
MARKERS = ("<!-- attacks: begin -->", "<!-- attacks: end -->")
PLACES = ("bubblewrap", "pool", "landlock", "wasm", "session", "kernel", "network", "host")
Row = dict[str, str]


def record() -> list[Row]:
    """Run the tests and read what they wrote; or read what another run has written, if its record is named."""
    if len(sys.argv) > 1:
        known: list[Row] = json.loads(Path(sys.argv[1]).read_text())
        return known
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "attacks.json"
        tests = sorted(str(item) for item in (ROOT / "tests").iterdir() if item.name != "__pycache__")
        # The driver of the browser leaves an event loop that runs: whoever comes later cannot have one.
        tests.sort(key=lambda path: path.endswith("browser"))
        tests = [path for path in tests if os.path.isdir(path) or os.path.basename(path).startswith("test_")]
        argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "attack", *tests]
        environment = {**os.environ, "SANDBOX_KERNEL_ATTACK_RECORD": str(path)}
        subprocess.run(argv, cwd=ROOT, env=environment, check=False)
        rows: list[Row] = json.loads(path.read_text())
    return rows


def told(rows: list[Row]) -> str:
    """What the tests of one attack in one place saw, in a few words."""
    failed = sorted({row["test"].partition("::")[2] for row in rows if row["outcome"] == "failed"})
    if failed:
        return f"**NOT HELD**: {', '.join(failed)}"
    return "held" if any(row["outcome"] == "passed" for row in rows) else "not tried here"


def cells(attack: str, rows: list[Row]) -> list[str]:
    """The row of an attack: where it was held, and where it was not."""
    mine = [row for row in rows if row["id"] == attack]
    tried = {row["where"] for row in mine}
    found = {place: told([row for row in mine if row["where"] == place]) for place in tried}
    found |= dict.fromkeys(places(attack) - tried, "**NOT TRIED**")
    held = [place for place in PLACES if found.get(place) == "held"]
    others = [f"{place}: {found[place]}" for place in PLACES if place in found and place not in held]
    return [attack, LINES[attack][1], "; ".join(["/".join(held), *others] if held else others)]


def main() -> int:
    """Run, write, and say whether everything held."""
    rows = record()
    lines = [cells(attack, rows) for attack in LINES]
    replace_section(DOCUMENT, *MARKERS, table(["id", "what it tries", "held"], lines))
    open_ones = [line[0] for line in lines if any("**NOT" in cell for cell in line)]
    print(f"{len(lines)} attacks; not held or not tried: {', '.join(open_ones) or 'none'}")
    return 1 if open_ones else 0


if __name__ == "__main__":
    sys.exit(main())

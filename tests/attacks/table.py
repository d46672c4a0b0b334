"""Runs every hostile program and writes what happened into ``docs/security.md``: ``python tests/attacks/table.py``.

Nothing here is typed by hand. A program that does not end as it must, or leaves a trace outside, is a row that says so,
and the exit code is 1.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from harness import Attack, complaints, listeners, make_sentinels, run_attack, sentinel_state  # noqa: E402
from programs import ATTACKS  # noqa: E402
from titles import TITLES  # noqa: E402

from benchmarks.markdown_section import replace_section, table  # noqa: E402
from sandbox_kernel.model import describe_end  # noqa: E402

DOCUMENT = ROOT / "docs" / "security.md"


def last_words(text: str, hidden: str) -> str:
    """The last line that a program printed, short, without control characters or names of this machine."""
    lines = [
        line.strip() for line in text.replace(hidden, "…").splitlines() if line.strip() and " copied, " not in line
    ]
    last = re.sub(r"[^ -~…é]", "�", lines[-1]) if lines else ""
    return last if len(last) <= 70 else f"{last[:67]}…"


def row(attack: Attack) -> tuple[list[str], bool]:
    """One program: its id, what it tries, how it ended, what it said last, and whether that is as it must be."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        sentinels = make_sentinels(folder)
        before = sentinel_state(sentinels)
        with listeners() as doors:
            result = run_attack(attack, sentinels, doors)
            wrong = complaints(attack, result)
            if doors.seen:
                wrong.append(f"reached {', '.join(doors.seen)}")
        if sentinel_state(sentinels) != before:
            wrong.append("changed a file outside")
        said = last_words(result.stdout + result.stderr, str(sentinels)).replace(made, "…")
    held = "held" if not wrong else f"NOT HELD: {'; '.join(wrong)}"
    return [attack.id, TITLES[attack.id], describe_end(result), f"`{said}`" if said else "", held], not wrong


def main() -> int:
    rows, good = [], True
    for attack in ATTACKS:
        made, held = row(attack)
        good = good and held
        rows.append(made)
        print(" | ".join(made), flush=True)
    content = table(["id", "what it tries", "how it ended", "its last words", ""], rows)
    replace_section(DOCUMENT, "attacks", content)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

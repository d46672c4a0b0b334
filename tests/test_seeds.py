"""``docs/internal/seeds.md`` stays true: every test that it names exists, and no row of the seeds' list is without one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
PAGE = TESTS.parent / "docs" / "internal" / "seeds.md"
ROWS = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if re.match(r"\| [A-Z]+\d+ \|", line)]

#: How many rows each part of the list has.
PARTS = {
    "D": range(1, 12),
    "P": range(1, 22),
    "N": range(1, 14),
    "W": range(1, 13),
    "S": range(1, 15),
    "F": range(1, 9),
}


def test_every_row_of_the_list_has_a_test() -> None:
    wanted = {f"{part}{number}" for part, numbers in PARTS.items() for number in numbers} | {"E5", "E7"}
    assert {row[0] for row in ROWS} == wanted


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row[0]} {row[1]}")
def test_every_test_that_is_named_exists(row: list[str]) -> None:
    assert len(row) == 3
    for group in row[2].split("<br>"):
        file, _, names = group.partition(": ")
        source = (TESTS / file).read_text()
        found = re.findall(r"`(\w+)`", names)
        assert found
        assert [name for name in found if f"def test_{name}(" not in source] == []

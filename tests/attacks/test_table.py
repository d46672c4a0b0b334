"""The table of attacks: made of what tests saw, complete, and never better than that."""

import re
from pathlib import Path

import pytest

from tests.attacks.ends_behind_landlock import DIFFERENCES
from tests.attacks.programs import LISTED, PROGRAMS
from tests.attacks.table import DOCUMENT, MARKERS, cells, told
from tests.attacks.titles import LINES, places

TESTS = Path(__file__).resolve().parents[1]


def row(outcome: str, ended: str = "", where: str = "network", attack: str = "N06") -> dict[str, str]:
    return {"id": attack, "where": where, "test": "tests/x.py::test_y", "outcome": outcome, "ended": ended}


def test_one_failure_outweighs_every_success() -> None:
    assert told([row("passed", "ok"), row("failed")]) == "**NOT HELD**: test_y"


def test_what_was_skipped_is_not_claimed() -> None:
    assert told([row("skipped")]) == "not tried here"
    assert told([row("skipped"), row("passed", "exit code 1")]) == "held"


def test_a_place_that_was_not_tried_says_so() -> None:
    assert cells("N06", []) == ["N06", LINES["N06"][1], "network: **NOT TRIED**"]
    assert cells("N06", [row("passed")])[-1] == "network"
    assert cells("N06", [row("passed"), row("failed", where="wasm")])[-1] == "network; wasm: **NOT HELD**: test_y"


@pytest.mark.parametrize("attack", LINES)
@pytest.mark.one_case
def test_every_line_of_the_list_has_a_test_for_each_of_its_targets(attack: str) -> None:
    source = "".join(path.read_text() for path in TESTS.rglob("*.py"))
    written = set(re.findall(rf'mark\.attack\("{attack}", "(\w+)"\)', source))
    if attack in {each.id for each in LISTED}:
        written |= {"bubblewrap", "pool", "landlock"}
    assert places(attack) <= written


def test_the_table_in_the_documents_has_every_line_and_none_is_open() -> None:
    begin, end = MARKERS
    content = DOCUMENT.read_text().split(begin)[1].split(end)[0]
    assert re.findall(r"^\| ([A-Z]\d\d) \|", content, re.MULTILINE) == list(LINES), "python -m tests.attacks.table"
    assert "**NOT" not in content


def test_every_difference_behind_landlock_is_of_a_program_that_exists() -> None:
    assert set(DIFFERENCES) <= {attack.id.partition("-")[0] for attack in PROGRAMS}


def test_no_two_programs_have_the_same_id() -> None:
    assert len({attack.id for attack in PROGRAMS}) == len(PROGRAMS)

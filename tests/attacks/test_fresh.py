"""Programs of kinds that are not on the project's list, against every way in which a jail is made."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from fresh_programs import FRESH
from harness import Attack, survive


@pytest.mark.parametrize("forked", [False, True], ids=["started", "forked"])
@pytest.mark.parametrize("attack", FRESH, ids=[attack.id for attack in FRESH])
def test_a_program_of_another_kind_ends_as_it_must_and_touches_nothing(
    attack: Attack, forked: bool, tmp_path: Path, nothing_left: None
) -> None:
    survive(attack, tmp_path, "bubblewrap", forked=forked)

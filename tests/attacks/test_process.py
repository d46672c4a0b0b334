"""Every hostile program of the list against the process backend, and the invariants after each."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from harness import Attack, survive
from programs import ATTACKS


@pytest.mark.parametrize(
    "attack", [pytest.param(a, id=a.id, marks=pytest.mark.attack(a.id, "bubblewrap")) for a in ATTACKS]
)
def test_a_hostile_program_ends_as_it_must_and_touches_nothing(
    attack: Attack, tmp_path: Path, nothing_left: None, record_property: Callable[[str, object], None]
) -> None:
    record_property("ended", survive(attack, tmp_path))


@pytest.mark.parametrize("attack", [pytest.param(a, id=a.id, marks=pytest.mark.attack(a.id, "pool")) for a in ATTACKS])
def test_a_hostile_program_ends_as_it_must_in_a_spare_that_a_template_forked(
    attack: Attack, tmp_path: Path, nothing_left: None, record_property: Callable[[str, object], None]
) -> None:
    record_property("ended", survive(attack, tmp_path, "bubblewrap", forked=True))

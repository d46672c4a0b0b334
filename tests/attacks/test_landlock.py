"""Every hostile program of the list against the Landlock tier, and the invariants after each."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from fresh_programs import FRESH
from harness import Attack, survive
from landlock import DIFFERENCES, on_landlock
from programs import ATTACKS

from sandbox_kernel.jail.rules.landlock import landlock_abi

pytestmark = pytest.mark.skipif(landlock_abi() < 6, reason="needs a kernel whose Landlock keeps signals in (6.12)")


@pytest.mark.parametrize(
    "attack", [pytest.param(a, id=a.id, marks=pytest.mark.attack(a.id, "landlock")) for a in ATTACKS]
)
def test_a_hostile_program_ends_as_it_must_and_touches_nothing(
    attack: Attack, tmp_path: Path, nothing_left: None, record_property: Callable[[str, object], None]
) -> None:
    record_property("ended", survive(on_landlock(attack), tmp_path, "landlock"))


@pytest.mark.parametrize("attack", FRESH, ids=[attack.id for attack in FRESH])
def test_a_program_of_another_kind_ends_as_it_must_and_touches_nothing(
    attack: Attack, tmp_path: Path, nothing_left: None
) -> None:
    survive(on_landlock(attack), tmp_path, "landlock")


def test_every_difference_is_of_an_attack_that_exists() -> None:
    assert set(DIFFERENCES) <= {attack.id.partition("-")[0] for attack in (*ATTACKS, *FRESH)}

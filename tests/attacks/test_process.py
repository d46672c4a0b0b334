"""Every hostile program of the list against the process backend, and the invariants after each."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from harness import Attack, complaints, listeners, make_sentinels, run_attack, sentinel_state
from programs import ATTACKS


@pytest.mark.parametrize("attack", ATTACKS, ids=[attack.id for attack in ATTACKS])
def test_a_hostile_program_ends_as_it_must_and_touches_nothing(
    attack: Attack, tmp_path: Path, nothing_left: None
) -> None:
    sentinels = make_sentinels(tmp_path)
    before = sentinel_state(sentinels)
    with listeners(tmp_path) as doors:
        result = run_attack(attack, sentinels, doors)
        assert doors.seen == [], "a listener of the host was reached"
    assert sentinel_state(sentinels) == before, "a sentinel outside was changed"
    assert complaints(attack, result) == [], (result.status, result.limit, (result.stdout + result.stderr)[-1000:])

"""Every hostile program of the list against the process backend, and the invariants after each."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from harness import SECRET, Attack, listeners, make_sentinels, run_attack, sentinel_state
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
    told = result.stdout + result.stderr
    assert str(result.status) in attack.status, (result.status, result.limit, told[-500:])
    if attack.limit is not None:
        assert result.limit == attack.limit, (result.status, result.limit, told[-500:])
    for text in attack.says:
        assert text in told, told[-1000:]
    for text in (*attack.never_says, SECRET):
        assert text not in told, told[-1000:]
    assert result.duration <= attack.timeout + 1.0

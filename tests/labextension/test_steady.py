"""When a press on a control beside an output counts."""

import pytest

from tests.labextension.conftest import Evaluate

HERE, THERE, UNSEEN = "10,20,80,24", "10,60,80,24", None


@pytest.mark.parametrize(
    ("looks", "counts"),
    [
        ([(HERE, 0), (HERE, 300), (HERE, 800)], True),
        ([(HERE, 0), (HERE, 300)], False),  # it has just appeared
        ([(HERE, 0), (HERE, 5000), (THERE, 5100), (THERE, 5300)], False),  # it was moved
        ([(HERE, 0), (THERE, 100), (HERE, 800)], False),  # moved away and back
        ([(HERE, 0), (UNSEEN, 100), (HERE, 800)], False),  # something lay over it
        ([(UNSEEN, 0), (UNSEEN, 5000)], False),
        ([(HERE, 0), (THERE, 100), (THERE, 900)], True),  # the user has scrolled, and waited
    ],
)
def test_a_control_is_pressed_only_after_it_was_seen_at_one_place_for_a_while(
    evaluate: Evaluate, looks: list[tuple[str | None, int]], counts: bool
) -> None:
    state = "values[0].reduce((before, [place, now]) => stands(before, place, now), undefined)"
    assert evaluate("dom.js", f"isSteady({state}, values[0].at(-1)[1])", looks) is counts

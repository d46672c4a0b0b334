"""When a frame may have the keyboard."""

from __future__ import annotations

import pytest

from tests.labextension.conftest import Evaluate

LONG = 60_000


@pytest.mark.parametrize(
    ("tab", "own", "active", "there", "asked"),
    [
        (50, 50, True, False, True),  # Tab
        (LONG, 100, True, True, True),  # a click, after a click or a key in the page
        (LONG, LONG, True, False, True),  # a click, long after anything in the page
        (LONG, 100, True, False, False),  # the user types in the page
        (LONG, LONG, False, False, False),  # nobody did anything
        (LONG, LONG, False, True, False),  # the pointer only lies there
    ],
)
def test_a_frame_gets_the_keyboard_when_the_user_goes_there(
    evaluate: Evaluate, tab: int, own: int, active: bool, there: bool, asked: bool
) -> None:
    facts = {"sinceTab": tab, "sinceOwnEvent": own, "isActive": active, "isPointerThere": there}
    assert evaluate("frame-focus.js", "wasAsked(values[0])", facts) is asked

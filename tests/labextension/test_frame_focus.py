"""When a frame may have the keyboard."""

from __future__ import annotations

import pytest

from tests.labextension.conftest import Evaluate

LONG = 60_000


@pytest.mark.parametrize(
    ("tab", "own", "left", "active", "there", "asked"),
    [
        (50, 50, LONG, True, False, "yes"),  # Tab
        (LONG, 100, LONG, True, True, "yes"),  # a click, after a click or a key in the page
        (LONG, LONG, LONG, True, False, "yes"),  # a click, long after anything in the page
        (LONG, 100, LONG, True, False, "ask"),  # the user clicks there at once after the page, or types in the page
        (LONG, 100, 100, True, False, "no"),  # the user has just left the frame, whose activation is not over
        (LONG, 100, 100, True, True, "yes"),  # and goes back there
        (LONG, LONG, LONG, False, False, "no"),  # nobody did anything
        (LONG, LONG, LONG, False, True, "no"),  # the pointer only lies there
    ],
)
def test_a_frame_gets_the_keyboard_when_the_user_goes_there(
    evaluate: Evaluate, tab: int, own: int, left: int, active: bool, there: bool, asked: str
) -> None:
    facts = {"sinceTab": tab, "sinceOwnEvent": own, "sinceLeft": left, "isActive": active, "isPointerThere": there}
    assert evaluate("frame-focus.js", "whoAsked(values[0])", facts) == asked

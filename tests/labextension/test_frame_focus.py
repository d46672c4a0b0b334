"""When a frame may have the keyboard."""

import pytest

from tests.labextension.conftest import Evaluate

LONG = 60_000


@pytest.mark.parametrize(
    ("press", "elsewhere", "users"),
    [
        (20, 100, True),  # a press in the frame, right after one elsewhere
        (20, LONG, True),
        (100, 20, False),  # the user has pressed in another frame, or pressed or typed in the page, since
        (2000, LONG, False),  # the press was for something else
        (LONG, LONG, False),  # nobody did anything
    ],
)
def test_a_frame_gets_the_keyboard_when_the_user_pressed_in_it_last(
    evaluate: Evaluate, press: int, elsewhere: int, users: bool
) -> None:
    facts = {"sincePress": press, "sinceElsewhere": elsewhere}
    assert evaluate("frame-focus.js", "isPressed(values[0])", facts) is users

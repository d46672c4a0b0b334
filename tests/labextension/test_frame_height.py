"""How long a frame waits before it shrinks."""

import pytest

from tests.labextension.conftest import Evaluate

LONG = 600_000


@pytest.mark.parametrize(
    ("shrinks", "asking", "unused", "wait"),
    [
        ([], 0, LONG, 250),
        ([], 250, LONG, 0),
        ([], LONG, 0, 1000),  # the pointer was there a moment ago
        ([], LONG, 1000, 0),
        ([400], 250, LONG, 250),  # it shrinks again and again: longer each time
        ([400, 1000, 3000, 9000], 0, LONG, 4000),
        ([LONG, LONG], 250, LONG, 0),  # that was long ago
    ],
)
def test_a_frame_waits_before_it_shrinks(
    evaluate: Evaluate, shrinks: list[int], asking: int, unused: int, wait: int
) -> None:
    facts = {"shrinks": shrinks, "asking": asking, "unused": unused}
    assert evaluate("frame-view.js", "shrinkWait(values[0])", facts) == wait

"""The time of cells: what stops the clock, and what only says so."""

from __future__ import annotations

import pytest

from sandbox_kernel.wrapped.relaying.from_kernel import Requests, SentCell


def clock(**options):
    made = Requests(60.0)
    made.sent("a", SentCell({}, (), **options))
    return made


def test_a_question_for_a_cell_that_is_not_there_does_not_stop_the_clock():
    made = clock()
    assert not made.asked("nobody")
    assert made.left_s() is not None


def test_a_cell_whose_front_end_answers_no_questions_cannot_stop_the_clock():
    made = clock(may_ask=False)
    assert not made.asked("a")
    assert made.left_s() is not None


def test_the_clock_stands_while_the_user_is_asked():
    made = clock()
    assert made.asked("a")
    assert made.left_s() is None
    made.answered()
    assert made.left_s() is not None


def test_a_cell_that_waits_cannot_stop_the_clock_of_the_one_that_runs():
    made = clock()
    made.sent("b", SentCell({}, ()))
    assert made.asked("b")
    assert made.left_s() is not None


@pytest.mark.parametrize("kinds", [("status", "execute_reply"), ("execute_reply", "status")])
def test_a_cell_is_over_when_both_its_reply_and_its_idle_status_came(kinds):
    made = clock()
    assert [made.ends("a", kinds[0]) for _ in range(3)] == [False] * 3
    assert made.ends("a", kinds[1])
    assert made.left_s() is not None
    made.finished("a")
    assert made.left_s() is None
    assert not made.ends("a", kinds[1])

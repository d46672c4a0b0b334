"""Many runs at once: in order, and stopped together."""

from __future__ import annotations

import threading

import pytest

from sandbox_kernel import ExecResult
from sandbox_kernel.box.runs import MOST_WORKERS, check_workers, run_each
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.jail.streams import Stop, readable


def test_results_come_in_the_order_of_the_runs_whichever_ends_first() -> None:
    second_ended = threading.Event()
    seen: list[tuple[int, int]] = []

    def first(*, stop: Stop | None) -> ExecResult:
        assert second_ended.wait(30)
        return ExecResult(stdout="first")

    def second(*, stop: Stop | None) -> ExecResult:
        second_ended.set()
        return ExecResult(stdout="second")

    results = run_each(
        lambda run, stop: run(stop=stop), [first, second], 2, lambda done, total: seen.append((done, total))
    )
    assert [result.stdout for result in results] == ["first", "second"]
    assert seen == [(1, 2), (2, 2)]


def test_a_run_that_fails_stops_those_under_way_and_begins_no_more() -> None:
    begun = threading.Event()
    stopped: list[bool] = []

    def fails(*, stop: Stop | None) -> ExecResult:
        assert begun.wait(30)
        raise InvalidRequest("mine")

    def waits(*, stop: Stop | None) -> ExecResult:
        assert stop is not None
        begun.set()
        stopped.append(readable(stop.fileno(), 30))
        return ExecResult()

    with pytest.raises(InvalidRequest, match="mine"):
        run_each(lambda run, stop: run(stop=stop), [fails, waits], 2, None)
    assert stopped == [True]


def test_no_runs_are_no_results() -> None:
    assert run_each(lambda *_: ExecResult(), [], 4, None) == []


@pytest.mark.parametrize("wrong", [0, -1, True, 1.5, "4"])
def test_a_number_of_workers_that_is_none_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidRequest, match="max_workers must be a whole number"):
        check_workers(wrong)  # type: ignore[arg-type]


def test_there_are_never_more_threads_than_a_host_has_room_for() -> None:
    assert (check_workers(None), check_workers(3), check_workers(10**6)) == (4, 3, MOST_WORKERS)

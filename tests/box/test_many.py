"""Many runs at once: in order, and stopped together."""

import threading
from collections.abc import Callable

import pytest

from sandbox_kernel import ExecRequest, ExecResult, Sandbox
from sandbox_kernel.backends.base import RunContext
from sandbox_kernel.box.runs import MOST_WORKERS, check_workers
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.jail.streams import readable

Run = Callable[[ExecRequest, RunContext], ExecResult]


def _box(monkeypatch: pytest.MonkeyPatch, run: Run) -> Sandbox:
    """Return a sandbox whose backend is a function."""
    backend, box = type("Backend", (), {"run": staticmethod(run)}), Sandbox()
    monkeypatch.setattr(box._backends, "choose", lambda *_: backend)
    return box


def test_results_come_in_the_order_of_the_runs_whichever_ends_first(monkeypatch: pytest.MonkeyPatch) -> None:
    second_ended = threading.Event()
    seen: list[tuple[int, int]] = []

    def run(request: ExecRequest, _: RunContext) -> ExecResult:
        if request.stdin == "second":
            second_ended.set()
        assert second_ended.wait(30)
        return ExecResult(stdout=str(request.stdin))

    box = _box(monkeypatch, run)
    results = box.map("pass", ["first", "second"], max_workers=2, progress=lambda *told: seen.append(told))
    assert [result.stdout for result in results] == ["first", "second"]
    assert seen == [(1, 2), (2, 2)]
    assert box.map("pass", []) == []


def test_a_run_that_fails_stops_those_under_way_and_begins_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = threading.Event()
    stopped: list[bool] = []

    def run(request: ExecRequest, context: RunContext) -> ExecResult:
        if request.stdin == "fails":
            assert begun.wait(30)
            raise InvalidRequest("mine")
        assert context.stop is not None
        begun.set()
        stopped.append(readable(context.stop.fileno(), 30))
        return ExecResult()

    with pytest.raises(InvalidRequest, match="mine"):
        _box(monkeypatch, run).map("pass", ["fails", "waits"], max_workers=2)
    assert stopped == [True]


def test_there_are_never_more_threads_than_a_host_has_room_for() -> None:
    assert (check_workers(None), check_workers(3), check_workers(10**6)) == (4, 3, MOST_WORKERS)

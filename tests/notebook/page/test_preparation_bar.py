"""A language that is made ready at its first use is told of, outside of the cell's time, and leaves no trace."""

import asyncio
import threading
from unittest.mock import Mock

import pytest

from sandbox_kernel import ExecResult
from sandbox_kernel.backends.wasm.prepare import PrepareProgress
from sandbox_kernel.errors import BackendUnavailable
from sandbox_kernel.model import CellError
from sandbox_kernel.notebook import execution, sessions
from sandbox_kernel.notebook.execution import CellExecution, NotebookState
from sandbox_kernel.notebook.page.views import PreparationBar
from sandbox_kernel.notebook.render import ClearOutput, Door, ShowOutput
from sandbox_kernel.notebook.sandboxes import NotebookSandboxes

CELL = "%%sandbox lua --backend wasm\nprint(1)"


class Page(Door):
    def __init__(self, watched=True):
        self.seen, self._watched = [], watched

    def watched(self):
        return self._watched

    def message(self, message):
        self.seen.append(message)

    def stream(self, name, text):
        self.seen.append((name, text))


def progress(fraction):
    return PrepareProgress(language="lua", text="compiling Lua 5.4", fraction=fraction)


def test_a_bar_is_drawn_once_then_changed_then_cleared_away():
    page = Page()
    bar = PreparationBar(page, alone=True)
    for fraction in (0.0, 0.5, 1.0):
        bar.update(progress(fraction))
    bar.close()
    first, second, last = page.seen
    assert (first.update, second.update, first.display_id) == (False, True, second.display_id)
    assert "making lua ready, once: compiling Lua 5.4" in second.data["text/plain"]
    assert last == ClearOutput(wait=False)


def test_beside_other_outputs_only_the_place_of_the_bar_is_emptied():
    page = Page()
    bar = PreparationBar(page, alone=False)
    bar.update(progress(0.5))
    bar.close()
    assert page.seen[-1] == ShowOutput({"text/plain": ""}, display_id=page.seen[0].display_id, update=True)


def test_nobody_who_records_outputs_gets_a_bar():
    page = Page(watched=False)
    bar = PreparationBar(page, alone=True)
    bar.update(progress(0.5))
    bar.update(progress(1.0))
    bar.close()
    assert page.seen == []


@pytest.mark.parametrize("fraction", [-1.0, 0.0, 0.999])
def test_a_bar_is_as_long_as_ever_and_its_words_are_no_markup(fraction):
    page = Page()
    PreparationBar(page, alone=True).update(PrepareProgress(language="<b>", text="<script>", fraction=fraction))
    drawn = page.seen[0].data
    assert drawn["text/plain"].count("#") + drawn["text/plain"].count(".") == 20
    assert "<script>" not in drawn["text/html"]


class Box:
    """A sandbox whose language is not ready."""

    def __init__(self, policy, backend, config):
        self.ready, self.release, self.ran = False, threading.Event(), 0
        self.release.set()
        self.error = None

    def is_ready(self, language, *, session):
        return self.ready

    def prepare(self, language, *, on_progress):
        on_progress(progress(0.2))
        self.release.wait(20)
        if self.error is not None:
            raise self.error
        self.ready = True
        on_progress(progress(1.0))

    async def perform(self, request, events, cancel):
        self.ran += 1
        events.on_output("stdout", "1\n")
        return ExecResult()


@pytest.fixture
def box(monkeypatch):
    monkeypatch.setattr(sessions, "has_sessions", lambda language, backend: False)
    return Box(None, None, None)


def run(box, page, cancel_when=None):
    state = NotebookState(sandboxes=NotebookSandboxes(lambda *_: box))

    async def no_input(prompt, password):
        raise EOFError

    async def go():
        cancel = asyncio.Event()
        if cancel_when is not None:
            message, page.message = (
                page.message,
                lambda shown: (message(shown), cancel.set() if not box.ready else None),
            )
        return await CellExecution(state, page, no_input, cancel).run(CELL)

    return asyncio.run(go())


def without_receipt(page):
    return [item for item in page.seen if not isinstance(item, ShowOutput) or item.display_id]


def test_the_first_cell_shows_the_bar_before_its_output_and_the_second_none(box):
    first, second = Page(), Page()
    run(box, first)
    run(box, second)
    assert [type(item).__name__ for item in without_receipt(first)] == ["ShowOutput", "ClearOutput", "tuple"]
    assert without_receipt(second) == [("stdout", "1\n")]
    # What is left after the clearing is what the second cell shows.
    left = first.seen[first.seen.index(ClearOutput(wait=False)) + 1 :]
    assert [type(item) for item in left] == [type(item) for item in second.seen]


def test_an_interrupt_while_a_language_is_made_ready_is_answered_at_once(box):
    box.release.clear()
    page = Page()
    try:
        done = run_and_release(box, page)
    finally:
        box.release.set()
    assert isinstance(done.failure, CellError)
    assert (done.failure.ename, box.ran) == ("KeyboardInterrupt", 0)


def run_and_release(box, page):
    """The executor of the loop waits for its threads at the end, so the preparation is let go by the failure."""
    message = page.message

    def shown(item):
        message(item)
        if isinstance(item, CellError):
            box.release.set()

    page.message = shown
    return run(box, page, cancel_when="first progress")


def test_a_language_that_cannot_be_made_ready_is_an_error_with_its_reason(box):
    box.error = BackendUnavailable("npm is not installed; install it")
    page = Page()
    done = run(box, page)
    assert "npm is not installed" in done.failure.evalue
    assert ClearOutput(wait=False) in page.seen
    assert box.ran == 0


def test_the_time_of_a_running_cell_counts_neither_the_preparation_nor_the_wait_for_an_answer(monkeypatch):
    page, told, clock = Page(), [], Mock(now=0.0)
    page.progress = lambda made: told.append((made.elapsed_s, made.timeout_s))
    clock.time = lambda: clock.now
    monkeypatch.setattr(execution.asyncio, "get_running_loop", lambda: clock)

    def look(now):
        clock.now = now
        clock.call_later.call_args[0][1]()

    timer = execution._ProgressTimer(page, 5.0, None)
    timer.hold(over=False)
    clock.call_later.return_value.cancel.assert_called()
    clock.now = 10.0
    timer.hold(over=True)
    look(11.0)
    with timer.still():
        look(18.0)
    look(19.0)
    assert told == [(1.0, 5.0), (1.0, 5.0), (2.0, 5.0)]

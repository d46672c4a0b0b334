"""One cell from its text to its last message, with a door that only listens."""

import asyncio
import threading

import pytest

from sandbox_kernel import ExecResult, Status
from sandbox_kernel.notebook import execution, line_commands, sessions
from sandbox_kernel.notebook.execution import CellExecution, NotebookState
from sandbox_kernel.notebook.render import ShowOutput
from sandbox_kernel.notebook.sandboxes import NotebookSandboxes


@pytest.fixture(autouse=True)
def no_sessions(monkeypatch):
    monkeypatch.setattr(sessions, "has_sessions", lambda language, backend: False)


class Box:
    def __init__(self, policy, backend, config):
        pass

    async def arun(self, code, language, *, on_output, cancel, on_usage, **options):
        if "print" in code:
            on_output("stdout", "printed\n")
        if "bug" in code:
            raise ZeroDivisionError("ours")
        if "sleep" in code:
            on_usage(30, 100)
            await cancel.wait()
            return ExecResult(status=Status.INTERRUPTED)
        return ExecResult()


class Door:
    def __init__(self):
        self.seen = []
        self.panels = []

    def stream(self, name, text):
        self.seen.append((name, text))

    def message(self, message):
        self.seen.append(message)

    def live(self, timeout_s, stop):
        self.panels.append(Panel(stop))
        return self.panels[-1]


class Panel:
    def __init__(self, stop):
        self.stop, self.updates, self.closed = stop, 0, False

    def update(self, elapsed_s, memory):
        self.updates += 1
        self.memory = memory
        self.stop()

    def close(self):
        self.closed = True


async def no_input(prompt, password):
    raise EOFError


def cell(text, state=None, door=None):
    state = state or NotebookState(sandboxes=NotebookSandboxes(Box))
    door = door or Door()

    async def go():
        return await CellExecution(state, door, no_input, asyncio.Event()).run(text)

    return asyncio.run(go()), door.seen, state


def test_streams_come_before_the_receipt():
    done, seen, _ = cell("print(1)")
    assert done.failure is None
    assert seen[0] == ("stdout", "printed\n")
    assert isinstance(seen[1], ShowOutput)


@pytest.mark.parametrize("text", ["%%sandbox --nope\nx", "%sandbox undo", "x\n%sandbox", "%%sandbox -i missing\nx"])
def test_a_refusal_is_one_error_and_nothing_else(text):
    done, seen, _ = cell(text)
    assert seen == [done.failure]


def test_a_fault_of_our_own_is_answered_and_handed_on():
    done, seen, _ = cell("bug")
    assert isinstance(done.bug, ZeroDivisionError)
    assert done.failure.ename == "InternalError"
    assert seen == [done.failure]


def test_defaults_stay_as_they_were_when_a_command_fails():
    state = NotebookState(sandboxes=NotebookSandboxes(Box))
    cell("%sandbox --timeout 9s", state)
    cell("%sandbox --timeout 1s\n%sandbox undo", state)
    assert state.defaults.timeout_s == 9.0


def test_an_interrupt_is_answered_at_once_although_a_command_goes_on(monkeypatch):
    release = threading.Event()
    monkeypatch.setattr(line_commands, "run_command", lambda command, desk: release.wait(30) or ())

    async def go():
        cancel, door = asyncio.Event(), Door()
        state = NotebookState(sandboxes=NotebookSandboxes(Box))
        task = asyncio.ensure_future(CellExecution(state, door, no_input, cancel).run("%sandbox report"))
        await asyncio.sleep(0)
        cancel.set()
        try:
            return await asyncio.wait_for(task, 20)
        finally:
            release.set()

    assert asyncio.run(go()).failure.ename == "KeyboardInterrupt"


def test_a_long_cell_gets_a_panel_whose_stop_button_stops_it(monkeypatch):
    monkeypatch.setattr(execution, "PANEL_AFTER_S", 0.0)
    monkeypatch.setattr(execution, "PANEL_EVERY_S", 0.001)
    door = Door()
    done, _, _ = cell("sleep", door=door)
    assert done.failure.ename == "KeyboardInterrupt"
    (panel,) = door.panels
    assert panel.closed
    assert panel.updates >= 1
    assert panel.memory == (30, 100)


def test_a_short_cell_gets_no_panel():
    door = Door()
    cell("print(1)", door=door)
    assert door.panels == []

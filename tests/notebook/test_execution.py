"""One cell from its text to its last message, with a door that only listens."""

import asyncio
import threading
from dataclasses import replace

import pytest

from sandbox_kernel import ExecResult, Status
from sandbox_kernel.model import notes
from sandbox_kernel.notebook import execution, line_commands, sessions
from sandbox_kernel.notebook.execution import CellExecution, NotebookState
from sandbox_kernel.notebook.render import Door, ShowOutput
from sandbox_kernel.notebook.sandboxes import NotebookSandboxes
from sandbox_kernel.receipt import MIME
from sandbox_kernel.session.cell.displays import SessionDisplay
from sandbox_kernel.untrusted.frames.comm_message import CommMessage
from sandbox_kernel.untrusted.frames.frame_output import FrameOutput


@pytest.fixture(autouse=True)
def no_sessions(monkeypatch):
    monkeypatch.setattr(sessions, "has_sessions", lambda language, backend: False)


class Box:
    def __init__(self, policy, backend, config):
        pass

    async def perform(self, request, events, cancel):
        code = request.code
        if "print" in code:
            events.on_output("stdout", "printed\n")
        if "bug" in code:
            raise ZeroDivisionError("ours")
        if "cut" in code:
            return ExecResult(stdout_truncated=True)
        if "sleep" in code:
            events.on_usage(30, 100)
            await cancel.wait()
            return ExecResult(status=Status.INTERRUPTED)
        return ExecResult()


class Listener(Door):
    def __init__(self):
        self.seen = []
        self.told = []

    def stream(self, name, text):
        self.seen.append((name, text))

    def message(self, message):
        self.seen.append(message)


async def no_input(prompt, password):
    raise EOFError


def cell(text, state=None, door=None):
    state = state or NotebookState(sandboxes=NotebookSandboxes(Box))
    door = door or Listener()

    async def go():
        return await CellExecution(state, door, no_input, asyncio.Event()).run(text)

    return asyncio.run(go()), door.seen, state


def test_the_receipt_of_a_quiet_cell_says_which_output_was_cut():
    (receipt,) = cell("%%sandbox --quiet\ncut")[1]
    assert any("stdout" in note for note in receipt.data[MIME]["notes"])


@pytest.mark.parametrize(("line", "memory_mb"), [("", 600), ("%%sandbox --timeout 9s\n", 300)])
def test_memory_that_a_press_gave_is_the_notebooks_from_then_on(monkeypatch, line, memory_mb):
    state = NotebookState()
    state.defaults = replace(state.defaults, memory_mb=300)

    async def lifted(plan, io, **_):
        return ExecResult(memory_limit_mb=600, notes=(notes.more_memory(600),)), {}

    monkeypatch.setattr(state.sandboxes, "run", lifted)
    cell(f"{line}x = 1", state)
    assert state.defaults.memory_mb == memory_mb


def test_streams_come_before_the_receipt_and_a_short_cell_tells_nothing_of_its_progress():
    door = Listener()
    done, seen, _ = cell("print(1)", door=door)
    assert (done.failure, door.told) == (None, [])
    assert seen[0] == ("stdout", "printed\n")
    assert isinstance(seen[1], ShowOutput)


@pytest.mark.parametrize("text", ["%%sandbox --nope\nx", "%sandbox undo", "x\n%sandbox", "%%sandbox -i missing\nx"])
def test_a_refusal_is_one_error_and_nothing_else(text):
    done, seen, _ = cell(text)
    assert seen == [done.failure]


def test_the_widgets_of_a_cell_are_saved_with_their_states_until_these_are_too_much_together(monkeypatch):
    monkeypatch.setattr(execution, "MAX_BYTES", 100_000)
    state = NotebookState(sandboxes=NotebookSandboxes(Box))
    value = {"state": {"value": "x" * 60_000}}
    state.comms._pages.take("w", CommMessage(kind="comm_open", comm_id="aa", data=value, metadata={}))
    widget = SessionDisplay(data=FrameOutput(html="", model="aa", gate="w").bundle(), worker_id="w", removed=())
    one = CellExecution(state, Listener(), no_input, asyncio.Event())
    shown = [*one._made(widget), *one._messages(widget), *one._messages(widget), *one._made(widget)]
    assert [len(each.data["text/html"]) > 60_000 for each in shown] == [True, True, False, False]


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
        cancel, door = asyncio.Event(), Listener()
        state = NotebookState(sandboxes=NotebookSandboxes(Box))
        task = asyncio.ensure_future(CellExecution(state, door, no_input, cancel).run("%sandbox report"))
        await asyncio.sleep(0)
        cancel.set()
        try:
            return await asyncio.wait_for(task, 20)
        finally:
            release.set()

    assert asyncio.run(go()).failure.ename == "KeyboardInterrupt"


def test_a_long_cell_tells_its_time_and_memory_until_it_ends(monkeypatch):
    monkeypatch.setattr(execution, "PROGRESS_AFTER_S", 0.0)
    monkeypatch.setattr(execution, "PROGRESS_EVERY_S", 0.001)
    state, door, cancel = NotebookState(sandboxes=NotebookSandboxes(Box)), Listener(), asyncio.Event()

    async def go():
        door.progress = lambda made: (door.told.append(made), len(door.told) > 2 and cancel.set())
        done = await CellExecution(state, door, no_input, cancel).run("%%sandbox --timeout 9s\nsleep")
        told = len(door.told)
        passed = asyncio.Event()
        asyncio.get_running_loop().call_later(0.01, passed.set)
        await passed.wait()
        return done, told

    done, told = asyncio.run(go())
    assert (done.failure.ename, told, len(door.told)) == ("KeyboardInterrupt", 3, 3)
    assert (door.told[-1].timeout_s, door.told[-1].memory) == (9.0, (30, 100))
    assert door.told[-1].elapsed_s > door.told[0].elapsed_s >= 0
    assert door.told[-1].content("a")["memory_limit_bytes"] == 100

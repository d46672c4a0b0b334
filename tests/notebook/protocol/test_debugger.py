"""What the notebook's debugger keeps of a session that forges its messages."""

import asyncio

import pytest

from sandbox_kernel.notebook.protocol.debugger import NotebookDebugger
from sandbox_kernel.session.debug_link import MAX_THREADS, DebugEvent, DebugReply


class Link:
    """A session that answers whatever it is told to."""

    alive = True

    def __init__(self):
        self.body = {}

    def request(self, command, arguments, timeout_s):
        return DebugReply(1, True, self.body, "")

    def close(self):
        pass


@pytest.fixture
def attached():
    """A started debugger, its session, and the listener that the session's events reach."""
    link, heard = Link(), []

    def attach(on_event):
        heard.append(on_event)
        return link

    debugger = NotebookDebugger(attach, lambda code: code, lambda event: None)
    assert asyncio.run(debugger.answer({"command": "initialize", "seq": 1}))["success"]
    return debugger, link, heard[0]


def stopped_threads(debugger):
    return asyncio.run(debugger.answer({"command": "debugInfo", "seq": 2}))["body"]["stoppedThreads"]


def test_as_many_threads_as_may_stand_are_told_to_a_page_and_of_forged_stops_the_newest(attached):
    debugger, _, on_event = attached
    for number in range(MAX_THREADS):
        on_event(DebugEvent("stopped", {}, (number,)))
    assert stopped_threads(debugger) == [*range(MAX_THREADS)]
    for begin in range(0, 50 * MAX_THREADS, MAX_THREADS):
        on_event(DebugEvent("stopped", {}, tuple(range(begin, begin + MAX_THREADS))))
    assert stopped_threads(debugger) == [*range(49 * MAX_THREADS, 50 * MAX_THREADS)]


@pytest.mark.parametrize(("length", "kept"), [(4096, 1), (4097, 0)])
def test_the_path_of_a_cell_is_kept_unless_it_is_long(attached, length, kept):
    debugger, link, _ = attached
    link.body = {"sourcePath": "x" * length}
    asyncio.run(debugger.answer({"command": "dumpCell", "seq": 3, "arguments": {"code": "1"}}))
    assert len(debugger._cells) == kept

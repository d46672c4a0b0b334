"""What one cell of the kernel sends to the page and asks of it, each message with that cell's request as its parent.

A parent from a context variable would be wrong in other threads: their output would appear below the latest cell.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import zmq

from sandbox_kernel.model import CellError
from sandbox_kernel.notebook import render
from sandbox_kernel.receipt import MARK, unmarked
from sandbox_kernel.session.cell.displays import SessionDisplay
from sandbox_kernel.untrusted.ansi import END, ColourFilter
from sandbox_kernel.util.wire import encodable

if TYPE_CHECKING:
    from sandbox_kernel.notebook.cell_requests import CellRequests

MAX_QUESTIONS = 1000
_MAX_PROMPT = 1000
_POLL_S = 0.01
#: Longer than an interrupt takes to reach a session's worker.
_INTERRUPT_S = 1.0
#: How long a question of ours waits; ``input()`` waits without end. A client may say that it takes questions, and have
#: nobody who answers them.
QUESTION_S = 30.0

REFUSED = "this client cannot be asked for input; give the text with %%sandbox --stdin TEXT"


class KernelDoor(render.Door):
    """The ``Door`` of ``CellExecution`` in the kernel: sends the iopub messages of one cell."""

    def __init__(
        self, publisher: CellRequests, parent: Mapping[str, object], number: int, *, silent: bool, page: str | None
    ) -> None:
        self._publisher = publisher
        self._parent = parent
        self._number = number
        self._silent = silent
        #: The id that the cell has in the page that looks on.
        self._page = None if silent else page

    def watched(self) -> bool:
        """See ``render.Door``."""
        return self._page is not None

    def late(self, messages: Callable[[SessionDisplay], list[render.Message]]) -> LateOutput:
        """See ``render.Door``."""
        return LateOutput(self, messages)

    def stream(self, name: str, text: str) -> None:
        """Send text of stdout or stderr."""
        self._send("stream", {"name": name, "text": encodable(text)})

    def message(self, message: render.Message) -> None:
        """Send a display, a value or an error."""
        match message:
            case render.ShowOutput():
                self.display(message)
            case render.ClearOutput():
                self._send("clear_output", {"wait": message.wait})
            case render.ReportPanel():
                if not self._silent:
                    from sandbox_kernel.report.page import report_widget, view  # for few cells

                    self._publisher.enable_widgets()
                    panel = report_widget(message.document, self._publisher.state.measure_again)
                    self.display(render.ShowOutput(view(panel)))
            case render.Value():
                content = {"data": dict(message.data), "metadata": dict(message.metadata)}
                self._send("execute_result", {**content, "execution_count": self._number})
            case CellError():
                self._send("error", failure_fields(message))

    def progress(self, made: render.Progress) -> None:
        """See ``render.Door``."""
        if self._page is not None:
            self._send(render.PROGRESS, made.content(self._page))

    def library(self, made: Mapping[str, object]) -> None:
        """See ``render.Door``."""
        if self._page is not None:
            self._send(render.LIBRARY, made)

    def display(self, output: render.ShowOutput) -> None:
        """Send a display, or an update of one."""
        transient = {"display_id": output.display_id} if output.display_id else {}
        content = {"data": dict(output.data), "metadata": dict(output.metadata), "transient": transient}
        self._send("update_display_data" if output.update else "display_data", content)

    def _send(self, kind: str, content: Mapping[str, object]) -> None:
        if not self._silent:
            self._publisher.publish(kind, content, self._parent)


def failure_fields(failure: CellError) -> dict[str, object]:
    """Return the three fields of an error, for the message and for the reply."""
    return {
        "ename": encodable(failure.ename),
        "evalue": encodable(failure.evalue),
        "traceback": [encodable(line) for line in failure.traceback],
    }


class LateOutput:
    """Shows output that comes after the end of its cell, on any thread; ``messages`` returns what a page gets."""

    def __init__(self, door: KernelDoor, messages: Callable[[SessionDisplay], list[render.Message]]) -> None:
        self._door = door
        self._messages = messages
        self._filters: dict[str, ColourFilter] = {}
        self._lock = threading.Lock()
        self._held: list[Callable[[], None]] | None = []

    def open(self) -> None:
        """The cell has sent its last message: what came meanwhile follows it, and so does all that comes later."""
        with self._lock:
            held, self._held = self._held or [], None
            for send in held:
                send()

    def _send(self, send: Callable[[], None]) -> None:
        with self._lock:
            if self._held is not None:
                self._held.append(send)
            else:
                send()

    def text(self, stream: str, text: str) -> None:
        """See ``LateListener``. Text is cleaned as that of a running cell is."""
        shown = unmarked(self._filters.setdefault(stream, ColourFilter()).feed(text))
        if shown:
            self._send(lambda: self._door.stream(stream, shown))

    def display(self, display: SessionDisplay) -> None:
        """See ``LateListener``."""
        for message in self._messages(display):
            if isinstance(message, render.ShowOutput):
                self._send(partial(self._door.message, message))

    def cut(self) -> None:
        """See ``LateListener``."""
        told = f"{END}\n{MARK} further output of this cell after its end is not shown: it is too much\n"
        self._send(lambda: self._door.stream("stderr", told))


class StdinChannel:
    """The kernel's stdin socket for one cell: prompts go to the client that sent the cell, from any thread."""

    def __init__(self, channels: Any, parent: Mapping[str, object], ident: object) -> None:
        self._channels = channels
        self._parent = parent
        self._ident = ident
        self._asked = ""

    def ask(self, prompt: str, password: bool) -> None:
        """Send a prompt to the client that runs the cell, and discard answers to earlier prompts."""
        while self._channels.stdin.poll(0, zmq.POLLIN):
            self._channels.stdin.recv_multipart(zmq.NOBLOCK)
        content = {"prompt": prompt, "password": password}
        self._asked = self._channels.send(self._channels.stdin, "input_request", content, self._parent, self._ident)

    def poll(self) -> Mapping[str, object] | None:
        """Return the answer, if it has come. One that names another prompt is dropped."""
        _, reply = self._channels.recv(self._channels.stdin, zmq.NOBLOCK)
        if reply is None or reply.get("msg_type") != "input_reply":
            return None
        asked = (reply.get("parent_header") or {}).get("msg_id")
        content = reply.get("content")
        return content if asked in (None, self._asked) and isinstance(content, Mapping) else None


class NotebookPrompts:
    """The input prompts of one cell, over Jupyter's stdin channel. All cells of a kernel share its socket and a lock.

    Stop works while one waits, and ends it. A program's begins with ``PROMPT_MARK``, to look like none of Jupyter's.
    """

    def __init__(self, channel: StdinChannel, lock: threading.Lock, cancel: asyncio.Event, allowed: bool) -> None:
        self._channel = channel
        self._lock = lock
        self._cancel = cancel
        self._allowed = allowed
        self._asked = 0

    async def ask(self, prompt: str, password: bool = False) -> str:
        """Ask the user for a line. Raises ``EOFError`` with the reason if there is no answer."""
        self._asked += 1
        if not self._allowed:
            raise EOFError(REFUSED)
        if self._asked > MAX_QUESTIONS:
            raise EOFError(f"this cell has asked for input {MAX_QUESTIONS} times; further prompts are refused")
        answer = await self._answer(render.PROMPT_MARK + render.one_line(prompt, _MAX_PROMPT), bool(password))
        if answer is None:
            # The cell is being interrupted: wait, so that the program gets the interrupt and not an EOFError.
            await asyncio.sleep(_INTERRUPT_S)
            raise EOFError("interrupted while waiting for input")
        value = answer.get("value")
        if not isinstance(value, str) or value == "\x04":
            raise EOFError("the user ended the input")
        return value

    async def question(self, text: str) -> str | None:
        """Ask the user something ourselves. Returns None without an answer; the cell then goes on as if not asked."""
        if not self._allowed:
            return None
        answer = None
        with contextlib.suppress(TimeoutError):
            answer = await asyncio.wait_for(self._answer(text, False), QUESTION_S)
        value = None if answer is None else answer.get("value")
        return value if isinstance(value, str) else None

    async def _answer(self, prompt: str, password: bool) -> Mapping[str, object] | None:
        while not self._lock.acquire(blocking=False):
            if await self._stopped():
                return None
        try:
            self._channel.ask(prompt, password)
            while (answer := self._channel.poll()) is None:
                if await self._stopped():
                    return None
            return answer
        finally:
            self._lock.release()

    async def _stopped(self) -> bool:
        """Wait for ``_POLL_S`` and return whether the cell must stop."""
        try:
            await asyncio.wait_for(self._cancel.wait(), _POLL_S)
        except TimeoutError:
            return False
        return True

"""``input()`` of a sandboxed program, over Jupyter's stdin channel.

The base class's ``raw_input`` blocks the event loop, so that neither an interrupt nor a Stop button gets through. Here
the question waits on the loop and gives up when the cell is cancelled. The prompt is marked as the sandbox's: a program
that asks for "Jupyter password" must not look like Jupyter.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import Any, Protocol

import zmq

from sandbox_kernel.notebook.render import one_line

PROMPT_MARK = "sandbox asks: "
MAX_QUESTIONS = 1000
_MAX_PROMPT = 1000
_POLL_S = 0.01
#: Longer than an interrupt needs to reach a session's worker.
_INTERRUPT_S = 1.0

REFUSED = "this client cannot be asked for input; give the text with %%sandbox --stdin TEXT"


class PromptChannel(Protocol):
    """What a question needs; ``StdinChannel`` is the real one."""

    def drain(self) -> None:
        """Throw away answers to older questions."""

    def ask(self, prompt: str, password: bool) -> None:
        """Send the question to the client that runs the cell."""

    def poll(self) -> Mapping[str, object] | None:
        """The content of an answer, if one is there."""


class StdinChannel:
    """The kernel's stdin socket for one cell: questions go to the client that sent it, whatever thread asks."""

    def __init__(self, session: Any, socket: Any, parent: Mapping[str, object], ident: object) -> None:
        self._session = session
        self._socket = socket
        self._parent = parent
        self._ident = ident

    def drain(self) -> None:
        """See ``PromptChannel``."""
        while self._socket.poll(0, zmq.POLLIN):
            self._socket.recv_multipart(zmq.NOBLOCK)

    def ask(self, prompt: str, password: bool) -> None:
        """See ``PromptChannel``."""
        content = {"prompt": prompt, "password": password}
        self._session.send(self._socket, "input_request", content, self._parent, ident=self._ident)

    def poll(self) -> Mapping[str, object] | None:
        """See ``PromptChannel``."""
        _, reply = self._session.recv(self._socket, zmq.NOBLOCK)
        content = reply.get("content") if reply is not None else None
        return content if isinstance(content, Mapping) else None


class NotebookPrompts:
    """The questions of one cell; the lock is shared by all cells of a kernel, which has one stdin socket."""

    def __init__(self, channel: PromptChannel, lock: threading.Lock, cancel: asyncio.Event, allowed: bool) -> None:
        self._channel = channel
        self._lock = lock
        self._cancel = cancel
        self._allowed = allowed
        self._asked = 0

    async def ask(self, prompt: str, password: bool = False) -> str:
        """Ask the user; ``EOFError`` with the reason when there is no answer."""
        self._asked += 1
        if not self._allowed:
            raise EOFError(REFUSED)
        if self._asked > MAX_QUESTIONS:
            raise EOFError(f"this cell has asked for input {MAX_QUESTIONS} times; no more questions are passed on")
        answer = await self._answer(PROMPT_MARK + one_line(prompt, _MAX_PROMPT), bool(password))
        if answer is None:
            # The cell is being interrupted: that is what its question is to meet, and not the end of a file.
            await asyncio.sleep(_INTERRUPT_S)
            raise EOFError("interrupted while waiting for input")
        value = answer.get("value")
        if not isinstance(value, str) or value == "\x04":
            raise EOFError("the user ended the input")
        return value

    async def _answer(self, prompt: str, password: bool) -> Mapping[str, object] | None:
        """The content of the answer, or None when the cell is stopped while it waits."""
        while not self._lock.acquire(blocking=False):
            if await self._stopped():
                return None
        try:
            self._channel.drain()
            self._channel.ask(prompt, password)
            while (answer := self._channel.poll()) is None:
                if await self._stopped():
                    return None
            return answer
        finally:
            self._lock.release()

    async def _stopped(self) -> bool:
        """Wait a little; whether the cell shall stop."""
        try:
            await asyncio.wait_for(self._cancel.wait(), _POLL_S)
        except TimeoutError:
            return False
        return True

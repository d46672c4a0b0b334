"""``input()`` of a sandboxed program, over Jupyter's stdin channel.

A prompt waits on the event loop and does not block it, so that interrupts and the Stop button work meanwhile; it ends
when the cell is cancelled. Each prompt begins with ``PROMPT_MARK``, so that a program that
asks for a "Jupyter password" does not look like Jupyter.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Mapping
from typing import Any, Protocol

import zmq

from sandbox_kernel.notebook.render import one_line

PROMPT_MARK = "sandbox asks: "
MAX_QUESTIONS = 1000
_MAX_PROMPT = 1000
_POLL_S = 0.01
#: Longer than an interrupt takes to reach a session's worker.
_INTERRUPT_S = 1.0
#: How long a question of ours waits. A client may say that it takes questions and have nobody who answers them.
QUESTION_S = 30.0

REFUSED = "this client cannot be asked for input; give the text with %%sandbox --stdin TEXT"


class PromptChannel(Protocol):
    """How prompts are sent to the client; ``StdinChannel`` implements it."""

    def drain(self) -> None:
        """Discard answers to earlier prompts."""

    def ask(self, prompt: str, password: bool) -> None:
        """Send a prompt to the client that runs the cell."""

    def poll(self) -> Mapping[str, object] | None:
        """Return the content of the answer, or None if it has not come yet."""


class StdinChannel:
    """The kernel's stdin socket for one cell: prompts go to the client that sent the cell, from any thread."""

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
    """The input prompts of one cell. All cells of a kernel share the lock, because it has one stdin socket."""

    def __init__(self, channel: PromptChannel, lock: threading.Lock, cancel: asyncio.Event, allowed: bool) -> None:
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
        answer = await self._answer(PROMPT_MARK + one_line(prompt, _MAX_PROMPT), bool(password))
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
        """Return the content of the answer, or None if the cell was stopped first."""
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
        """Wait for ``_POLL_S`` and return whether the cell must stop."""
        try:
            await asyncio.wait_for(self._cancel.wait(), _POLL_S)
        except TimeoutError:
            return False
        return True

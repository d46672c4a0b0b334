"""The channel of a step that reports: what it says of its own end, and what it asks of its user before."""

from __future__ import annotations

import contextlib
import selectors
import socket

from sandbox_kernel.jail.core.gate_messages import MAX_REPORT, answer, question
from sandbox_kernel.jail.streams.input_prompts import InputPrompts


class ReportChannel:
    """The host's end, watched by the loop of the run. Without ``questions`` everything that it says is its end."""

    def __init__(self, sock: socket.socket, selector: selectors.BaseSelector, questions: InputPrompts | None) -> None:
        self._socket, self._selector, self._questions = sock, selector, questions
        #: Who speaks has begun, even when the gate has not got round to saying so.
        self.spoke = False
        #: The step has said how it ended; what it would still do is take itself down, and killing it is faster.
        self.reported = False

    def listen(self) -> None:
        """Hear the next thing that the step says; it is not listened to while a question of its is open."""
        self._selector.register(self._socket, selectors.EVENT_READ, self._hear)

    def _hear(self, fd: int) -> None:
        try:
            said = self._socket.recv(MAX_REPORT, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except OSError:
            said = b""
        self._selector.unregister(fd)
        self.spoke = self.spoke or bool(said)
        prompt = question(said) if self._questions is not None else None
        if self._questions is not None and prompt is not None:
            self._socket.recv(MAX_REPORT)
            self._questions.ask(prompt, self._answered)
        else:
            self.reported = bool(said)

    def _answered(self, text: str | None) -> None:
        with contextlib.suppress(OSError):  # it is gone, or does not listen: its end or the clock will say so
            self._socket.send(answer(text), socket.MSG_DONTWAIT)
        self.listen()

    def report(self) -> bytes:
        """What the step said last; called when it is over."""
        self._socket.setblocking(False)
        with contextlib.suppress(OSError):
            return self._socket.recv(MAX_REPORT)
        return b""

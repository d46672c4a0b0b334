"""The channel of a step that reports: its report, and its input prompts before that."""

from __future__ import annotations

import contextlib
import selectors
import socket

from sandbox_kernel.jail.core.gate_messages import MAX_REPORT, answer, question
from sandbox_kernel.jail.streams.input_prompts import InputPrompts


class ReportChannel:
    """The host's end of the channel. Without ``questions``, everything that the step writes is its report."""

    def __init__(self, sock: socket.socket, selector: selectors.BaseSelector, questions: InputPrompts | None) -> None:
        self._socket, self._selector, self._questions = sock, selector, questions
        #: Whether the step wrote something. It has then begun, even if the gate has not reported that yet.
        self.has_written = False
        #: Whether the step has reported. After that it would only shut down, and killing it is faster.
        self.reported = False

    def listen(self) -> None:
        """Wait for the next message of the step. Not called while a prompt of the step is open."""
        self._selector.register(self._socket, selectors.EVENT_READ, self._on_readable)

    def _on_readable(self, fd: int) -> None:
        try:
            said = self._socket.recv(MAX_REPORT, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except OSError:
            said = b""
        self._selector.unregister(fd)
        self.has_written = self.has_written or bool(said)
        prompt = question(said) if self._questions is not None else None
        if self._questions is not None and prompt is not None:
            self._socket.recv(MAX_REPORT)
            self._questions.ask(prompt, self._answered)
        else:
            self.reported = bool(said)

    def _answered(self, text: str | None) -> None:
        with contextlib.suppress(OSError):  # the step is gone or does not read: its end or the time limit will end it
            self._socket.send(answer(text), socket.MSG_DONTWAIT)
        self.listen()

    def report(self) -> bytes:
        """Return what the step wrote last. Called when it is over."""
        self._socket.setblocking(False)
        with contextlib.suppress(OSError):
            return self._socket.recv(MAX_REPORT)
        return b""

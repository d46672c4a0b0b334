"""The channel of a step that reports: what it says of its own end, and what it asks of its user before."""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections.abc import Callable

from sandbox_kernel.jail.asking import Asking, OnInput
from sandbox_kernel.jail.control import MAX_REPORT, answer, question


class ReportChannel:
    """The host's end, watched by the loop of the run.

    ``before_question`` is called before the user is asked, so that what was printed is seen first.
    """

    def __init__(
        self,
        sock: socket.socket,
        selector: selectors.BaseSelector,
        on_input: OnInput | None,
        before_question: Callable[[], None],
    ) -> None:
        self._socket, self._selector, self._on_input = sock, selector, on_input
        self._before_question = before_question
        #: The question that is open now; the step is not listened to until it has its answer.
        self.asking: Asking | None = None
        #: How long the user has been thinking, all answered questions together.
        self.asked_s = 0.0
        #: Who speaks has begun, even when the gate has not got round to saying so.
        self.spoke = False
        #: The step has said how it ended; what it would still do is take itself down, and killing it is faster.
        self.reported = False
        #: The user interrupted a question.
        self.cancelled = False

    def listen(self) -> None:
        """Hear the next thing that the step says."""
        self._selector.register(self._socket, selectors.EVENT_READ, self._hear)

    def _hear(self, fd: int) -> None:
        try:
            said = self._socket.recv(MAX_REPORT, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except OSError:
            said = b""
        self._selector.unregister(fd)
        self.spoke = self.spoke or bool(said)
        prompt = question(said) if self._on_input is not None else None
        if prompt is not None:
            self._ask(prompt)
        else:
            self.reported = bool(said)

    def _ask(self, prompt: str) -> None:
        self._socket.recv(MAX_REPORT)
        self._before_question()
        assert self._on_input is not None
        self.asking = Asking(prompt, False, self._on_input)
        self._selector.register(self.asking, selectors.EVENT_READ, self._answered)

    def _answered(self, fd: int) -> None:
        asking, self.asking = self.asking, None
        assert asking is not None
        self._selector.unregister(fd)
        asking.close()
        self.asked_s += time.monotonic() - asking.began
        if isinstance(asking.failure, KeyboardInterrupt):
            self.cancelled = True
            return
        if asking.failure is not None and not isinstance(asking.failure, EOFError):
            raise asking.failure
        with contextlib.suppress(OSError):  # it is gone, or does not listen: its end or the clock will say so
            self._socket.send(answer(asking.text), socket.MSG_DONTWAIT)
        self.listen()

    def report(self) -> bytes:
        """What the step said last; called when it is over."""
        self._socket.setblocking(False)
        with contextlib.suppress(OSError):
            return self._socket.recv(MAX_REPORT)
        return b""

    def close(self) -> None:
        """Nobody waits for an answer any more; may be called twice."""
        if self.asking is not None:
            self.asking.close()

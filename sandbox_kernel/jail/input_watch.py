"""Asks the user for a line whenever a program waits for one; looked at by the tick of the loop that watches it."""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable

from sandbox_kernel.jail.asking import Asking, OnInput
from sandbox_kernel.jail.feeder import Feeder
from sandbox_kernel.jail.waiting_reader import CannotTell, waits_for_input

#: How often it is looked; a person notices no less.
LOOK_S = 0.04
#: After so many looks in a row that told nothing, none will.
_LOOKS = 5


class InputWatch:
    """The standard input of one run whose user can be asked.

    ``before_question`` is called before the user is asked, so that what was printed is seen first. Where nobody can
    tell whether the program waits, its input ends at once, as if there were no user.
    """

    def __init__(
        self, feeder: Feeder, selector: selectors.BaseSelector, on_input: OnInput, before_question: Callable[[], None]
    ) -> None:
        self._feeder, self._selector, self._on_input = feeder, selector, on_input
        self._before_question = before_question
        self._next_look = 0.0
        self._seen_waiting = False
        self._in_vain = 0
        #: The question that is open now.
        self.asking: Asking | None = None
        #: How long the user has been thinking, all answered questions together.
        self.asked_s = 0.0
        #: The user interrupted a question.
        self.cancelled = False

    def look(self, init_pid: int) -> None:
        """Ask, if the program waits and has not been asked for yet."""
        now = time.monotonic()
        if now < self._next_look or self.asking is not None or not self._feeder.idle:
            return
        self._next_look = now + LOOK_S
        try:
            waits = waits_for_input(init_pid, self._feeder.fd)
        except CannotTell:
            self._in_vain += 1
            if self._in_vain == _LOOKS:
                self._feeder.close()
            return
        self._in_vain = 0
        # Seen twice: event loops look at everything that they watched once more before they end.
        asks, self._seen_waiting = waits and self._seen_waiting, waits
        if asks:
            self._seen_waiting = False
            self._before_question()
            self.asking = Asking("", False, self._on_input)
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
        if asking.text is None:
            self._feeder.close()
        else:
            self._feeder.add(f"{asking.text}\n".encode())
            self._feeder.attend(self._selector)

    def close(self) -> None:
        """Nobody waits for an answer any more; may be called twice."""
        if self.asking is not None:
            self.asking.close()

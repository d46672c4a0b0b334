"""Asks the user for a line whenever a program waits for one; looked at by the tick of the loop that watches it."""

from __future__ import annotations

import selectors
import time

from sandbox_kernel.jail.streams.blocked_reader import CannotTell, waits_for_input
from sandbox_kernel.jail.streams.input_prompts import InputPrompts
from sandbox_kernel.jail.streams.stdin_feeder import Feeder

#: How often it is looked; a person notices no less.
LOOK_S = 0.04
#: After so many looks in a row that told nothing, none will.
_LOOKS = 5


class InputWatch:
    """The standard input of one run whose user can be asked.

    Where nobody can tell whether the program waits, its input ends at once, as if there were no user.
    """

    def __init__(self, feeder: Feeder, selector: selectors.BaseSelector, questions: InputPrompts) -> None:
        self._feeder, self._selector, self._questions = feeder, selector, questions
        self._next_look = 0.0
        self._seen_waiting = False
        self._in_vain = 0

    def look(self, init_pid: int) -> None:
        """Ask, if the program waits and has not been asked for yet."""
        now = time.monotonic()
        if now < self._next_look or self._questions.open is not None or not self._feeder.idle:
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
            self._questions.ask("", self._answered)

    def _answered(self, text: str | None) -> None:
        if text is None:
            self._feeder.close()
        else:
            self._feeder.add(f"{text}\n".encode())
            self._feeder.attend(self._selector)

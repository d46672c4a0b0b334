"""Asks the user for a line when a program waits for input. Called at each tick of the loop that watches the program."""

from __future__ import annotations

import selectors
import time

from sandbox_kernel.jail.streams.blocked_reader import CannotTell, waits_for_input
from sandbox_kernel.jail.streams.input_prompts import InputPrompts
from sandbox_kernel.jail.streams.stdin_feeder import Feeder

#: Seconds between two checks; short enough for a person not to notice.
LOOK_S = 0.04
#: After this many checks in a row without a result, checking is given up.
_LOOKS = 5


class InputWatch:
    """The standard input of one run whose user can be asked.

    If it cannot be detected whether the program waits, the input ends at once, as if there were no user.
    """

    def __init__(self, feeder: Feeder, selector: selectors.BaseSelector, questions: InputPrompts) -> None:
        self._feeder, self._selector, self._questions = feeder, selector, questions
        self._next_look = 0.0
        self._seen_waiting = False
        self._in_vain = 0

    def look(self, init_pid: int) -> None:
        """Ask the user if the program waits and no prompt is open."""
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
        # Must be seen twice: event loops check all their descriptors once more before they end.
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

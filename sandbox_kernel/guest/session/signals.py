"""Delivers signals to a cell while it runs and holds them back between cells.

A signal mask covers one thread only. A thread that a cell or its library started may receive a signal at any time;
Python then runs the handler on the main thread. If that is in our own loop, an exception of the handler would lose a
message. So between cells the user's handlers are replaced as well.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # below signal, which makes an enumeration of every answer
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Set

EVERY_SIGNAL = _signal.valid_signals()
#: References taken before the first cell, because a cell may replace these functions.
set_mask, _pending, _take, _raise = _signal.pthread_sigmask, _signal.sigpending, _signal.sigwait, signal.raise_signal
SIG_BLOCK, SIG_UNBLOCK, SIG_SETMASK = _signal.SIG_BLOCK, _signal.SIG_UNBLOCK, _signal.SIG_SETMASK
_handler_of, _handle = _signal.getsignal, _signal.signal


class Signals:
    """The signals of a worker's process. Used by its main thread only."""

    def __init__(self) -> None:
        self._aside: Dict[int, Any] = {}
        self._late: Set[int] = set()
        self._note = self._late_one

    def _late_one(self, number: int, frame: object) -> None:
        """The handler between cells: note the signal for ``release``."""
        self._late.add(number)

    def hold(self) -> None:
        """Block all signals and take the user's handlers away; call it again if one that came just before raises."""
        set_mask(SIG_BLOCK, EVERY_SIGNAL)
        for number in EVERY_SIGNAL:
            handler = _handler_of(number)
            if callable(handler) and handler is not self._note:
                self._aside[number] = handler
                _handle(number, self._note)

    def forget_interrupts(self) -> None:
        """Discard interrupts that came too late for the last cell; called while signals are held."""
        while signal.SIGINT in _pending():
            _take({signal.SIGINT})
        self._late.discard(signal.SIGINT)

    def was_interrupted(self) -> bool:
        """Whether an interrupt has come while signals are held."""
        return signal.SIGINT in self._late or signal.SIGINT in _pending()

    def release(self) -> None:
        """Restore the user's handlers and unblock all signals. Signals that came meanwhile are delivered in here."""
        for number, handler in list(self._aside.items()):
            _handle(number, handler)
            del self._aside[number]
        while self._late:
            # It stays pending until the mask is cleared below.
            _raise(self._late.pop())
        set_mask(SIG_SETMASK, [])

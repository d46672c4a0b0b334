"""Whose the signals are: the cell's while it runs, nobody's between cells.

A mask holds for one thread only. A thread that a cell started, or a library of its, takes signals at any time, and
Python then runs the handler on the main thread, wherever that is: an exception of the handler's would fall into our own
loop and lose a message. So between cells the handlers are put aside as well.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # below signal, which makes an enumeration of every answer
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Set

EVERY_SIGNAL = signal.valid_signals()
#: Ours, whatever a cell puts in their place.
_mask, _pending, _take, _raise = _signal.pthread_sigmask, _signal.sigpending, _signal.sigwait, signal.raise_signal
_handler_of, _handle = _signal.getsignal, _signal.signal


class Signals:
    """The signals of a worker's process. Used by its main thread only."""

    def __init__(self) -> None:
        self._aside: Dict[int, Any] = {}
        self._late: Set[int] = set()
        self._note = self._late_one

    def _late_one(self, number: int, frame: object) -> None:
        """The handler between cells."""
        self._late.add(number)

    def hold(self) -> None:
        """From here on nothing strikes. What came before may strike in here; then call it again."""
        _mask(signal.SIG_BLOCK, EVERY_SIGNAL)
        for number in EVERY_SIGNAL:
            handler = _handler_of(number)
            if callable(handler) and handler is not self._note:
                self._aside[number] = handler
                _handle(number, self._note)

    def forget_interrupts(self) -> None:
        """An interrupt that came too late for the last cell must not end the next one; called while they are held."""
        while signal.SIGINT in _pending():
            _take({signal.SIGINT})
        self._late.discard(signal.SIGINT)

    def release(self) -> None:
        """The cell's from here on, those that came meanwhile included; they strike in here."""
        for number, handler in list(self._aside.items()):
            _handle(number, handler)
            del self._aside[number]
        while self._late:
            # Pending until the mask is lifted.
            _raise(self._late.pop())
        _mask(signal.SIG_SETMASK, [])

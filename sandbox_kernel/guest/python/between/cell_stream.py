"""``sys.stdout`` and ``sys.stderr`` of a session: text of the running cell goes to the pipe, other text to its cell.

Text of threads, and of tasks whose cell has ended, is sent as a message with the number of their cell. Only a front end
has a place for it; without one all text goes to the pipe.
"""

from __future__ import annotations

import io
import os
import sys
import threading

from .belonging import current

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict

#: How much text waits for the end of its line, in characters; the host accepts no longer piece.
MAX_WAITING = 8192
_MAIN = threading.main_thread().ident


class CellStream(io.TextIOWrapper):
    """One stream. ``late`` sends text to its cell; ``running`` returns whose text is for the pipe.

    ``running`` returns the running cell, minus the last cell between cells, and 0 when all text is for the pipe:
    without a front end, and in a forked process. Text of threads is always sent: their cell may end between two writes.
    """

    def follow(self, name: str, running: Callable[[], int], late: Callable[[str, int, str], None]) -> None:
        """Begin to tell cells apart; called once."""
        self._name, self._running, self._late = name, running, late
        self._waiting = threading.local()

    def write(self, text: str) -> int:
        """Write text to the place that it belongs to."""
        running = self._running()
        if not running or not isinstance(text, str):
            return super().write(text)
        cell = current() or abs(running)
        if cell == running and threading.get_ident() == _MAIN:
            return super().write(text)
        held: Dict[Any, str] = self._waiting.__dict__
        whole = held.pop(cell, "") + text
        if "\n" in text or len(whole) > MAX_WAITING:
            self._send(cell, whole)
        else:
            held[cell] = whole
        return len(text)

    def flush(self) -> None:
        """Write everything that this thread has written."""
        held: Dict[Any, str] = self.__dict__["_waiting"].__dict__ if "_waiting" in self.__dict__ else {}
        for cell in list(held):
            self._send(cell, held.pop(cell))
        super().flush()

    def _send(self, cell: int, text: str) -> None:
        super().flush()  # what was printed before it comes before it
        for start in range(0, len(text), MAX_WAITING):
            self._late(self._name, cell, text[start : start + MAX_WAITING])

    def _is_master_process(self) -> bool:
        """Whether this is the session's process; programs written for ipykernel ask this."""
        return os.getpid() == self._pid

    _pid = 0


def replace_streams(pid: int, running: Callable[[], int], late: Callable[[str, int, str], None]) -> None:
    """Put a ``CellStream`` in the place of each standard stream."""
    for name in ("stdout", "stderr"):
        old: Any = getattr(sys, name)
        old.flush()
        new = CellStream(
            old.buffer,
            encoding=old.encoding,
            errors=old.errors,
            line_buffering=old.line_buffering,
            write_through=old.write_through,
        )
        new._pid = pid
        new.follow(name, running, late)
        setattr(sys, name, new)

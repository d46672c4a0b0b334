"""The time that a cell stands at breakpoints. It is the user's time, and does not count for the cell's time limit.

The session says when it stands, and may lie. So the time is bounded: after ``MAX_PAUSE_S`` the cell's clock goes on.
Memory, CPU time and all other limits hold meanwhile.
"""

from __future__ import annotations

import threading
import time

#: How long a cell may stand at breakpoints, all together.
MAX_PAUSE_S = 1800.0


class PauseClock:
    """Counts the seconds of one cell at a time. Thread-safe: the link's thread stops it, the cell's loop reads it."""

    def __init__(self, limit_s: float = MAX_PAUSE_S) -> None:
        self._limit_s = limit_s
        self._lock = threading.Lock()
        self._since: float | None = None
        self._before = 0.0

    def begin_cell(self) -> None:
        """A cell begins: it has not stood yet."""
        with self._lock:
            self._since, self._before = None, 0.0

    def stand(self) -> None:
        """The cell stands at a breakpoint from now on."""
        with self._lock:
            if self._since is None:
                self._since = time.monotonic()

    def go_on(self) -> None:
        """The cell goes on."""
        with self._lock:
            if self._since is not None:
                self._before += time.monotonic() - self._since
                self._since = None

    def seconds(self) -> float:
        """Return how long the cell has stood, at most the limit."""
        with self._lock:
            now = 0.0 if self._since is None else time.monotonic() - self._since
            return min(self._limit_s, self._before + now)

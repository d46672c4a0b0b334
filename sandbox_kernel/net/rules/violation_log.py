"""The refusals of one sandbox, kept for its result: each once, and never more than can be read."""

from __future__ import annotations

import threading

from sandbox_kernel.model import Violation

#: A program that is refused in a loop must not grow the host's memory or the notebook.
MAX_KEPT = 100


class ViolationLog:
    """Collects distinct violations in order; safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, str], Violation] = {}

    def add(self, violation: Violation) -> None:
        """Keep it unless the same rule already refused the same subject, or the log is full."""
        with self._lock:
            if len(self._kept) < MAX_KEPT:
                self._kept.setdefault((violation.rule, violation.subject), violation)

    def take(self) -> tuple[Violation, ...]:
        """What was refused since the last time; a session asks after each cell."""
        with self._lock:
            found, self._kept = tuple(self._kept.values()), {}
            return found

    def snapshot(self) -> tuple[Violation, ...]:
        """What was refused so far."""
        with self._lock:
            return tuple(self._kept.values())

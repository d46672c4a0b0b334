"""Collects the refusals of one sandbox for its result: each once, and at most ``MAX_KEPT``."""

from __future__ import annotations

import threading

from sandbox_kernel.model import Violation

#: Bounds host memory and the notebook when a program is refused in a loop.
MAX_KEPT = 100


class ViolationLog:
    """Collects distinct violations in order; safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[tuple[str, str], Violation] = {}

    def add(self, violation: Violation) -> None:
        """Add a violation unless the same rule already refused the same subject, or the log is full."""
        with self._lock:
            if len(self._kept) < MAX_KEPT:
                self._kept.setdefault((violation.rule, violation.subject), violation)

    def take(self) -> tuple[Violation, ...]:
        """Return the violations since the last call and clear the log. A session calls it after each cell."""
        with self._lock:
            found, self._kept = tuple(self._kept.values()), {}
            return found

    def snapshot(self) -> tuple[Violation, ...]:
        """Return all violations in the log."""
        with self._lock:
            return tuple(self._kept.values())

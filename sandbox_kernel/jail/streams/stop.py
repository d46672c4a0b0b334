"""The stop sign of a run: whoever watches the run sees it in its selector, whoever wants its end raises it."""

from __future__ import annotations

import os
import threading


class Stop:
    """A stop sign that a selector can see and any thread can raise."""

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._lock = threading.Lock()
        self.raised = False

    def fileno(self) -> int:
        """For ``selectors``."""
        return self._fd

    def set(self) -> None:
        """Raise it; may be called twice, from any thread, and after the run is over."""
        with self._lock:
            self.raised = True
            if self._fd >= 0:
                os.eventfd_write(self._fd, 1)

    def close(self) -> None:
        """Give back the descriptor; may be called twice."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
            self._fd = -1

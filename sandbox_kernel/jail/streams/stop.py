"""The stop signal of a run: any thread sets it, and the loop of the run waits for it in its selector."""

from __future__ import annotations

import os
import select
import threading


class Stop:
    """A flag that any thread can set and a selector can wait for.

    Args:
        fd: The event descriptor; None makes one. A subclass with another descriptor gives -1.

    """

    def __init__(self, fd: int | None = None) -> None:
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) if fd is None else fd
        self._lock = threading.Lock()
        self.raised = False

    def fileno(self) -> int:
        """Return the descriptor for ``selectors``."""
        return self._fd

    def set(self) -> None:
        """Set it. May be called twice, from any thread, and after the run is over."""
        with self._lock:
            self.raised = True
            if self._fd >= 0:
                os.eventfd_write(self._fd, 1)

    def close(self) -> None:
        """Close the descriptor. May be called twice."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
            self._fd = -1


# Waits for one descriptor of any number. ``select`` accepts only the first thousand, and a host may have more.


def readable(fd: int, timeout_s: float) -> bool:
    """Whether the descriptor becomes readable, or reaches its end, within this time."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(max(0.0, timeout_s) * 1000))

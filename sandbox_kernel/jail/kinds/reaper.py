"""Cleans up killed jails in the background.

The kernel needs some milliseconds to take a killed jail apart: memory, mounts, namespaces. If the program reported its
end, or left no process, the caller need not wait for that: output and files are complete, and nothing inside runs. The
number of waiting cleanups is limited, and all of them are done before this process ends.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import threading
from collections.abc import Callable

#: The most cleanups at once. Above this the caller cleans up itself.
MOST = 8
#: How long the thread waits for more: starting one costs a run more than most cleanups.
_LINGER_S = 2.0
#: How long the exit of this process may wait for them.
_LAST_S = 10.0

Rest = Callable[[], None]


class Reaper:
    """One background thread that exists while there is work, and a little longer. Thread-safe."""

    def __init__(self, linger_s: float = _LINGER_S) -> None:
        self._linger_s = linger_s
        self._lock = threading.Lock()
        #: None: end, if there is nothing left.
        self._work: queue.SimpleQueue[Rest | None] = queue.SimpleQueue()
        self._left = 0
        self._idle = threading.Event()
        self._idle.set()
        self._thread: threading.Thread | None = None
        self._last: threading.Thread | None = None

    def take(self, rest: Rest) -> None:
        """Queue the cleanup of a jail, or do it now if the queue is full."""
        with self._lock:
            soon = self._left < MOST
            if soon:
                self._left += 1
                self._idle.clear()
                if self._thread is None:
                    self._thread = threading.Thread(target=self._serve, name="sandbox-reaper", daemon=True)
                    self._last = self._thread
                    self._thread.start()
        if soon:
            self._work.put(rest)
        else:
            rest()

    def wait(self, timeout_s: float = _LAST_S) -> bool:
        """Wait until all cleanups are done and the thread has ended; returns False after the timeout."""
        done = self._idle.wait(timeout_s)
        last = self._last
        if done and last is not None and last is not threading.current_thread():
            self._work.put(None)
            last.join(timeout_s)
        return done

    def _serve(self) -> None:
        while True:
            try:
                rest = self._work.get(timeout=self._linger_s)
            except queue.Empty:
                rest = None
            if rest is not None:
                # An error here has no caller to report to; the jail itself is dead.
                with contextlib.suppress(OSError):
                    rest()
            with self._lock:
                if rest is not None:
                    self._left -= 1
                if self._left == 0:
                    self._idle.set()
                    if rest is None:
                        self._thread = None
                        return


_ours = Reaper()


def bury(rest: Rest) -> None:
    """Queue the cleanup of a jail that was killed."""
    _ours.take(rest)


def wait_buried(timeout_s: float = _LAST_S) -> bool:
    """Wait until every queued cleanup is done; returns False after the timeout."""
    return _ours.wait(timeout_s)


def _forget() -> None:
    """In a forked child the dying jails belong to the parent."""
    global _ours
    _ours = Reaper()


atexit.register(wait_buried)
os.register_at_fork(after_in_child=_forget)

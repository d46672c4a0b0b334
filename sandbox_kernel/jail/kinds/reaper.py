"""Waits in the background for jails that were killed to be gone, and clears away what they leave.

The kernel takes some milliseconds to take a killed jail apart: memory, mounts, namespaces. When the program inside had
said how it ended before, nobody needs to wait for that: its output and its files are there, and nothing inside runs on.
What is still to be done is kept few, and is done before this process ends.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import threading
from collections.abc import Callable

#: Dying jails at once; who brings one more waits for its end himself.
MOST = 8
#: How long the end of this process may wait for them.
_LAST_S = 10.0

Rest = Callable[[], None]


class Reaper:
    """One thread, as long as there is something to do. Safe for several callers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._work: queue.SimpleQueue[Rest] = queue.SimpleQueue()
        self._left = 0
        self._idle = threading.Event()
        self._idle.set()
        self._thread: threading.Thread | None = None
        self._last: threading.Thread | None = None

    def take(self, rest: Rest) -> None:
        """Do the rest of somebody's end soon, or now when there is too much of it already."""
        with self._lock:
            soon = self._left < MOST
            if soon:
                self._left += 1
                self._idle.clear()
                if self._thread is None:
                    self._thread = threading.Thread(target=self._serve, name="sandbox-undertaker", daemon=True)
                    self._last = self._thread
                    self._thread.start()
        if soon:
            self._work.put(rest)
        else:
            rest()

    def wait(self, timeout_s: float = _LAST_S) -> bool:
        """Return when everything that was taken is done, and the thread is gone; False when it took too long."""
        done = self._idle.wait(timeout_s)
        last = self._last
        if done and last is not None and last is not threading.current_thread():
            last.join(timeout_s)
        return done

    def _serve(self) -> None:
        while True:
            rest = self._work.get()
            # Nobody is there to be told of what could not be given back; the jail itself is dead.
            with contextlib.suppress(OSError):
                rest()
            with self._lock:
                self._left -= 1
                if self._left == 0:
                    self._thread = None
                    self._idle.set()
                    return


_ours = Reaper()


def bury(rest: Rest) -> None:
    """Do this in the background; called with what is left of the end of a jail that has been killed."""
    _ours.take(rest)


def wait_buried(timeout_s: float = _LAST_S) -> bool:
    """Return when every jail that was buried is gone; False when that took too long."""
    return _ours.wait(timeout_s)


def _forget() -> None:
    """In a forked child the dying are the parent's."""
    global _ours
    _ours = Reaper()


atexit.register(wait_buried)
os.register_at_fork(after_in_child=_forget)

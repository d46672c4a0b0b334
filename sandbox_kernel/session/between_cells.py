"""Listens to a worker between cells, so that output of its threads and tasks is shown when it comes.

A thread of its own for each session with a front end. It waits until the session is idle and its worker has said
something, takes the turn, and hands the output on. All other messages are kept for the next cell.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref

from sandbox_kernel.jail.streams.readable import readable
from sandbox_kernel.session.present_worker import PresentWorker, StillBusy

#: How long a session may be held open by this thread after it was dropped.
_LOOK_S = 1.0
#: How many reads of a worker's channel there may be between two cells: a worker that floods is left alone then.
MAX_READS = 20_000


class BetweenCells:
    """The listener of one session. ``idle`` starts listening, ``busy`` stops it; both return at once."""

    def __init__(self, present: PresentWorker) -> None:
        self._present = weakref.ref(present)
        self._idle = threading.Event()
        self._reads = 0
        self._thread: threading.Thread | None = None

    def idle(self) -> None:
        """The session waits for a cell, and a front end listens: begin, in a thread that is made once."""
        self._reads = 0
        self._idle.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._listen, name="sandbox-between-cells", daemon=True)
            self._thread.start()

    def busy(self) -> None:
        """A cell begins: its own thread reads now."""
        self._idle.clear()

    def _listen(self) -> None:
        while True:
            self._idle.wait(_LOOK_S)
            present = self._present()
            if present is None or present.closed:
                return
            if self._idle.is_set() and not self._hear(present):
                self._idle.clear()
            del present

    def _hear(self, present: PresentWorker) -> bool:
        """Wait for a message and hand it on; False when there is nothing to listen to until the next cell."""
        live = present.live
        if live is None or live.channel.closed:
            return False
        try:
            # A descriptor of our own: the worker's may be closed while we wait, and its number used again.
            fd = os.dup(live.channel.fileno())
        except OSError:
            return False
        try:
            if not readable(fd, _LOOK_S):
                return True
        finally:
            os.close(fd)
        with contextlib.suppress(StillBusy), present.lock(_LOOK_S):
            if present.live is live and self._idle.is_set():
                self._reads += 1
                live.hear()
                return self._reads < MAX_READS and not live.channel.closed
        # Another thread has the turn, or the session has another worker: ``idle`` and ``busy`` say what comes next.
        return True

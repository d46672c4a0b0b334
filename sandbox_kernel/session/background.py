"""Listens to a worker between cells, so that output of its threads and tasks is shown when it comes.

A thread of its own for each session with a front end. It waits until the session is idle and its worker has said
something, takes the turn, and hands the output on. All other messages are kept for the next cell.
"""

from __future__ import annotations

import contextlib
import select
import threading
import weakref

from sandbox_kernel.errors import SessionError
from sandbox_kernel.session.cell.displays import HostWork
from sandbox_kernel.session.present_worker import PresentWorker, StillBusy
from sandbox_kernel.session.worker.gate_client import GateLost

#: How long a session may be held open by this thread after it was dropped, and how long nothing runs before evicted
#: checkpoints end.
_LOOK_S = 0.5
#: How many reads of a worker's channel there may be between two cells: a worker that floods is left alone then.
MAX_READS = 20_000


class BackgroundListener:
    """The listener of one session. ``idle`` starts listening, ``busy`` stops it; the caller of either has the turn.

    The thread waits at an epoll that stays: what a worker says while a cell runs does not wake it.
    """

    def __init__(self, present: PresentWorker) -> None:
        self._present = weakref.ref(present)
        self._epoll: select.epoll | None = None
        self._fd = -1
        self._reads = 0
        #: Begins with the first read after a cell.
        self._work: HostWork | None = None
        #: Whether a cell has run since the thread woke last.
        self._just_ran = False

    def idle(self) -> None:
        """The session waits for a cell, and a front end listens: begin, in a thread that is made once."""
        self.busy()
        present = self._present()
        live = present.live if present is not None else None
        if live is None or live.channel.closed:
            return
        if self._epoll is None:
            self._epoll = select.epoll()
            threading.Thread(target=self._listen, args=(self._epoll,), name="sandbox-background", daemon=True).start()
        self._reads, self._work, self._just_ran = 0, None, True
        with contextlib.suppress(OSError, ValueError):  # the worker has ended: there is nothing to hear
            self._epoll.register(live.channel.fileno(), select.EPOLLIN)
            self._fd = live.channel.fileno()

    def busy(self) -> None:
        """A cell begins: its own thread reads now."""
        if self._fd >= 0 and self._epoll is not None:
            with contextlib.suppress(OSError, ValueError):  # closed with its worker
                self._epoll.unregister(self._fd)
        self._fd = -1

    def _listen(self, epoll: select.epoll) -> None:
        with contextlib.closing(epoll):
            while True:
                found = epoll.poll(_LOOK_S)
                present = self._present()
                if present is None or present.closed:
                    return
                if found:
                    self._hear(present)
                elif self._just_ran:
                    self._just_ran = False
                else:
                    self._end_evicted(present)
                del present

    def _end_evicted(self, present: PresentWorker) -> None:
        """End evicted checkpoints, some each time: nothing has run for a while."""
        live = present.live
        if live is None or not live.evicted.nodes():
            return
        with contextlib.suppress(StillBusy, SessionError, GateLost), present.lock(0.0):
            # What is wrong with the worker is noticed by the next cell, and told.
            if present.live is live and self._fd >= 0:
                live.end_evicted()

    def _hear(self, present: PresentWorker) -> None:
        """Hand on what has come, if anything; a session whose turn another thread has is left to it."""
        with contextlib.suppress(StillBusy), present.lock(_LOOK_S):
            live = present.live
            if self._fd < 0 or live is None:
                return
            self._reads += 1
            self._work = self._work or HostWork()
            live.hear()
            if self._reads >= MAX_READS or self._work.is_used_up or live.channel.closed:
                self.busy()

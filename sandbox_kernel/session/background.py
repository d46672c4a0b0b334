"""What happens to a session between its cells, on a thread of its own: the one place for work of an idle session.

Output of threads and tasks is shown when it comes, checkpoints that are too many end, and limits that only the host
watches are checked. It takes the turn for each of these; other messages of the worker are kept for the next cell.
"""

from __future__ import annotations

import contextlib
import select
import threading
import time
import weakref
from typing import TYPE_CHECKING

from sandbox_kernel.errors import SessionError
from sandbox_kernel.session.cell.displays import HostWork
from sandbox_kernel.session.worker.gate_client import GateLost
from sandbox_kernel.session.worker.messages import DisplayShown, LateText

if TYPE_CHECKING:
    from sandbox_kernel.session.supervisor import WorkerSupervisor

#: How long a session may be held open by this thread after it was dropped; and how long nothing runs, after the thread
#: has seen that a cell ran, before checkpoints that are too many end.
_LOOK_S, _PAUSE_S = 0.5, 0.1
#: How often a session is brought back between two cells before it is started anew.
_MOST_BACK = 3
#: How many reads of a worker's channel there may be between two cells: a worker that floods is left alone then.
MAX_READS = 20_000


class BackgroundListener:
    """The listener of one session. ``idle`` starts listening, ``busy`` stops it; the caller of either has the turn.

    The thread waits at an epoll that stays: what a worker says while a cell runs does not wake it.
    """

    def __init__(self, supervisor: WorkerSupervisor) -> None:
        self._supervisor = weakref.ref(supervisor)
        self._epoll: select.epoll | None = None
        self._fd = -1
        self._reads = 0
        #: Begins with the first read after a cell.
        self._work: HostWork | None = None
        #: Whether a cell has run since the thread woke last.
        self._just_ran = False
        #: How often the session was brought back since the last cell; and when its limits were looked at.
        self._brought_back, self._looked = 0, 0.0

    def idle(self) -> None:
        """The session waits for a cell: begin, in a thread made once."""
        supervisor = self._supervisor()
        live = supervisor.live if supervisor is not None else None
        if live is None:
            return
        self.busy()
        if live.channel.closed:
            return
        if self._epoll is None:
            self._epoll = select.epoll()
            threading.Thread(target=self._listen, args=(self._epoll,), name="sandbox-background", daemon=True).start()
        self._reads, self._work, self._just_ran, self._brought_back = 0, None, True, 0
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
            wait_s = _LOOK_S
            while True:
                found = epoll.poll(wait_s)
                wait_s = _LOOK_S
                supervisor = self._supervisor()
                if supervisor is None or supervisor.closed:
                    return
                if found:
                    self._hear(supervisor)
                elif self._just_ran:
                    self._just_ran, wait_s = False, _PAUSE_S
                elif self._tidy(supervisor):
                    wait_s = 0.0
                self._watch(supervisor)
                del supervisor

    def _watch(self, supervisor: WorkerSupervisor) -> None:
        """Limits that only the host watches hold for processes that earlier cells left, too."""
        live, now = supervisor.live, time.monotonic()
        if live is None or now - self._looked < _LOOK_S:
            return
        self._looked = now
        with contextlib.suppress(SessionError), supervisor.lock(0.0):
            if supervisor.live is live and self._fd >= 0:
                # A task that lives on in the state that was brought back does it again; then the state goes too.
                anew = self._brought_back >= _MOST_BACK
                self._brought_back += supervisor.keep_limits(live, anew=anew)

    def _tidy(self, supervisor: WorkerSupervisor) -> bool:
        """End checkpoints that are too many: nothing has run for a while. Returns whether there is more to do."""
        live = supervisor.live
        if live is not None and live.tree.surplus > 0:
            # What is wrong with the worker is noticed by the next cell, and told.
            with contextlib.suppress(SessionError, GateLost), supervisor.lock(0.0):
                if supervisor.live is live and self._fd >= 0:
                    return live.end_some_surplus()
        return False

    def _hear(self, supervisor: WorkerSupervisor) -> None:
        """Hand on what has come, if anything; a session whose turn another thread has is left to it."""
        with contextlib.suppress(SessionError), supervisor.lock(_LOOK_S):
            live = supervisor.live
            if self._fd < 0 or live is None:
                return
            self._reads += 1
            self._work = self._work or HostWork()
            try:
                found = live.channel.read_new()
            except SessionError:
                self.busy()  # the next cell reads the same error, and says so
                return
            # First, because a front end may fail: one of them may be the report of a checkpoint.
            live.channel.put_back([each for each in found if not isinstance(each, LateText | DisplayShown)])
            for message in found:
                if isinstance(message, LateText | DisplayShown):
                    live.background.take(message)
            if self._reads >= MAX_READS or self._work.is_used_up or live.channel.closed:
                self.busy()

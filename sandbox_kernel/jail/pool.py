"""Spares: jails that are started in advance, each for exactly one run.

Starting walls and an interpreter takes longer than most programs, so the next jail of a kind is made in the background
while the last one is in use. A kind (``Walls``) is added at its first request, and dropped when it was not requested
for a while. If possible, all jails of a kind are forked from one template (``template.py``), so that a spare
costs little time and memory. Spares hold no secret. A spare that died or lost its control group is never used.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import field

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.jail.enforcer import start_jail
from sandbox_kernel.jail.jail import Jail
from sandbox_kernel.jail.rules import bubblewrap
from sandbox_kernel.jail.spawner import wait_buried
from sandbox_kernel.jail.template import NoLayer, Templates
from sandbox_kernel.jail.walls import Walls
from sandbox_kernel.util.values import dataclass

#: How many spares of each kind wait unless a backend is told otherwise (``pool_size``), and the most of one pool.
SPARES, MAX_SPARES = 2, 8
#: How long a kind is kept without a request.
IDLE_S = 300.0
#: How long a template is kept in a pool without spares.
IDLE_WITHOUT_SPARES_S = 10.0
#: After a jail was taken, the thread that makes spares waits CALM_S for the end of that run. If a spare is left, it
#: then waits PAUSE_S for the next request. If three requests came within RUSH_S, it does not wait: more will come.
CALM_S = 0.03
PAUSE_S = 0.01
RUSH_S = 0.1


@dataclass
class _KindSpares:
    """The spares of one kind."""

    spares: list[Jail] = field(default_factory=list)
    coming: int = 0
    asked_at: float = 0.0
    asked: int = 0


class Pool:
    """The spares of one process, ``size`` of each kind; thread-safe.

    A pool of size 0 makes each jail on request; from the second request of a kind on it is forked from a template.
    """

    def __init__(
        self, size: int = SPARES, start: Callable[[Walls], Jail] = start_jail, templates: Templates | None = None
    ) -> None:
        self.size = size
        self._start = start
        self._templates = templates if templates is not None else Templates()
        self._closed = False
        self._begin()
        _pools.add(self)

    def _begin(self) -> None:
        self._kinds: dict[Walls, _KindSpares] = {}
        #: A jail that was begun for a request to come; its walls are not up yet.
        self._begun: Jail | None = None
        self._lock = threading.Lock()
        self._work: queue.SimpleQueue[Walls | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        #: Cleared when a jail is taken, set when its run is over.
        self._run_over = threading.Event()
        self._run_over.set()
        #: Set when a jail is taken. ``_taken`` holds the times of the last three requests.
        self._request = threading.Event()
        self._taken: deque[float] = deque(maxlen=3)

    def take(self, walls: Walls, *, lasts: bool = False) -> Jail:
        """Return a ready jail of this kind: a spare if there is one, else a new jail.

        With ``lasts``, for a session, spares are made from the second request of a kind on: most notebooks have one
        session, and its spares would use half as much memory as itself.

        Raises ``NoLayer`` for walls over a folder of the host (``Walls.here``) that this host cannot make.
        """
        with self._lock:
            kind = self._kinds.setdefault(walls, _KindSpares())
            kind.asked_at = time.monotonic()
            kind.asked += 1
            spare = kind.spares.pop(0) if kind.spares else None
            begun, self._begun = self._begun, None
        while spare is not None and not spare.usable:
            spare.destroy()
            with self._lock:
                spare = kind.spares.pop(0) if kind.spares else None
        if begun is not None and (spare is not None or begun.walls != walls):
            begun.destroy()
            begun = None
        jail = spare or (begun.wait_ready() if begun is not None else self._make(walls))
        self._run_over.clear()
        self._taken.append(time.monotonic())
        self._request.set()
        if not lasts or kind.asked > 1:
            self._order(walls, kind)
        return jail

    def begin(self, walls: Walls) -> None:
        """Start the jail of the next request, for whose walls ``take`` waits; a request of another kind ends it."""
        self._begun = self._start(walls)

    def done(self) -> None:
        """A run is over: a good moment to make the next spare. Calling this is optional."""
        self._run_over.set()

    def warm(self, walls: Walls) -> None:
        """Start to make spares of a kind that will be requested."""
        if self.size > 0:
            with self._lock:
                kind = self._kinds.setdefault(walls, _KindSpares())
                kind.asked_at = time.monotonic()
            self._order(walls, kind)

    def spares(self) -> int:
        """Return the number of spares."""
        with self._lock:
            return sum(len(kind.spares) for kind in self._kinds.values())

    def close(self) -> None:
        """End every spare and make no more. May be called twice."""
        with self._lock:
            self._closed = True
            jails = [jail for kind in self._kinds.values() for jail in kind.spares]
            jails += [self._begun] if self._begun is not None else []
            self._begun = None
            self._kinds.clear()
            thread = self._thread
        self.done()
        self._work.put(None)
        for jail in jails:
            jail.destroy()
        self._templates.close()
        if thread is not None and thread is not threading.current_thread():
            thread.join(10.0)
        # Also wait for taken jails that are ending: a template ends with its last jail.
        wait_buried()

    def _make(self, walls: Walls) -> Jail:
        if walls.here is not None:
            if walls.enforcer != bubblewrap.NAME:
                raise NoLayer("only bubblewrap's walls have file systems of their own")
            return self._templates.fork_over(walls)
        return self._templates.fork(walls) or self._start(walls).wait_ready()

    def _order(self, walls: Walls, kind: _KindSpares) -> None:
        """Request as many spares from the background thread as this kind lacks."""
        with self._lock:
            if self._closed:
                return
            lacking = self.size - len(kind.spares) - kind.coming
            if self.size <= 0 and kind.asked > 1:
                # No spare is kept, but a template may be.
                lacking = 1 - kind.coming
            kind.coming += max(0, lacking)
            if lacking <= 0:
                return
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._serve, name="sandbox-pool", daemon=True)
                self._thread.start()
        for _ in range(lacking):
            self._work.put(walls)

    def _serve(self) -> None:
        while True:
            try:
                walls = self._work.get(timeout=self._idle_s() / 2)
            except queue.Empty:
                self._drop_idle()
                continue
            if walls is None:
                return
            self._wait_for_run(walls)
            jail: Jail | None = None
            # A spare that fails is no error: the next ``take`` makes a jail itself and raises the reason.
            with contextlib.suppress(SandboxError, OSError, NoLayer):
                self._templates.prepare(walls)
                if self.size > 0:
                    jail = self._make(walls)
            self._keep(walls, jail)
            self._drop_idle()

    def _wait_for_run(self, walls: Walls) -> None:
        """Wait for the end of the run that just began: a jail that is made meanwhile competes with it for locks."""
        until = time.monotonic() + CALM_S
        while (left := until - time.monotonic()) > 0 and self._run_over.wait(left):
            with self._lock:
                kind = self._kinds.get(walls)
                empty = kind is None or not kind.spares
            rushed = len(self._taken) == 3 and time.monotonic() - self._taken[0] < RUSH_S
            self._request.clear()
            if empty or rushed or not self._request.wait(PAUSE_S):
                return

    def _keep(self, walls: Walls, jail: Jail | None) -> None:
        surplus: list[Jail] = []
        with self._lock:
            kind = self._kinds.get(walls)
            if kind is not None:
                kind.coming = max(0, kind.coming - 1)
            if jail is not None:
                if kind is None or self._closed:
                    surplus.append(jail)
                else:
                    kind.spares.append(jail)
            total = sum(len(other.spares) for other in self._kinds.values())
            for other in sorted(self._kinds.values(), key=lambda each: each.asked_at):
                while total > MAX_SPARES and other is not kind and other.spares:
                    surplus.append(other.spares.pop())
                    total -= 1
        for old in surplus:
            old.destroy()

    def _idle_s(self) -> float:
        return IDLE_S if self.size > 0 else min(IDLE_S, IDLE_WITHOUT_SPARES_S)

    def _drop_idle(self) -> None:
        now = time.monotonic()
        with self._lock:
            idle = [walls for walls, kind in self._kinds.items() if now - kind.asked_at > self._idle_s()]
            jails = [jail for walls in idle for jail in self._kinds.pop(walls).spares]
            wanted = set(self._kinds)
        for jail in jails:
            jail.destroy()
        self._templates.keep_only(wanted)

    def forget(self) -> None:
        """In a forked child the spares belong to the parent: close their descriptors and begin anew."""
        for jail in (*(jail for kind in self._kinds.values() for jail in kind.spares), self._begun):
            if jail is not None:
                jail.forget()
        self._begin()
        self._templates.forget()


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


def close_all() -> None:
    """End every spare of this process. Called when it exits."""
    for pool in list(_pools):
        pool.close()


atexit.register(close_all)
os.register_at_fork(after_in_child=lambda: list(map(Pool.forget, list(_pools))))

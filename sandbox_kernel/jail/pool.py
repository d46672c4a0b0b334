"""Ready-made jails: walls up, interpreter started, each for exactly one run.

Starting walls and an interpreter takes longer than most programs, so the next jail of a kind is made in the background
while the last one is in use. A kind (``Walls``) is learnt when it is first asked for, and forgotten when it has not
been asked for in a while. Where it can be done, all jails of a kind are forked from one template
(``template_cache.py``), so that a spare costs little time and memory. Spares hold no secret; one that died or lost its
control group is noticed before it is handed out.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import threading
import time
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.jail.core.jail import Jail
from sandbox_kernel.jail.core.walls import Walls
from sandbox_kernel.jail.kinds.reaper import wait_buried
from sandbox_kernel.jail.kinds.template_cache import Templates
from sandbox_kernel.jail.start import start_jail

#: Spares of all kinds together, and how long a kind that nobody asks for is kept.
MAX_SPARES = 8
IDLE_S = 300.0
#: How long a template is kept where no spares are wanted.
IDLE_WITHOUT_SPARES_S = 10.0
#: How long the making of spares waits for the end of a run that was just handed one; and then, while a spare is left,
#: for the next to come. When three came within the last time, more will, and there is no point in waiting.
CALM_S = 0.03
PAUSE_S = 0.01
RUSH_S = 0.1


@dataclass
class _Shelf:
    """The spares of one kind."""

    spares: list[Jail] = field(default_factory=list)
    coming: int = 0
    asked_at: float = 0.0
    asked: int = 0


class Pool:
    """Spares for one process; thread-safe. ``size`` spares of each kind are kept.

    0 keeps none: each jail is made when it is asked for. Who asked twice will ask again, so from then on it is forked.
    """

    def __init__(
        self,
        size: int = 2,
        start: Callable[[Walls], Jail] = start_jail,
        templates: Templates | None = None,
    ) -> None:
        self.size = size
        self._start = start
        #: Where jails are forked from; None starts each by itself.
        self._templates = templates
        self._shelves: OrderedDict[Walls, _Shelf] = OrderedDict()
        self._lock = threading.Lock()
        self._work: queue.SimpleQueue[Walls | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed = False
        #: Set unless a jail of ours was handed out just now and is still at work.
        self._calm = threading.Event()
        self._calm.set()
        #: Set by whoever takes a jail, and when the last three did.
        self._stir = threading.Event()
        self._taken: deque[float] = deque(maxlen=3)
        _pools.add(self)

    def take(self, walls: Walls) -> Jail:
        """A ready jail of this kind: a spare if one lives, else a new one, made now."""
        with self._lock:
            shelf = self._shelves.setdefault(walls, _Shelf())
            self._shelves.move_to_end(walls)
            shelf.asked_at = time.monotonic()
            shelf.asked += 1
            spare = shelf.spares.pop(0) if shelf.spares else None
        while spare is not None and not spare.usable:
            spare.destroy()
            with self._lock:
                spare = shelf.spares.pop(0) if shelf.spares else None
        jail = spare if spare is not None else self._make(walls)
        self._calm.clear()
        self._taken.append(time.monotonic())
        self._stir.set()
        self._order(walls, shelf)
        return jail

    def done(self) -> None:
        """A run with a jail of ours is over: a good moment to make the next spare. Nobody has to call it."""
        self._calm.set()

    def warm(self, walls: Walls) -> None:
        """Begin to make spares of a kind that will be asked for."""
        if self.size > 0:
            with self._lock:
                shelf = self._shelves.setdefault(walls, _Shelf())
                shelf.asked_at = time.monotonic()
            self._order(walls, shelf)

    def spares(self) -> int:
        """How many jails wait."""
        with self._lock:
            return sum(len(shelf.spares) for shelf in self._shelves.values())

    def close(self) -> None:
        """End every spare; the pool makes none any more. May be called twice."""
        with self._lock:
            self._closed = True
            jails = [jail for shelf in self._shelves.values() for jail in shelf.spares]
            self._shelves.clear()
            thread = self._thread
        self._calm.set()
        self._work.put(None)
        for jail in jails:
            jail.destroy()
        if self._templates is not None:
            self._templates.close()
        if thread is not None and thread is not threading.current_thread():
            thread.join(10.0)
        # Jails that were handed out and are dying: a template ends with the last of its own.
        wait_buried()

    def _make(self, walls: Walls) -> Jail:
        forked = self._templates.fork(walls) if self._templates is not None else None
        if forked is not None:
            return forked
        jail = self._start(walls)
        jail.wait_ready()
        return jail

    def _order(self, walls: Walls, shelf: _Shelf) -> None:
        """Ask the background thread for as many spares as this kind lacks."""
        with self._lock:
            if self._closed:
                return
            lacking = self.size - len(shelf.spares) - shelf.coming
            if self.size <= 0 and self._templates is not None and shelf.asked > 1:
                # Nobody waits ready-made, but a template may.
                lacking = 1 - shelf.coming
            shelf.coming += max(0, lacking)
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
            self._await_calm(walls)
            jail: Jail | None = None
            # A failed spare is no error: whoever needs a jail makes one and meets the reason there.
            with contextlib.suppress(SandboxError, OSError):
                if self._templates is not None:
                    self._templates.prepare(walls)
                if self.size > 0:
                    jail = self._make(walls)
            self._shelve(walls, jail)

    def _await_calm(self, walls: Walls) -> None:
        """Most runs are over soon. To make the next jail beside one would take its processor and the locks of the
        kernel's control groups.
        """
        until = time.monotonic() + CALM_S
        while (left := until - time.monotonic()) > 0 and self._calm.wait(left):
            with self._lock:
                shelf = self._shelves.get(walls)
                empty = shelf is None or not shelf.spares
            rushed = len(self._taken) == 3 and time.monotonic() - self._taken[0] < RUSH_S
            self._stir.clear()
            if empty or rushed or not self._stir.wait(PAUSE_S):
                return

    def _shelve(self, walls: Walls, jail: Jail | None) -> None:
        surplus: list[Jail] = []
        with self._lock:
            shelf = self._shelves.get(walls)
            if shelf is not None:
                shelf.coming = max(0, shelf.coming - 1)
            if jail is not None:
                if shelf is None or self._closed:
                    surplus.append(jail)
                else:
                    shelf.spares.append(jail)
            total = sum(len(s.spares) for s in self._shelves.values())
            for kind in list(self._shelves):
                while total > MAX_SPARES and kind != walls and self._shelves[kind].spares:
                    surplus.append(self._shelves[kind].spares.pop())
                    total -= 1
        for old in surplus:
            old.destroy()

    def _idle_s(self) -> float:
        return IDLE_S if self.size > 0 else min(IDLE_S, IDLE_WITHOUT_SPARES_S)

    def _drop_idle(self) -> None:
        now = time.monotonic()
        with self._lock:
            idle = [kind for kind, shelf in self._shelves.items() if now - shelf.asked_at > self._idle_s()]
            jails = [jail for kind in idle for jail in self._shelves.pop(kind).spares]
            wanted = set(self._shelves)
        for jail in jails:
            jail.destroy()
        if self._templates is not None:
            self._templates.keep_only(wanted)

    def _forget(self) -> None:
        """In a forked child the spares are the parent's: let go of their descriptors, and of the lock."""
        self._lock = threading.Lock()
        self._work = queue.SimpleQueue()
        self._thread = None
        self._calm = threading.Event()
        self._calm.set()
        self._stir = threading.Event()
        for shelf in self._shelves.values():
            for jail in shelf.spares:
                jail.forget()
        self._shelves = OrderedDict()
        if self._templates is not None:
            self._templates.forget()


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


def close_all() -> None:
    """End every spare of this process; called at its end."""
    for pool in list(_pools):
        pool.close()


def _forget_all() -> None:
    for pool in list(_pools):
        pool._forget()


atexit.register(close_all)
os.register_at_fork(after_in_child=_forget_all)

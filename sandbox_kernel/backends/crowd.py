"""Decides which run goes to a runner, and starts runners when many runs run at once.

A single run does not pay for them: one or two runs at once stay in this process, and a machine with few cores has no
runners, because there the cores are the limit. Runners are started one by one while it is crowded, and end by
themselves when they have nothing to do.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import math
import os
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sandbox_kernel.backends.checks import selecting_variables

if TYPE_CHECKING:
    from sandbox_kernel.backends.runner import Runner

#: More runs at once than this are a crowd.
FEW = 2
#: Runs of a crowd after which one more runner is started.
RUNS_PER_START = 8
#: A machine with fewer cores has no runners.
LEAST_CORES = 4


class Crowd:
    """Counts the runs of this process and gives some of them to at most ``most`` runners; thread-safe."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._forget()
        _crowds.add(self)

    def _forget(self) -> None:
        """Begin anew; in a forked child the runners belong to the parent."""
        self._lock = threading.Lock()
        self._runners: list[Runner] = []
        self._present = 0
        self._seen = 0
        self._seen_surroundings: object = None

    @contextmanager
    def one_more(self, *, may_move: bool) -> Iterator[Runner | None]:
        """Count a run. Yields the runner that shall do it, or None; ``may_move``: it needs nothing of this process."""
        runner = None
        with self._lock:
            self._present += 1
        try:
            if may_move and self.most and self._present > FEW:
                with self._lock:
                    runner = self._choose()
                    if runner is not None:
                        runner.load += 1
            yield runner
        finally:
            with self._lock:
                self._present -= 1
                if runner is not None:
                    runner.load -= 1

    def _choose(self) -> Runner | None:
        try:
            here: object = os.getcwd(), selecting_variables()
        except OSError:
            here = "", selecting_variables()
        if here != self._seen_surroundings:
            # Programs are found by PATH and caches by HOME: a runner must see what this process sees.
            self._seen_surroundings = here
            for runner in self._runners:
                runner.close()
            self._runners = []
        self._seen += 1
        if self._seen % RUNS_PER_START == 0:
            self._runners = [runner for runner in self._runners if not runner.has_ended()]
        wanted = min(self.most, math.ceil(self._present / 2))
        if len(self._runners) < wanted and self._seen % RUNS_PER_START == 0 and sys.executable:
            from sandbox_kernel.backends.runner import Runner  # most programs need none

            with contextlib.suppress(OSError):  # a host that refuses it does without
                self._runners.append(Runner())
        return min(self._runners, key=lambda runner: runner.load, default=None)

    def close(self) -> None:
        """End all runners and wait for them."""
        with self._lock:
            runners, self._runners = self._runners, []
        for runner in runners:
            runner.close()
        for runner in runners:
            runner.wait()


_crowds: weakref.WeakSet[Crowd] = weakref.WeakSet()


@functools.lru_cache(maxsize=8)
def shared_crowd(most: int | None) -> Crowd:
    """Return the crowd of this process with this many runners; None for the usual number: one for two cores."""
    cores = len(os.sched_getaffinity(0))
    return Crowd(most if most is not None else cores // 2 if cores >= LEAST_CORES else 0)


@atexit.register
def close_crowds() -> None:
    """End all runners of this process. Called when it exits."""
    for crowd in list(_crowds):
        crowd.close()


def _leave_all() -> None:
    for crowd in list(_crowds):
        for runner in crowd._runners:
            runner.forget()
        crowd._forget()


os.register_at_fork(after_in_child=_leave_all)

"""Ends the processes of a cell that is rolled back, for the gate's handover: the worker, and what the cell has started.

Standard library only, Python 3.8 or later.
"""

from __future__ import annotations

import os
import signal
import time

from ..gate.alive import descendants, last_pid, seen_below
from .held import end_all, end_quickly, makes_no_more_calls, signal_same

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict


def only_the_worker(worker: int, stay: Dict[int, int], deadline: float) -> bool:
    """Kill the worker. Returns whether it can do nothing any more and nothing else has to be ended, for certain.

    This is the usual case, and quick: a worker that started no processes need not be gone, only harmless, and no
    checkpoint is disturbed. A list of /proc may miss a process that was forked meanwhile. The kernel numbers processes
    in a row, so a list during which the newest number stayed the same misses none; only the init of a pid namespace,
    which the caller must be, sees that number.

    Args:
        worker: the pid of the worker, which is our child; 0 when it has ended.
        stay: the start times of processes that stay, by pid. One that a program has stopped goes on.
        deadline: when to give up (``time.monotonic``).

    """
    if worker and not end_quickly(worker, deadline):
        return False
    before = last_pid()
    alive = seen_below(os.getpid())
    if any(pid != worker and stay.get(pid) != seen.started for pid, seen in alive.items()) or last_pid() != before:
        return False
    for pid, seen in alive.items():
        if seen.stopped:
            signal_same(pid, seen.started, signal.SIGCONT)
    return True


def end_others(
    worker: Callable[[], int], stay: Dict[int, int], deadline: float, reap: Callable[[], None], *, patient: bool
) -> bool:
    """Kill the worker and every process that does not stay; returns False when some could not be killed in time.

    Args:
        worker: returns the pid of the worker; 0 when it has ended.
        stay: the start times of processes that stay, by pid. Those that are stopped go on afterwards.
        deadline: when to give up (``time.monotonic``).
        reap: collects our dead children.
        patient: whether the memory of the worker has to be free afterwards too.

    """

    def harmless() -> bool:
        return makes_no_more_calls(worker())

    while True:
        alive = descendants(os.getpid())
        victims = {pid: started for pid, started in alive.items() if pid == worker() or stay.get(pid) != started}
        # A worker that started no processes need not be gone, only harmless: nothing waits for its place.
        quick = not patient and list(victims) == [worker()]
        if not victims or (quick and harmless()):
            break
        if time.monotonic() > deadline:
            return False
        end_all(victims, deadline, harmless if quick else None)
        reap()
    for pid, started in alive.items():
        signal_same(pid, started, signal.SIGCONT)
    return True

"""The loop that watches a program (``run_job.py``) or a cell (``session/cell/run_cell.py``) in a jail.

It waits for descriptors and alarms, and checks every limit at each tick. Runs and cells override methods for what they
do differently. They cannot override limits.
"""

from __future__ import annotations

import select
import selectors
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from sandbox_kernel.ground.values import dataclass
from sandbox_kernel.jail.meter.meter import TICK_S
from sandbox_kernel.jail.run.ending import Ending
from sandbox_kernel.jail.run.limit_watch import LimitWatch

#: Descriptors from this number on cannot be given to ``select``.
_LARGE = 1024

#: Called with the descriptor that is ready.
OnReady = Callable[[int], None]


@dataclass(frozen=True)
class Alarm:
    """At the time ``at`` (``time.monotonic``) the loop calls ``ring``, if ``alarms`` still returns the alarm."""

    at: float
    ring: Callable[[], None]


class HasFileno(Protocol):
    """An object with a descriptor, as ``selectors`` accepts it: a socket, a ``Stop``, a prompt."""

    def fileno(self) -> int:
        """Return the descriptor."""


class WatchLoop:
    """Runs until ``ending`` is set or ``over`` returns true. Single-threaded. Others may add to ``selector``."""

    def __init__(self, limits: LimitWatch) -> None:
        self.limits = limits
        self.ending: Ending | None = None
        self.selector: selectors.BaseSelector = selectors.DefaultSelector()

    def has_ended(self) -> bool:
        """Whether something ended the run or cell."""
        return self.ending is not None

    def alarms(self) -> Iterable[Alarm]:
        """Return the alarms that are set now. Called before every wait."""
        raise NotImplementedError

    def over(self) -> bool:
        """Whether the loop can stop although ``ending`` is not set."""
        return False

    def at_tick(self) -> None:
        """Check what no descriptor reports. Called at each tick, after the limits."""

    def before_wait(self) -> None:
        """Add or remove descriptors. Called before every wait."""

    def when_readable(self, file: int | HasFileno, call: OnReady) -> None:
        """Call ``call`` whenever ``file`` is readable."""
        self.selector.register(file, selectors.EVENT_READ, call)

    def end(self, ending: Ending | None) -> None:
        """Set why it ends. The first reason stays; None changes nothing."""
        self.ending = self.ending or ending

    def loop(self) -> None:
        """Run the loop. An exception of a callback is passed on, and the loop may then be called again."""
        next_tick = 0.0
        while not (self.has_ended() or self.over()):
            now = time.monotonic()
            if now >= next_tick:
                next_tick = now + TICK_S
                self.end(self.limits.look())
                self.at_tick()
            wake = next_tick
            for alarm in self.alarms():
                wake = min(wake, alarm.at)
                if now >= alarm.at and not self.has_ended():
                    alarm.ring()
            if self.has_ended():
                return
            self.before_wait()
            for key, _ in self._wait(wake):
                if not self.has_ended():
                    key.data(key.fd)

    def _wait(self, until: float) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for descriptors, at most until a time (``time.monotonic``); return those that are ready.

        ``epoll`` takes whole milliseconds and Python rounds up, so a time limit would be late by up to one. ``select``
        waits for the selector's own descriptor exactly; it takes small descriptors only.
        """
        left = until - time.monotonic()
        place = self.selector.fileno() if isinstance(self.selector, selectors.EpollSelector) else _LARGE
        if left > 0 and place < _LARGE:
            select.select([place], [], [], left)
            left = 0.0
        return self.selector.select(max(0.0, left))

    def watch_memory(self) -> None:
        """Wait for the kernel's report that memory ran out, on hosts where it reports that."""
        event = self.limits.event_fd()
        if event is not None:
            self.when_readable(event, lambda fd: self.end(self.limits.alarm(fd)))

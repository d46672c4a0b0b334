"""The one loop that watches what runs in a jail, a program (``run_job.py``) or a cell (``session/cell/run_cell.py``).

It waits for descriptors and for the clock, and looks at every limit at each tick. What is special to a run or to a cell
is in the methods that they override; limits are not among them.
"""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from sandbox_kernel.jail.meter.meter import TICK_S
from sandbox_kernel.jail.run.ending import Ending
from sandbox_kernel.jail.run.limit_watch import LimitWatch

#: Called with the descriptor that is ready.
OnReady = Callable[[int], None]


@dataclass(frozen=True)
class Alarm:
    """At this time (``time.monotonic``) the loop calls ``ring``, unless the alarm is gone by then."""

    at: float
    ring: Callable[[], None]


class HasFileno(Protocol):
    """A socket, a stop sign, a question: anything that ``selectors`` takes."""

    def fileno(self) -> int:
        """Its descriptor."""


class WatchLoop:
    """Runs until ``ending`` says why, or ``over``. One thread; ``selector`` is open to those who add descriptors."""

    def __init__(self, limits: LimitWatch) -> None:
        self.limits = limits
        self.ending: Ending | None = None
        self.selector: selectors.BaseSelector = selectors.DefaultSelector()

    def has_ended(self) -> bool:
        """Whether something ended it."""
        return self.ending is not None

    def alarms(self) -> Iterable[Alarm]:
        """What the clock may bring, as things are now: asked for before every wait."""
        raise NotImplementedError

    def over(self) -> bool:
        """Whether there is nothing left to watch, although nothing ended it."""
        return False

    def at_tick(self) -> None:
        """Look at what no descriptor tells; limits have been looked at."""

    def before_wait(self) -> None:
        """Change what is waited for."""

    def when_readable(self, file: int | HasFileno, call: OnReady) -> None:
        """Have ``call`` called whenever there is something to read."""
        self.selector.register(file, selectors.EVENT_READ, call)

    def end(self, ending: Ending | None) -> None:
        """Say why it ends; the first word counts, and None is no word."""
        self.ending = self.ending or ending

    def loop(self) -> None:
        """Watch. What a callback raises comes out, and the loop may be called again."""
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
            for key, _ in self.selector.select(max(0.0, wake - time.monotonic())):
                if not self.has_ended():
                    key.data(key.fd)

    def watch_memory(self) -> None:
        """Wait for the kernel's word that memory ran out, where it says so."""
        event = self.limits.event_fd()
        if event is not None:
            self.when_readable(event, lambda fd: self.end(self.limits.alarm(fd)))

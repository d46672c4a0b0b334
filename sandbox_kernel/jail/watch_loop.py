"""The loop that watches a program (``run_job.py``) or a cell (``session/cell/run_cell.py``) in a jail.

It waits for descriptors and alarms, and checks every limit at each tick. Runs and cells override methods for what they
do differently. They cannot override limits.
"""

from __future__ import annotations

import select
import selectors
import time
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING

from sandbox_kernel.errors import EnforcerFailed
from sandbox_kernel.jail.accounting.cgroup_place import GROUP_PREFIX
from sandbox_kernel.jail.accounting.gpu_meter import GpuMeter
from sandbox_kernel.jail.accounting.meter import Meter
from sandbox_kernel.jail.accounting.processes import tree
from sandbox_kernel.jail.ending import Ending
from sandbox_kernel.jail.jail import Jail
from sandbox_kernel.jail.streams import guarded
from sandbox_kernel.model import OnUsage
from sandbox_kernel.util.values import dataclass

if TYPE_CHECKING:
    from _typeshed import HasFileno

#: How often all limits are checked, with control groups too, and how often the memory in use is told.
TICK_S, USAGE_S = 0.02, 0.25


class MemoryLimit:
    """The memory limit of one run: every process of its jail counts. A session counts otherwise (``MemoryBudget``)."""

    def __init__(self, meter: Meter, limit_bytes: int) -> None:
        self._meter = meter
        self.limit_bytes = limit_bytes

    def memory_exceeded(self) -> bool:
        """Whether the limit is exceeded. Called at every tick."""
        return self._meter.memory_is_exceeded()

    def used_bytes(self) -> int:
        """Current memory use in bytes, for display."""
        return self._meter.usage_bytes()


@dataclass(eq=False)
class LimitWatch:
    """Checks every limit of a run or cell but its time: one list for both, so that none is forgotten for one."""

    jail: Jail
    memory: MemoryLimit
    cpu_seconds: float | None
    on_usage: OnUsage | None
    gpu_memory_mb: int | None = None

    def __post_init__(self) -> None:
        jail, memory, cpu_seconds = self.jail, self.memory, self.cpu_seconds
        self._on_usage = guarded(self.on_usage)
        self._next_usage = 0.0
        self._cpu_before = 0.0
        self._full_before = False
        #: Whether the work folder was full at some time.
        self.disk_full = False
        #: Checked in this order. Memory comes first: a program out of memory may exceed other limits too.
        is_over = lambda: memory.memory_exceeded() or jail.has_too_many_sockets()  # noqa: E731
        self._checks = {Ending.MEMORY: is_over, Ending.PROCESSES: jail.meter.too_many_processes}
        if cpu_seconds is not None:
            self._checks[Ending.CPU] = lambda: jail.meter.cpu_seconds() - self._cpu_before > cpu_seconds
        self._checks[Ending.DISK] = self.check_disk
        self._gpu = GpuMeter(self._members, self.gpu_memory_mb) if jail.walls.devices else None
        if self._gpu is not None:
            self._checks[Ending.GPU_MEMORY] = self._gpu.exceeded

    def begin(self) -> None:
        """Start counting for a cell: what earlier cells of its session used does not count."""
        if self.cpu_seconds is not None:
            self._cpu_before = self.jail.meter.cpu_seconds()
        self._full_before = self.jail.disk_anew().full

    def check(self) -> Ending | None:
        """Return the limit that is exceeded, or None, and tell the use; ``EnforcerFailed`` without control group."""
        if not self.jail.meter.intact():
            raise EnforcerFailed(
                self.jail.meter.mechanism,
                "another program removed the sandbox's control group, so its limits were gone and it was ended; find "
                f"out what removes groups named {GROUP_PREFIX}*, then run it again",
            )
        found = None
        for limit, is_exceeded in self._checks.items():
            if is_exceeded():
                found = limit
                break
        if self._on_usage is not None and time.monotonic() >= self._next_usage:
            self._next_usage = time.monotonic() + USAGE_S
            self._on_usage(self.memory.used_bytes(), self.memory.limit_bytes)
        return found

    def check_disk(self, *, last: bool = False) -> bool:
        """Measure the work folder and remember whether it was full; returns whether it holds more than allowed."""
        disk = self.jail.disk(last=last)
        self.disk_full = self.disk_full or (disk.full and not self._full_before)
        return disk.over

    def gpu_peak_bytes(self) -> int | None:
        """Return the most memory on accelerators that was seen; None when it was not counted."""
        return None if self._gpu is None else self._gpu.peak_bytes

    def _members(self) -> Collection[int]:
        counted = self.jail.meter.members()
        return tree(self.jail.init_pid) if counted is None else counted


#: Descriptors from this number on cannot be given to ``select``.
_LARGE = 1024


@dataclass(frozen=True)
class Alarm:
    """At the time ``at`` (``time.monotonic``) the loop calls ``ring``, if ``alarms`` still returns the alarm."""

    at: float
    ring: Callable[[], None]


class WatchLoop:
    """Runs until ``ending`` is set or ``over`` returns true. Single-threaded. Others may add to ``selector``."""

    def __init__(self, limits: LimitWatch) -> None:
        self.limits = limits
        self.ending: Ending | None = None
        self.selector: selectors.BaseSelector = selectors.DefaultSelector()

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

    def when_readable(self, file: int | HasFileno, call: Callable[[int], None]) -> None:
        """Call ``call`` with the descriptor whenever ``file`` is readable."""
        self.selector.register(file, selectors.EVENT_READ, call)

    def end(self, ending: Ending | None) -> None:
        """Set why it ends. The first reason stays; None changes nothing."""
        self.ending = self.ending or ending

    def loop(self, first_s: float = 0.0) -> None:
        """Run the loop; the first tick is after ``first_s``. May be called again after an exception of a callback."""
        next_tick = time.monotonic() + first_s
        while self.ending is None and not self.over():
            now = time.monotonic()
            if now >= next_tick:
                next_tick = now + TICK_S
                self.end(self.limits.check())
                self.at_tick()
            wake = next_tick
            for alarm in self.alarms():
                wake = min(wake, alarm.at)
                if now >= alarm.at and self.ending is None:
                    alarm.ring()
            if self.ending is None:
                self.before_wait()
                for key, _ in self._wait(wake):
                    if self.ending is None:
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

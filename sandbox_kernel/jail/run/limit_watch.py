"""Which limit a run or a cell has met: looked at by each tick of ``WatchLoop``, and when the kernel calls.

There is one list of limits for both, so that none is forgotten for one of them.
"""

from __future__ import annotations

import os
import time
from typing import Protocol

from sandbox_kernel.jail.core.jail import Jail
from sandbox_kernel.jail.meter.meter import USAGE_S, Meter, OnUsage
from sandbox_kernel.jail.run.ending import Ending


class MemoryLimit(Protocol):
    """The memory limit of a run or of a session, which counts otherwise because its checkpoints hold memory too."""

    @property
    def limit_bytes(self) -> int:
        """What may be used."""

    def memory_exceeded(self) -> bool:
        """Whether more is in use; called at every tick."""

    def memory_alarm(self) -> None:
        """The kernel has said that memory ran out."""

    def used_bytes(self) -> int:
        """What is in use now, for those who watch."""


class RunMemory:
    """The memory limit of one run: everything in its jail counts."""

    def __init__(self, meter: Meter, limit_bytes: int) -> None:
        self._meter = meter
        self._alarm = False
        self.limit_bytes = limit_bytes

    def memory_exceeded(self) -> bool:
        """See ``MemoryLimit``; where the kernel calls, nobody looks before it has."""
        return (self._alarm or self._meter.event_fd() is None) and self._meter.memory_is_exceeded()

    def memory_alarm(self) -> None:
        """See ``MemoryLimit``. It rings before the kernel has chosen its victim, so every later look looks again."""
        self._alarm = True

    def used_bytes(self) -> int:
        """See ``MemoryLimit``."""
        return self._meter.usage_bytes()


class LimitWatch:
    """Every limit of one run or cell that needs looking at; the clock is the loop's own."""

    def __init__(self, jail: Jail, memory: MemoryLimit, cpu_seconds: float | None, on_usage: OnUsage | None) -> None:
        self._jail, self._memory, self._cpu_seconds, self._on_usage = jail, memory, cpu_seconds, on_usage
        self._next_usage = 0.0
        self._cpu_before = 0.0
        self._full_before = False
        #: The work folder became full at some time.
        self.disk_full = False
        #: In this order: who exceeds its memory may do anything else too.
        self._checks = {
            Ending.MEMORY: memory.memory_exceeded,
            Ending.PROCESSES: jail.meter.too_many_processes,
            Ending.CPU: self._too_much_cpu,
            Ending.DISK: self.look_at_disk,
        }

    def begin(self) -> None:
        """For a cell: what earlier cells of its session have used, or filled, does not count."""
        if self._cpu_seconds is not None:
            self._cpu_before = self._jail.meter.cpu_seconds()
        self._full_before = self._jail.disk_anew().full

    def look(self) -> Ending | None:
        """The limit that is exceeded, if any; who wants to know how much memory is used hears it."""
        self._jail.check_limits()
        exceeded = next((limit for limit, is_exceeded in self._checks.items() if is_exceeded()), None)
        if self._on_usage is not None and time.monotonic() >= self._next_usage:
            self._next_usage = time.monotonic() + USAGE_S
            self._on_usage(self._memory.used_bytes(), self._memory.limit_bytes)
        return exceeded

    def look_at_disk(self, *, last: bool = False) -> bool:
        """Remember when the work folder became full; true when it holds more than it may."""
        disk = self._jail.disk(last=last)
        self.disk_full = self.disk_full or (disk.full and not self._full_before)
        return disk.over

    def event_fd(self) -> int | None:
        """A descriptor that becomes readable when the kernel says that memory ran out."""
        return self._jail.meter.event_fd()

    def alarm(self, fd: int) -> Ending | None:
        """Take the kernel's alarm; the limit if it is exceeded already."""
        os.eventfd_read(fd)
        self._memory.memory_alarm()
        return Ending.MEMORY if self._memory.memory_exceeded() else None

    def _too_much_cpu(self) -> bool:
        if self._cpu_seconds is None:
            return False
        return self._jail.meter.cpu_seconds() - self._cpu_before > self._cpu_seconds

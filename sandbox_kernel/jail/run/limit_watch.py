"""Which limit a running job has met: looked at by the tick of the loop that watches it, and when the kernel calls."""

from __future__ import annotations

import os
import time

from sandbox_kernel.jail.core.jail import Jail
from sandbox_kernel.jail.meter.meter import USAGE_S, OnUsage


class LimitWatch:
    """The limits of one job that need looking at; time and output are the loop's own."""

    def __init__(self, jail: Jail, memory_bytes: int, cpu_seconds: float | None, on_usage: OnUsage | None) -> None:
        self._jail, self._memory_bytes, self._cpu_seconds, self._on_usage = jail, memory_bytes, cpu_seconds, on_usage
        self._next_usage = 0.0
        self._memory_alarm = False
        #: The work folder was full at some time.
        self.disk_full = False

    def look(self) -> str | None:
        """The limit that is exceeded, if any; who wants to know how much is used hears it."""
        exceeded = self._exceeded()
        if self._on_usage is not None and time.monotonic() >= self._next_usage:
            self._next_usage = time.monotonic() + USAGE_S
            self._on_usage(self._jail.meter.usage_bytes(), self._memory_bytes)
        return exceeded

    def _exceeded(self) -> str | None:
        meter = self._jail.meter
        self._jail.check_limits()
        if (self._memory_alarm or meter.event_fd() is None) and meter.memory_is_exceeded():
            return "memory"
        if meter.too_many_processes():
            return "processes"
        if self._cpu_seconds is not None and meter.cpu_seconds() > self._cpu_seconds:
            return "cpu"
        return "disk" if self.look_at_disk() else None

    def look_at_disk(self, *, last: bool = False) -> bool:
        """Remember when the work folder was full; true when it holds more than it may."""
        disk = self._jail.disk(last=last)
        self.disk_full = self.disk_full or disk.full
        return disk.over

    def alarm(self, fd: int) -> bool:
        """The kernel's alarm has rung; true when memory is exceeded already.

        It rings before the kernel has chosen and counted its victim, so every later look looks again.
        """
        os.eventfd_read(fd)
        self._memory_alarm = True
        return self._jail.meter.memory_is_exceeded()

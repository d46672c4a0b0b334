"""The meter that uses a control group for each sandbox: the kernel limits and counts. See ``meter.Meter``."""

from __future__ import annotations

import os

from sandbox_kernel.jail.cgroups.cgroup_leaf import Leaf
from sandbox_kernel.jail.meter.process_tree import tree, usage
from sandbox_kernel.jail.meter.reading import Reading


class CgroupMeter:
    """Limits by the sandbox's own control group."""

    exact = True

    def __init__(self, leaf: Leaf, mechanism: str) -> None:
        self.mechanism = mechanism
        self._leaf = leaf
        self._event: int | None = None
        self._pid: int | None = None
        self._processes = self._most_processes = 0
        self._full = False
        self._cpu_before = 0.0

    def attach(self, pid: int) -> None:
        """See ``Meter``."""
        self._pid = self._pid or pid
        self._leaf.attach(pid)

    def intact(self) -> bool:
        """See ``Meter``."""
        return self._leaf.exists()

    def arm(self, memory_bytes: int, processes: int, spare_processes: int = 0) -> None:
        """See ``Meter``."""
        self._leaf.limit(memory_bytes, processes)
        self._processes, self._most_processes = processes, processes + spare_processes
        self._event = self._leaf.oom_event()
        # The cost of making the sandbox ready does not count for the program.
        self._cpu_before = self._cpu_so_far()

    def relimit(self, memory_bytes: int, processes: int) -> None:
        """See ``Meter``."""
        self._leaf.relimit(memory_bytes, processes)
        self._processes, self._most_processes = processes, max(processes, self._most_processes)

    def reset_peak(self) -> None:
        """See ``Meter``."""
        self._leaf.reset_peak()
        self._full = False

    def usage_bytes(self) -> int:
        """See ``Meter``."""
        return self._leaf.usage_bytes()

    def held_bytes(self) -> int:
        """See ``Meter``."""
        return self._leaf.held_bytes()

    def files_bytes(self) -> int:
        """See ``Meter``."""
        return self._leaf.files_bytes()

    def release(self) -> None:
        """Do nothing: this meter stops no process."""

    def event_fd(self) -> int | None:
        """See ``Meter``."""
        return self._event

    def memory_is_exceeded(self) -> bool:
        """Whether the kernel killed a task for memory. It kills one at a time; the caller ends the rest."""
        return self._leaf.oom_kills() > 0

    def oom_kills(self) -> int:
        """See ``Meter``."""
        return self._leaf.oom_kills()

    def cpu_seconds(self) -> float:
        """See ``Meter``."""
        return max(0.0, self._cpu_so_far() - self._cpu_before)

    def _cpu_so_far(self) -> float:
        counted = self._leaf.cpu_seconds()
        if counted is not None:
            return counted
        return usage(tree(self._pid)).cpu_seconds if self._pid else 0.0

    def last_look(self) -> None:
        """See ``Meter``. Nothing to do: the kernel has counted the processes."""
        if not self._leaf.limits_processes:
            self._full = self._full or usage(self._leaf.members()).tasks + 1 >= self._processes

    def too_many_processes(self) -> bool:
        """See ``Meter``."""
        if self._leaf.limits_processes:
            return False
        tasks = usage(self._leaf.members()).tasks
        self._full = self._full or tasks >= self._processes
        return tasks > self._most_processes

    def kill(self) -> None:
        """See ``Meter``."""
        self._leaf.kill()

    def members(self) -> list[int]:
        """See ``Meter``."""
        return self._leaf.members()

    def read(self) -> Reading:
        """See ``Meter``."""
        seen = self._leaf.counters()
        crowded = seen.refused_forks > 0 or self._full
        cpu = None if seen.cpu_seconds is None else max(0.0, seen.cpu_seconds - self._cpu_before)
        return Reading(seen.oom_kills > 0, crowded, seen.peak_bytes, cpu, oom_kills=seen.oom_kills)

    def close(self) -> bool:
        """See ``Meter``."""
        if self._event is not None:
            os.close(self._event)
            self._event = None
        return self._leaf.remove()

"""The meter that samples /proc, for hosts where no control group can be made. See ``meter.Meter``.

The kernel still limits each process (RLIMIT_DATA) and their number (RLIMIT_NPROC in the sandbox's own user namespace).
The watchdog limits the sum.
"""

from __future__ import annotations

import signal

from sandbox_kernel.jail.meter.process_tree import memory_file_bytes, proportional_bytes, signal_all, tree, usage
from sandbox_kernel.jail.meter.reading import Reading


class WatchdogMeter:
    """Limits by sampling every few milliseconds. Best effort; the report says so."""

    mechanism = "RLIMIT_DATA and a watchdog"
    exact = False

    def __init__(self) -> None:
        self._pid: int | None = None
        self._memory_bytes = 0
        self._processes = self._most_processes = 0
        self._peak = 0
        self._cpu = 0.0
        self._cpu_before = 0.0
        self._full = False
        self._crowded = False
        self._exceeded = False

    def attach(self, pid: int) -> None:
        """Count this process. The first one is the root of the tree that is watched."""
        self._pid = self._pid or pid

    def intact(self) -> bool:
        """See ``Meter``. Nothing outside can remove these limits."""
        return True

    def arm(self, memory_bytes: int, processes: int, spare_processes: int = 0) -> None:
        """See ``Meter``."""
        self._memory_bytes, self._processes = memory_bytes, processes
        self._most_processes = processes + spare_processes
        if self._pid is not None:
            self._cpu_before = usage(tree(self._pid)).cpu_seconds

    def relimit(self, memory_bytes: int, processes: int) -> None:
        """See ``Meter``. What was used so far still counts."""
        self._memory_bytes, self._processes = memory_bytes, processes
        self._most_processes = max(processes, self._most_processes)

    def reset_peak(self) -> None:
        """See ``Meter``."""
        self._peak, self._full = 0, False

    def usage_bytes(self) -> int:
        """See ``Meter``."""
        return usage(tree(self._pid)).resident_bytes if self._pid is not None else 0

    def held_bytes(self) -> int:
        """See ``Meter``."""
        return proportional_bytes(tree(self._pid)) if self._pid is not None else 0

    def files_bytes(self) -> int:
        """Return 0: mapped files count as resident memory, and the size of the file system limits all others."""
        return 0

    def release(self) -> None:
        """See ``Meter``."""
        if self._pid is not None:
            self._exceeded = False
            signal_all(tree(self._pid)[1:], signal.SIGCONT)

    def event_fd(self) -> int | None:
        """See ``Meter``."""
        return None

    def memory_is_exceeded(self) -> bool:
        """Compare the resident sum first (quick, too high for forked trees), then the exact sum of the stopped tree.

        A growing process changes faster than its page tables can be read, so it is stopped before it is measured.
        """
        if self._pid is None:
            return False
        pids = tree(self._pid)
        seen = usage(pids)
        self._cpu = max(self._cpu, seen.cpu_seconds - self._cpu_before)
        self._full = self._full or seen.tasks >= self._processes
        self._crowded = seen.tasks > self._most_processes
        # Kept apart: the mapped part of these files is in the other sum already.
        in_files = memory_file_bytes(pids)
        if in_files > self._memory_bytes:
            self._peak = max(self._peak, in_files)
            self._exceeded = True
            return True
        if seen.resident_bytes <= self._memory_bytes:
            self._peak = max(self._peak, seen.resident_bytes)
            return False
        inner = pids[1:]
        signal_all(inner, signal.SIGSTOP)
        true_sum = proportional_bytes(pids)
        self._peak = max(self._peak, true_sum)
        self._exceeded = true_sum > self._memory_bytes
        if not self._exceeded:
            signal_all(inner, signal.SIGCONT)
        return self._exceeded

    def oom_kills(self) -> int:
        """See ``Meter``. The kernel kills no process here; the caller does when memory is exceeded."""
        return 0

    def cpu_seconds(self) -> float:
        """See ``Meter``."""
        if self._pid is not None:
            self._cpu = max(self._cpu, usage(tree(self._pid)).cpu_seconds - self._cpu_before)
        return self._cpu

    def last_look(self) -> None:
        """Count processes again: a fork bomb may reach the limit and end, while its children are still there."""
        if self._pid is not None:
            seen = usage(tree(self._pid))
            self._cpu = max(self._cpu, seen.cpu_seconds - self._cpu_before)
            self._full = self._full or seen.tasks + 1 >= self._processes

    def too_many_processes(self) -> bool:
        """See ``Meter``. Uses the count of this tick."""
        return self._crowded

    def kill(self) -> None:
        """Do nothing; the jail kills its processes."""

    def members(self) -> None:
        """See ``Meter``."""

    def read(self) -> Reading:
        """See ``Meter``."""
        return Reading(self._exceeded, self._full, self._peak or None, self._cpu or None, refuses_memory=True)

    def close(self) -> bool:
        """See ``Meter``."""
        return True

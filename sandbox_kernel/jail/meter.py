"""Memory, processes and CPU time of one sandbox: limited, watched and counted.

``CgroupMeter`` lets the kernel limit and count. ``WatchdogMeter`` stands in where no control group may be made: the
kernel still limits each process (RLIMIT_DATA) and their number (RLIMIT_NPROC in the sandbox's own user namespace), and
we watch the sum. Both answer the same questions, and ``exact`` says which of the two it is.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from sandbox_kernel.jail.cgroup import Leaf, find_hierarchies
from sandbox_kernel.jail.process_tree import memory_file_bytes, proportional_bytes, signal_all, tree, usage

#: How often a run is looked at when something must be watched.
TICK_S = 0.02
#: How often whoever watches a run is told how much memory it uses.
USAGE_S = 0.25

#: Memory in use and the limit, in bytes; called on the thread that runs, so it must be quick and never raise.
OnUsage = Callable[[int, int], None]


@dataclass(frozen=True)
class Reading:
    """What a meter knows at the end of a run."""

    memory_exceeded: bool = False
    forks_refused: bool = False
    peak_bytes: int | None = None
    cpu_seconds: float | None = None
    #: Memory is limited by what a program can ask for: it is not killed, it is refused.
    refuses_memory: bool = False


class Meter(Protocol):
    """One sandbox's meter; called by ``jail.py`` (attach, arm, close) and ``job.py`` (the rest)."""

    mechanism: str
    exact: bool

    def attach(self, pid: int) -> None:
        """A process of the sandbox exists; called before the program starts."""

    def intact(self) -> bool:
        """Whether what limits the sandbox is still there."""

    def arm(self, memory_bytes: int, processes: int) -> None:
        """Set the limits of the program about to start."""

    def relimit(self, memory_bytes: int, processes: int) -> None:
        """Change the limits; sessions do between cells, because checkpoints need room of their own."""

    def reset_peak(self) -> None:
        """Measure the peak from now on: a session's cells have one each."""

    def usage_bytes(self) -> int:
        """Memory in use now, cheap to read and an upper bound."""

    def held_bytes(self) -> int:
        """Memory in use now that cannot be given back."""

    def files_bytes(self) -> int:
        """The part of it that is files."""

    def release(self) -> None:
        """Let go on what was stopped to be measured; called when only a part of the sandbox is to be ended."""

    def event_fd(self) -> int | None:
        """A descriptor that becomes readable when memory was exceeded."""

    def memory_is_exceeded(self) -> bool:
        """Called at every tick; true means: kill it."""

    def oom_kills(self) -> int:
        """How many processes were ended for memory so far; sessions compare before and after a cell."""

    def cpu_seconds(self) -> float:
        """CPU time of the whole tree so far."""

    def last_look(self) -> None:
        """The program has just ended or is about to be killed; what it left is still there."""

    def kill(self) -> None:
        """Help to kill what is left."""

    def too_many_processes(self) -> bool:
        """Called at every tick; true means: kill it. Only where the kernel does not refuse one too many."""

    def members(self) -> list[int] | None:
        """Every process of the sandbox, whoever its parent is; None where nobody keeps such a list."""

    def read(self) -> Reading:
        """The final reading; the sandbox is dead."""

    def close(self) -> bool:
        """Give back what the meter holds; False to be called again later."""


def counts_processes() -> bool:
    """Whether a meter of this host has the kernel count a sandbox's processes, and refuse one too many."""
    where = find_hierarchies()
    return where is not None and where.pids is not None


def make_meter() -> Meter:
    """The best meter of this host."""
    where = find_hierarchies()
    if where is None:
        return WatchdogMeter()
    return CgroupMeter(Leaf(where), where.mechanism)


class CgroupMeter:
    """Limits by a control group of the sandbox's own."""

    exact = True

    def __init__(self, leaf: Leaf, mechanism: str) -> None:
        self.mechanism = mechanism
        self._leaf = leaf
        self._event: int | None = None
        self._pid: int | None = None
        self._processes = 0
        self._crowded = False
        self._cpu_before = 0.0

    def attach(self, pid: int) -> None:
        """See ``Meter``."""
        self._pid = self._pid or pid
        self._leaf.attach(pid)

    def intact(self) -> bool:
        """See ``Meter``."""
        return self._leaf.exists()

    def arm(self, memory_bytes: int, processes: int) -> None:
        """See ``Meter``."""
        self._leaf.limit(memory_bytes, processes)
        self._processes = processes
        self._event = self._leaf.oom_event()
        # What it cost to make the sandbox ready is not the program's.
        self._cpu_before = self._cpu_so_far()

    def relimit(self, memory_bytes: int, processes: int) -> None:
        """See ``Meter``."""
        self._leaf.relimit(memory_bytes, processes)

    def reset_peak(self) -> None:
        """See ``Meter``."""
        self._leaf.reset_peak()

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
        """Nothing was stopped."""

    def event_fd(self) -> int | None:
        """See ``Meter``."""
        return self._event

    def memory_is_exceeded(self) -> bool:
        """The kernel kills one task at a time; the rest of the run is ours to end."""
        return self._leaf.counters().oom_kills > 0

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
        """Nothing to do: the kernel has counted."""

    def too_many_processes(self) -> bool:
        """See ``Meter``."""
        if self._leaf.limits_processes:
            return False
        self._crowded = self._crowded or usage(self._leaf.members()).tasks > self._processes
        return self._crowded

    def kill(self) -> None:
        """See ``Meter``."""
        self._leaf.kill()

    def members(self) -> list[int]:
        """See ``Meter``."""
        return self._leaf.members()

    def read(self) -> Reading:
        """See ``Meter``."""
        seen = self._leaf.counters()
        crowded = seen.refused_forks > 0 or self._crowded
        cpu = None if seen.cpu_seconds is None else max(0.0, seen.cpu_seconds - self._cpu_before)
        return Reading(seen.oom_kills > 0, crowded, seen.peak_bytes, cpu)

    def close(self) -> bool:
        """See ``Meter``."""
        if self._event is not None:
            os.close(self._event)
            self._event = None
        return self._leaf.remove()


class WatchdogMeter:
    """Limits by looking every few milliseconds. Best effort, and said so."""

    mechanism = "RLIMIT_DATA and a watchdog"
    exact = False

    def __init__(self) -> None:
        self._pid: int | None = None
        self._memory_bytes = 0
        self._processes = 0
        self._peak = 0
        self._cpu = 0.0
        self._cpu_before = 0.0
        self._full = False
        self._crowded = False
        self._exceeded = False

    def attach(self, pid: int) -> None:
        """The first process attached is the root of the tree that is watched."""
        self._pid = self._pid or pid

    def intact(self) -> bool:
        """See ``Meter``; there is nothing that could be taken away."""
        return True

    def arm(self, memory_bytes: int, processes: int) -> None:
        """See ``Meter``."""
        self._memory_bytes, self._processes = memory_bytes, processes
        if self._pid is not None:
            self._cpu_before = usage(tree(self._pid)).cpu_seconds

    def relimit(self, memory_bytes: int, processes: int) -> None:
        """See ``Meter``."""
        self.arm(memory_bytes, processes)

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
        """Not told apart here: what is mapped counts, what is not is bounded by the size of its file system."""
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
        """Resident sum first (cheap, too high for forked trees), then the true sum of a stopped tree.

        A growing process outruns the reader of its page tables, so it is stopped before it is measured.
        """
        if self._pid is None:
            return False
        pids = tree(self._pid)
        seen = usage(pids)
        self._cpu = max(self._cpu, seen.cpu_seconds - self._cpu_before)
        self._full = self._full or seen.tasks >= self._processes
        self._crowded = seen.tasks > self._processes
        # Apart from the rest, because what is mapped of them is in the other sum already.
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
        """See ``Meter``; whoever found memory exceeded does the killing."""
        return 0

    def cpu_seconds(self) -> float:
        """See ``Meter``."""
        if self._pid is not None:
            self._cpu = max(self._cpu, usage(tree(self._pid)).cpu_seconds - self._cpu_before)
        return self._cpu

    def last_look(self) -> None:
        """A fork bomb fills every place and then ends; the places that its children hold tell of it."""
        if self._pid is not None:
            seen = usage(tree(self._pid))
            self._cpu = max(self._cpu, seen.cpu_seconds - self._cpu_before)
            self._full = self._full or seen.tasks + 1 >= self._processes

    def too_many_processes(self) -> bool:
        """See ``Meter``; as counted at this tick."""
        return self._crowded

    def kill(self) -> None:
        """Nothing beyond what the jail does."""

    def members(self) -> None:
        """See ``Meter``."""

    def read(self) -> Reading:
        """See ``Meter``."""
        return Reading(self._exceeded, self._full, self._peak or None, self._cpu or None, refuses_memory=True)

    def close(self) -> bool:
        """See ``Meter``."""
        return True

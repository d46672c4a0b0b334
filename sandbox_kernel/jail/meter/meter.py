"""Memory, processes and CPU time of one sandbox: limited, watched and counted.

``CgroupMeter`` lets the kernel limit and count, ``WatchdogMeter`` stands in where no control group may be made. Both
answer the same questions, and ``exact`` says which of the two it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from sandbox_kernel.jail.cgroups.cgroup import find_hierarchies
from sandbox_kernel.jail.cgroups.cgroup_leaf import Leaf
from sandbox_kernel.jail.meter.cgroup_meter import CgroupMeter
from sandbox_kernel.jail.meter.reading import Reading
from sandbox_kernel.jail.meter.watchdog_meter import WatchdogMeter

#: How often a run is looked at when something must be watched.
TICK_S = 0.02
#: How often whoever watches a run is told how much memory it uses.
USAGE_S = 0.25

#: Memory in use and the limit, in bytes; called on the thread that runs, so it must be quick and never raise.
OnUsage = Callable[[int, int], None]


class Meter(Protocol):
    """One sandbox's meter; called by ``jail.py`` (attach, arm, close) and ``job.py`` (the rest)."""

    mechanism: str
    exact: bool

    def attach(self, pid: int) -> None:
        """A process of the sandbox exists; called before the program starts."""

    def intact(self) -> bool:
        """Whether what limits the sandbox is still there."""

    def arm(self, memory_bytes: int, processes: int, spare_processes: int = 0) -> None:
        """Set the limits of the program about to start.

        Where the kernel counts no processes for us, RLIMIT_NPROC refuses them from ``processes + spare_processes`` on,
        and only a sandbox with more than that has too many: one that was refused a process lives on.
        """

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

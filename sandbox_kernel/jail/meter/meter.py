"""Limits and counts memory, processes and CPU time of one sandbox.

With ``CgroupMeter`` the kernel limits and counts. ``WatchdogMeter`` is used where no control group can be made. Both
have the same methods; ``exact`` says which of the two it is.
"""

from __future__ import annotations

from typing import Protocol

from sandbox_kernel.jail.cgroups.cgroup import find_hierarchies
from sandbox_kernel.jail.cgroups.cgroup_leaf import Leaf
from sandbox_kernel.jail.meter.cgroup_meter import CgroupMeter
from sandbox_kernel.jail.meter.reading import Reading
from sandbox_kernel.jail.meter.watchdog_meter import WatchdogMeter

#: How often the limits of a run are checked.
TICK_S = 0.02
#: How often the memory use of a run is reported.
USAGE_S = 0.25


class Meter(Protocol):
    """The meter of one sandbox. ``jail.py`` calls attach, arm and close; ``run_job.py`` and sessions call the rest."""

    mechanism: str
    exact: bool

    def attach(self, pid: int) -> None:
        """Count this process. Called before the program starts."""

    def intact(self) -> bool:
        """Whether the limits still hold: the control group was not removed."""

    def arm(self, memory_bytes: int, processes: int, spare_processes: int = 0) -> None:
        """Set the limits of the program about to start.

        Where the kernel counts no processes for us, RLIMIT_NPROC refuses them from ``processes + spare_processes`` on,
        and only a sandbox with more than that has too many: one that was refused a process lives on.
        """

    def relimit(self, memory_bytes: int, processes: int) -> None:
        """Change the limits. Sessions do that between cells, because checkpoints need memory too."""

    def reset_peak(self) -> None:
        """Measure the peak from now on. Each cell of a session has its own peak."""

    def usage_bytes(self) -> int:
        """Return the memory in use now: quick to read, and an upper bound."""

    def held_bytes(self) -> int:
        """Return the memory in use now that cannot be reclaimed."""

    def files_bytes(self) -> int:
        """Return the part of it that belongs to files."""

    def release(self) -> None:
        """Continue processes that were stopped for measuring. Called when only a part of the sandbox is to be ended."""

    def event_fd(self) -> int | None:
        """Return a descriptor that becomes readable when memory was exceeded; None if the kernel does not report it."""

    def memory_is_exceeded(self) -> bool:
        """Whether the sandbox must be killed for its memory. Called at every tick."""

    def oom_kills(self) -> int:
        """Return how many processes were killed for memory so far. Sessions compare before and after a cell."""

    def cpu_seconds(self) -> float:
        """Return the CPU time of all processes so far."""

    def last_look(self) -> None:
        """Count once more, now: before a cell begins, and when a program has just ended or will be killed."""

    def kill(self) -> None:
        """Kill what is left, if the meter can."""

    def too_many_processes(self) -> bool:
        """Whether the sandbox must be killed for its processes. Only where the kernel does not refuse new ones."""

    def members(self) -> list[int] | None:
        """Return every process of the sandbox, whatever its parent is; None if there is no such list."""

    def read(self) -> Reading:
        """Return the counts so far: around each cell of a session, and when the sandbox is dead."""

    def close(self) -> bool:
        """Release what the meter holds; False means that it must be called again later."""


def counts_processes() -> bool:
    """Whether the kernel counts the processes of a sandbox on this host and refuses those above the limit."""
    where = find_hierarchies()
    return where is not None and where.pids is not None


def make_meter() -> Meter:
    """Return the best meter of this host."""
    where = find_hierarchies()
    if where is None:
        return WatchdogMeter()
    return CgroupMeter(Leaf(where), where.mechanism)

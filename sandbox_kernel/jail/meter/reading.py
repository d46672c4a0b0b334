"""What a meter says at the end of a run, from which its outcome is decided, and what is known of its disk."""

from __future__ import annotations

import os

from sandbox_kernel.ground.values import dataclass


@dataclass(frozen=True)
class Reading:
    """What a meter counted by the end of a run."""

    memory_exceeded: bool = False
    forks_refused: bool = False
    peak_bytes: int | None = None
    cpu_seconds: float | None = None
    #: Whether allocations above the limit fail, instead of the program being killed.
    refuses_memory: bool = False
    #: How many processes were killed for memory so far.
    oom_kills: int = 0


#: A run with more files is ended: each file costs kernel memory that no size limit counts.
MAX_INODES = 200_000


@dataclass(frozen=True)
class Disk:
    """``full``: the limit was reached. ``over``: the run must be ended, because nothing else will stop it."""

    full: bool
    over: bool


def of_file_system(fd: int) -> Disk:
    """Measure a folder that is its own file system. The kernel limits its size, but not the number of files."""
    seen = os.fstatvfs(fd)
    too_many = seen.f_files - seen.f_ffree > MAX_INODES
    return Disk(full=too_many or seen.f_bavail == 0, over=too_many)

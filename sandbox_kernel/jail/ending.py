"""How runs and cells end: what can end them, and the one ``judge`` that turns what was seen into status and limit.

Runs (``backends/outcome.py``), cells (``session/cell/result.py``) and WebAssembly guests
(``backends/wasm/wasm_job.py``) each collect evidence; the order in which it counts is here alone.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from signal import SIGABRT, SIGTRAP
from typing import NamedTuple

from sandbox_kernel.model import Limit, Status


class Ending(StrEnum):
    """What ended a run or a cell. ``limit`` says whether it was a limit, and which."""

    TIMEOUT = "timeout"
    CPU = "cpu"
    MEMORY = "memory"
    PROCESSES = "processes"
    DISK = "disk"
    GPU_MEMORY = "gpu_memory"
    #: The caller stopped a run.
    CANCEL = "cancel"

    #: A cell said that it is done; its worker waits for the next one.
    DONE = "done"
    #: The worker ended by itself, or the cell ended it.
    DIED = "died"
    #: The caller stopped a cell, and it did not end within its grace.
    INTERRUPT = "interrupt"
    #: The worker broke the rules of its channel.
    PROTOCOL = "protocol"
    #: A callback of the caller raised an exception, or the host could not go on watching.
    HOST_FAILED = "host_failed"
    #: The whole jail is gone.
    LOST = "lost"

    @property
    def limit(self) -> Limit | None:
        """The limit that was met; None when it was none."""
        return Limit(self.value) if self in LIMITS else None


#: The limits that a loop has to watch: the kernel alone enforces all others.
LIMITS = frozenset({Ending.TIMEOUT, Ending.CPU, Ending.MEMORY, Ending.PROCESSES, Ending.DISK, Ending.GPU_MEMORY})

#: The status of what was ended before its time.
STOPPED = {
    Ending.TIMEOUT: Status.TIMEOUT,
    Ending.CPU: Status.CPU_LIMIT,
    Ending.MEMORY: Status.MEMORY_EXCEEDED,
    Ending.PROCESSES: Status.KILLED,
    Ending.DISK: Status.KILLED,
    Ending.GPU_MEMORY: Status.MEMORY_EXCEEDED,
    Ending.CANCEL: Status.INTERRUPTED,
    Ending.INTERRUPT: Status.INTERRUPTED,
    Ending.PROTOCOL: Status.KILLED,
    Ending.HOST_FAILED: Status.INTERRUPTED,
    Ending.LOST: Status.KILLED,
}
#: The statuses that name one limit.
_LIMIT_OF = {
    Status.TIMEOUT: Limit.TIMEOUT,
    Status.CPU_LIMIT: Limit.CPU,
    Status.MEMORY_EXCEEDED: Limit.MEMORY,
    Status.FUEL_EXHAUSTED: Limit.FUEL,
}

#: How a runtime with a heap limit of its own (V8) ends itself when that is reached.
HEAP_SIGNALS = (-SIGABRT, -SIGTRAP)


class Verdict(NamedTuple):
    """Status and limit of a result."""

    status: Status
    limit: Limit | None


def judge(
    *,
    out_of_memory: bool = False,
    stopped_by: Ending | None = None,
    own: Status = Status.KILLED,
    survived: Limit | None = None,
) -> Verdict:
    """Status and limit: memory counts first, then what the host stopped it for, then how it ended by itself (``own``).

    ``out_of_memory``: by the counters of the kernel and the meter, or by a failed allocation. ``survived``: a limit
    that it met and that did not end it.
    """
    if out_of_memory:
        return Verdict(Status.MEMORY_EXCEEDED, Limit.MEMORY)
    if stopped_by is not None:
        return Verdict(STOPPED[stopped_by], stopped_by.limit)
    return Verdict(own, _LIMIT_OF.get(own, survived))


def survived_limit(
    *, kills: bool, forks_refused: bool, said: Collection[str], disk_full: bool, truncated: bool
) -> Limit | None:
    """The limit that a program met and lived through, or ended for by itself.

    ``kills``: the kernel killed one of its processes for memory. ``said``: the limits that the program says it met,
    where the kernel has no counter. ``truncated``: part of its output was dropped.
    """
    if kills:
        return Limit.MEMORY
    if forks_refused or Limit.PROCESSES in said:
        return Limit.PROCESSES
    for limit in (Limit.MEMORY, Limit.DISK, Limit.OPEN_FILES):
        if limit in said:
            return limit
    if disk_full:
        return Limit.DISK
    return Limit.OUTPUT if truncated else None


def gave_up_near(peak_bytes: int | None, limit_bytes: int) -> bool:
    """Whether a program that ended itself had at least three quarters of its memory: then memory is why."""
    return (peak_bytes or 0) >= limit_bytes * 3 // 4

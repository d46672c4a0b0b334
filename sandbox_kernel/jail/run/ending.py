"""Why a run or a cell ended before its time: one word each, for the loop that ends it and for those who explain it."""

from __future__ import annotations

from enum import StrEnum


class Ending(StrEnum):
    """What ended a run or a cell. ``limit`` says whether it was a limit, and the member's value is then its name."""

    TIMEOUT = "timeout"
    CPU = "cpu"
    MEMORY = "memory"
    PROCESSES = "processes"
    DISK = "disk"
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
    #: A listener of the caller's raised, or the host could not go on watching.
    FAILED = "failed"
    #: The whole jail is gone.
    LOST = "lost"

    @property
    def limit(self) -> str | None:
        """The name of the limit that was met; None when it was none."""
        return self.value if self in LIMITS else None


#: The limits that a loop has to watch: whatever else limits a program is enforced by the kernel alone.
LIMITS = frozenset({Ending.TIMEOUT, Ending.CPU, Ending.MEMORY, Ending.PROCESSES, Ending.DISK})

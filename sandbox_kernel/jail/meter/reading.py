"""What was counted of a run: the last word of its meter, read by whoever says how the run ended."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Reading:
    """What a meter knows at the end of a run."""

    memory_exceeded: bool = False
    forks_refused: bool = False
    peak_bytes: int | None = None
    cpu_seconds: float | None = None
    #: Memory is limited by what a program can ask for: it is not killed, it is refused.
    refuses_memory: bool = False

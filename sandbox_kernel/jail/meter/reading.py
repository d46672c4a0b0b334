"""The final reading of a meter. The outcome of a run is decided from it."""

from __future__ import annotations

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

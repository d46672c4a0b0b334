"""How a run or a cell ended, as a value."""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    """How a run or a cell ended: by itself (``ok``, ``failed``), or by what stopped it."""

    OK = "ok"
    FAILED = "failed"
    COMPILE_FAILED = "compile_failed"
    TIMEOUT = "timeout"
    CPU_LIMIT = "cpu_limit"
    MEMORY_EXCEEDED = "memory_exceeded"
    FUEL_EXHAUSTED = "fuel_exhausted"
    KILLED = "killed"
    INTERRUPTED = "interrupted"

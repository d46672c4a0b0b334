"""What a session was asked to be."""

from __future__ import annotations

from dataclasses import dataclass

from sandbox_kernel.limits import Limits
from sandbox_kernel.model import Language
from sandbox_kernel.session.cell.cell_result import Frame


@dataclass(frozen=True, kw_only=True)
class SessionSpec:
    """What a session was asked to be; the same for all its lives."""

    name: str
    language: Language
    memory_mb: int
    checkpoints: int
    limits: Limits
    frame: Frame
    grace_s: float
    #: The most memory that a single cell may be given; 0 when its limit is the session's, neither more nor less.
    cell_memory_mb: int = 0

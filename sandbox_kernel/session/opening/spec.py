"""What a session was opened with."""

from __future__ import annotations

from sandbox_kernel.ground.values import dataclass
from sandbox_kernel.limits import Limits
from sandbox_kernel.model import Language
from sandbox_kernel.session.cell.cell_result import Frame


@dataclass(frozen=True, kw_only=True)
class SessionSpec:
    """What a session was opened with; the same for each of its workers.

    Attributes:
        name: the session's name.
        language: the language of its cells.
        memory_mb: the memory limit that it began with.
        checkpoints: how many cells back ``undo`` can go.
        limits: all other limits.
        frame: the fields that every result of the session shares.
        grace_s: how long a cell may go on after an interrupt before it is rolled back.

    """

    name: str
    language: Language
    memory_mb: int
    checkpoints: int
    limits: Limits
    frame: Frame
    grace_s: float
    #: The most memory that a single cell may be given; 0 when every cell has exactly the session's limit.
    cell_memory_mb: int = 0

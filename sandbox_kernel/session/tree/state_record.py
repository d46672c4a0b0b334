"""What the tree knows of one state."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from sandbox_kernel.session.tree.looks import LookDelta
from sandbox_kernel.session.tree.node import CellText, Changes
from sandbox_kernel.session.worker.checkpoints import Checkpoint


@dataclass
class StateRecord:
    """What the tree knows of one node. ``last`` is the child that the session was in last: where ``redo`` goes."""

    id: int
    parent: int | None
    depth: int
    cell: CellText | None
    time: float = field(default_factory=time.time)
    name: str = ""
    checkpoint: Checkpoint | None = None
    #: Whether its checkpoint ended without our order.
    killed: bool = False
    last: int | None = None
    children: list[int] = field(default_factory=list)
    changes: Changes = field(default_factory=Changes)
    lacks: tuple[str, ...] = ()
    #: What its variables are, as a difference; None when they are not known.
    look: LookDelta | None = None
    #: Whether its variables were looked at, with or without success.
    looked: bool = False
    #: Whether a cell between it and the beginning was forgotten, so that the way there cannot be run again.
    cut: bool = False


def cell_name(record: StateRecord) -> tuple[int, str]:
    """Return the number of a node's cell as the user knows it, and its code."""
    if record.cell is None:
        return record.depth, ""
    return record.depth if record.cell.number is None else record.cell.number, record.cell.code

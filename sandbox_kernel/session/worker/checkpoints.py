"""One checkpoint of a session, and how many of them may live at once. ``session/tree/`` knows which there are."""

from __future__ import annotations

from sandbox_kernel.ground.values import dataclass


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One frozen copy of a session's worker.

    Attributes:
        cell: how many cells are in this state; 0 is the state before the first cell.
        pid: the checkpoint's pid inside the jail; the gate checks it.
        time: when it was made, in seconds since the epoch.
        threads: how many threads of the user it could not copy.
        memory_bytes: memory that it alone holds; None when that was not measured.
        node: the node of the session's tree that it is the state of.

    """

    cell: int
    pid: int
    time: float
    threads: int = 0
    memory_bytes: int | None = None
    node: int = 0

    def to_dict(self) -> dict[str, object]:
        """Return the fields that ``%sandbox checkpoints`` shows."""
        return {"cell": self.cell, "time": self.time, "memory_bytes": self.memory_bytes}


def living_bound(keep: int) -> int:
    """How many checkpoints may live beside that of the present state, if ``undo`` can go ``keep`` cells back.

    Beside those that ``undo`` reaches there is room for named states, tips of branches and states farther back.
    """
    return max(keep, min(4 * keep, 60))


def room_beside_cells(checkpoints: int) -> int:
    """How many processes a session may have beside those of its cells: its checkpoints, and moments of change."""
    return living_bound(checkpoints) + 3

"""The list of a session's checkpoints: which one to go back to, which ones to drop. Pure bookkeeping, no processes.

``cell`` counts the cells that are in the state: checkpoint 0 is the state before the first cell. The newest checkpoint
is a copy of the present state: a rollback of the next cell goes back to it. ``undo`` goes back to the older ones.
"""

from __future__ import annotations

from collections.abc import Collection

from sandbox_kernel.errors import SessionError
from sandbox_kernel.values import dataclass


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One frozen copy of a session's worker.

    Attributes:
        cell: how many cells are in this state.
        pid: the checkpoint's pid inside the jail; the gate checks it.
        time: when it was made, in seconds since the epoch.
        threads: how many threads of the user it could not copy.
        memory_bytes: memory that it alone holds; None when that was not measured.

    """

    cell: int
    pid: int
    time: float
    threads: int = 0
    memory_bytes: int | None = None

    def to_dict(self) -> dict[str, object]:
        """Return the fields that ``%sandbox checkpoints`` shows."""
        return {"cell": self.cell, "time": self.time, "memory_bytes": self.memory_bytes}


class CheckpointShelf:
    """The checkpoints of one session, oldest first. ``keep`` is how many cells back ``undo`` can go."""

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self._items: list[Checkpoint] = []

    def all(self) -> tuple[Checkpoint, ...]:
        """Return every checkpoint, oldest first."""
        return tuple(self._items)

    def add(self, item: Checkpoint) -> tuple[Checkpoint, ...]:
        """Add a checkpoint of the present state. Returns the checkpoints that the caller has to drop for it."""
        replaced = [old for old in self._items if old.cell >= item.cell]
        self._items = [old for old in self._items if old.cell < item.cell]
        self._items.append(item)
        surplus = max(0, len(self._items) - (self.keep + 1))
        dropped, self._items = self._items[:surplus], self._items[surplus:]
        return (*replaced, *dropped)

    def reachable(self, present: int) -> tuple[Checkpoint, ...]:
        """Return the checkpoints that ``undo`` can go back to from the state after ``present`` cells, nearest first."""
        return tuple(item for item in reversed(self._items) if item.cell < present)

    def newest(self) -> Checkpoint | None:
        """Return the checkpoint that a rollback goes back to; None when there is none."""
        return self._items[-1] if self._items else None

    def before(self, steps: int, present: int) -> Checkpoint:
        """Return the checkpoint ``steps`` cells back. Raises ``SessionError``, which lists the possible steps."""
        wanted = present - steps
        for item in self._items:
            if item.cell == wanted:
                return item
        far = [present - item.cell for item in self.reachable(present)]
        possible = f"possible are: {', '.join(map(str, sorted(far)))}" if far else "nothing can be undone"
        raise SessionError(f"undo of {steps} cells is not possible here; {possible}")

    def remove(self, cells: Collection[int]) -> tuple[int, ...]:
        """Remove the checkpoints of these cells. Returns the cells that had one."""
        gone = tuple(item.cell for item in self._items if item.cell in cells)
        self._items = [item for item in self._items if item.cell not in cells]
        return gone

    def drop_oldest(self) -> Checkpoint | None:
        """Remove and return the oldest checkpoint; None when only the newest is left."""
        return self._items.pop(0) if len(self._items) > 1 else None

    def taken_over(self, item: Checkpoint) -> tuple[int, ...]:
        """Remove a checkpoint that becomes the worker, and all later ones. Returns the cells of those that stay."""
        self._items = [old for old in self._items if old.cell < item.cell]
        return tuple(old.cell for old in self._items)

    def clear(self) -> None:
        """Remove all checkpoints; called when their jail ends."""
        self._items = []


def room_beside_cells(checkpoints: int) -> int:
    """How many processes a session may have beside those of its cells: its checkpoints, and moments of change."""
    return checkpoints + 3

"""Which checkpoints a session has, which one to go back to, which to let go: bookkeeping without processes.

``cell`` counts the cells that are in the state: checkpoint 0 is the state before the first cell. The newest checkpoint
holds the present state, ready for the next cell's failure; the older ones are what ``undo`` goes back to.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sandbox_kernel.errors import SessionError


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One frozen copy of a session. ``pid`` is its pid inside the jail, which the gate has looked at."""

    cell: int
    pid: int
    time: float
    threads: int = 0
    memory_bytes: int | None = None

    def to_dict(self) -> dict[str, object]:
        """What ``%sandbox checkpoints`` shows."""
        return {"cell": self.cell, "time": self.time, "memory_bytes": self.memory_bytes}


class CheckpointShelf:
    """The checkpoints of one session, oldest first. ``keep`` is how many steps back ``undo`` shall be able to go."""

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self._items: list[Checkpoint] = []

    def all(self) -> tuple[Checkpoint, ...]:
        """Every checkpoint, oldest first."""
        return tuple(self._items)

    def add(self, item: Checkpoint) -> tuple[Checkpoint, ...]:
        """A new checkpoint of the present state; returns those that are to be dropped for it."""
        replaced = [old for old in self._items if old.cell >= item.cell]
        self._items = [old for old in self._items if old.cell < item.cell]
        self._items.append(item)
        surplus = max(0, len(self._items) - (self.keep + 1))
        dropped, self._items = self._items[:surplus], self._items[surplus:]
        return (*replaced, *dropped)

    def reachable(self, present: int) -> tuple[Checkpoint, ...]:
        """What ``undo`` can go back to from the state after ``present`` cells, nearest first."""
        return tuple(item for item in reversed(self._items) if item.cell < present)

    def newest(self) -> Checkpoint | None:
        """Where a failed cell goes back to."""
        return self._items[-1] if self._items else None

    def before(self, steps: int, present: int) -> Checkpoint:
        """The checkpoint that is this many cells back; ``SessionError`` says how far one can go."""
        wanted = present - steps
        for item in self._items:
            if item.cell == wanted:
                return item
        far = [present - item.cell for item in self.reachable(present)]
        possible = f"possible are: {', '.join(map(str, sorted(far)))}" if far else "nothing can be undone"
        raise SessionError(f"undo of {steps} cells is not possible here; {possible}")

    def remove(self, cells: Collection[int]) -> tuple[int, ...]:
        """The checkpoints of these cells are gone; returns those that were there."""
        gone = tuple(item.cell for item in self._items if item.cell in cells)
        self._items = [item for item in self._items if item.cell not in cells]
        return gone

    def drop_oldest(self) -> Checkpoint | None:
        """Give up the oldest one that is not the newest."""
        return self._items.pop(0) if len(self._items) > 1 else None

    def taken_over(self, item: Checkpoint) -> tuple[int, ...]:
        """A checkpoint becomes the worker: it and all later ones leave the shelf; returns the cells of the others."""
        self._items = [old for old in self._items if old.cell < item.cell]
        return tuple(old.cell for old in self._items)

    def clear(self) -> None:
        """All are gone with their jail."""
        self._items = []


def room_beside_cells(checkpoints: int) -> int:
    """How many processes a session may have beside those of its cells: its checkpoints, and moments of change."""
    return checkpoints + 3

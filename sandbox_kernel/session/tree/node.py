"""One node of a session's tree of states, as users see it, and what is needed to run its cell again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sandbox_kernel.model import FsChange


@dataclass(frozen=True, kw_only=True)
class Changes:
    """What one cell changed: variables by name, and files of the work folder.

    Attributes:
        added: names of variables that the cell made.
        changed: names of variables whose value is another one after the cell.
        removed: names of variables that the cell deleted.
        unsure: names of variables that cannot be compared (generators, sockets): they may have changed.
        files: files that the cell created, changed or deleted.
        unknown: why the variables could not be compared; empty when they were.

    """

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    unsure: tuple[str, ...] = ()
    files: tuple[FsChange, ...] = ()
    unknown: str = ""

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed or self.files)

    def names(self) -> Iterator[str]:
        """Return the names of all variables that the cell added, changed or removed."""
        yield from self.added
        yield from self.changed
        yield from self.removed


@dataclass(frozen=True, kw_only=True)
class Node:
    """One state of a session: that after a cell, or the one it began with.

    Attributes:
        id: the node's number in the tree; 0 is the beginning.
        parent: the node that its cell ran in; None for the beginning.
        name: the name that ``checkpoint`` gave it; empty without one.
        number: the number of its cell: the notebook's execution count, or how many cells are in the state.
        code: the source of its cell; empty for the beginning.
        time: when its cell ended, in seconds since the epoch.
        changed: what its cell changed.
        memory_bytes: memory that it alone holds; None when it holds none or that was not measured.
        alive: whether the state is held in memory. ``checkout`` of another one runs its cells again.
        present: whether this is the state that the next cell runs in.
        lacks: what the state cannot hold, each as a short sentence: threads, for example.

    """

    id: int
    parent: int | None
    name: str
    number: int
    code: str
    time: float
    changed: Changes
    memory_bytes: int | None
    alive: bool
    present: bool
    lacks: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return the fields as plain values, for pages."""
        return {
            "id": self.id,
            "parent": self.parent,
            "name": self.name,
            "number": self.number,
            "code": self.code,
            "time": self.time,
            "added": list(self.changed.added),
            "changed": list(self.changed.changed),
            "removed": list(self.changed.removed),
            "unsure": list(self.changed.unsure),
            "files": [[change.path, str(change.kind)] for change in self.changed.files],
            "memory_bytes": self.memory_bytes,
            "alive": self.alive,
            "present": self.present,
            "lacks": list(self.lacks),
        }


@dataclass(frozen=True, kw_only=True)
class CellText:
    """A cell that was run and kept, with what is needed to run it again. None is the session's own limit.

    ``status`` is how it ended; running it again has to end the same way.
    """

    code: str
    timeout_s: float
    number: int | None = None
    memory_mb: int | None = None
    cpu_seconds: float | None = None
    output_bytes: int | None = None
    status: str = "ok"

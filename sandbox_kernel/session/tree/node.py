"""The values of a session's tree of states, as users see them: nodes, checkpoints, and how two states differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import NamedTuple

from sandbox_kernel.model import FsChange
from sandbox_kernel.util.values import dataclass
from sandbox_kernel.workspace.changes import FileDiff
from sandbox_kernel.workspace.tree.paths import display_name


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
            **{name: value for name, value in vars(self).items() if name not in ("changed", "lacks")},
            "added": list(self.changed.added),
            "changed": list(self.changed.changed),
            "removed": list(self.changed.removed),
            "unsure": list(self.changed.unsure),
            "files": [[change.path, str(change.kind)] for change in self.changed.files],
            "lacks": list(self.lacks),
        }


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One frozen copy of a session's worker; ``time`` is when its cell ended, in seconds since the epoch."""

    #: How many cells are in this state; 0 is the state before the first cell.
    cell: int
    #: Its pid inside the jail; the gate checks it.
    pid: int
    time: float
    #: Memory that it alone holds; None when that was not measured.
    memory_bytes: int | None = None
    #: The node of the session's tree that it is the state of.
    node: int = 0


class ValueChange(NamedTuple):
    """A variable in two states, each in a few words."""

    before: str
    after: str


@dataclass(frozen=True, kw_only=True)
class StateDiff:
    """How one state of a session differs from another.

    Attributes:
        before: the number of the first node.
        after: the number of the second node.
        added: variables that only the second one has, each with its value in a few words.
        changed: variables whose values differ, each with its values in both.
        removed: variables that only the first one has.
        unsure: variables that cannot be compared, such as generators and sockets.
        files: files that differ.
        unknown: what could not be compared and why, each as a sentence.
    """

    before: int
    after: int
    added: Mapping[str, str] = field(default_factory=dict)
    changed: Mapping[str, ValueChange] = field(default_factory=dict)
    removed: Mapping[str, str] = field(default_factory=dict)
    unsure: tuple[str, ...] = ()
    files: tuple[FileDiff, ...] = ()
    unknown: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.removed or self.files)

    def __str__(self) -> str:
        lines = [f"node {self.before} → node {self.after}"]
        lines += [f"+ {name}: {text}" for name, text in self.added.items()]
        lines += [f"~ {name}: {pair.before} → {pair.after}" for name, pair in self.changed.items()]
        lines += [f"- {name}: {text}" for name, text in self.removed.items()]
        if self.unsure:
            lines.append(f"? {', '.join(self.unsure)}: cannot be compared")
        for file in self.files:
            lines.append(f"file {display_name(file.path)} {file.kind}")
            lines += [f"    {line}" for line in file.patch.splitlines()]
        lines += self.unknown
        return "\n".join(lines if len(lines) > 1 else [*lines, "no difference"])

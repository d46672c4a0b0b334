"""The difference between two states of a session: variables with short values, files with their lines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sandbox_kernel.session.tree.looks import Seen, ValueChange, changes, words
from sandbox_kernel.workspace.changes import FileDiff


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
            lines.append(f"file {file.path} {file.kind}")
            lines += [f"    {line}" for line in file.patch.splitlines()]
        lines += self.unknown
        return "\n".join(lines if len(lines) > 1 else [*lines, "no difference"])


def compare(
    nodes: tuple[int, int],
    looks: tuple[Mapping[str, Seen] | None, Mapping[str, Seen] | None],
    files: tuple[FileDiff, ...],
    files_problem: str,
) -> StateDiff:
    """Return the difference of two nodes. A look is None where the variables are not known."""
    first, second = looks
    unknown = [f"files: {files_problem}"] if files_problem else []
    if first is None or second is None:
        missing = " and ".join(str(node) for node, look in zip(nodes, looks, strict=True) if look is None)
        unknown.append(f"variables: those of node {missing} were not looked at")
        return StateDiff(before=nodes[0], after=nodes[1], files=files, unknown=tuple(unknown))
    found = changes(first, second)
    if found.unknown:
        unknown.append(f"variables: {found.unknown}")
    return StateDiff(
        before=nodes[0],
        after=nodes[1],
        added={name: words(second[name]) for name in found.added},
        changed={name: ValueChange(words(first[name]), words(second[name])) for name in found.changed},
        removed={name: words(first[name]) for name in found.removed},
        unsure=found.unsure,
        files=files,
        unknown=tuple(unknown),
    )

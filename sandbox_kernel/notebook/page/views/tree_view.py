"""The tree of a session's states as text for a page, and the line commands that move in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from sandbox_kernel.limits import MIB
from sandbox_kernel.notebook.render import Message, ShowOutput
from sandbox_kernel.session.session import Session
from sandbox_kernel.session.tree.node import Changes, Node

#: How much of a cell's first line, and how many names of changed variables, a line of the tree shows.
_CODE, _NAMES = 48, 6


def redo(session: Session, count: int) -> str:
    """``%sandbox redo``."""
    return "\n".join(session.redo(count).notes)


def name(session: Session, wanted: str, states: Sequence[str] = ()) -> str:
    """``%sandbox checkpoint NAME [STATE]``."""
    node = session.checkpoint(wanted, *states)
    return f"The state after cell [{node.number}] is {node.name!r} now (node {node.id})."


def checkout(session: Session, where: str) -> str:
    """``%sandbox checkout NAME``."""
    return "\n".join(session.checkout(where).notes)


def tree(session: Session) -> tuple[Message, ...]:
    """``%sandbox tree``."""
    nodes = session.history()
    return _shown([*tree_lines(nodes), summary(nodes)])


def diff(session: Session, states: Sequence[str]) -> tuple[Message, ...]:
    """``%sandbox diff [A] [B]``: alone, what the cell of the present state changed."""
    if states:
        return _shown(str(session.diff(*states)).splitlines())
    present = next(node for node in session.history() if node.present)
    return _shown(str(session.diff(present.id if present.parent is None else present.parent)).splitlines())


def branches(session: Session) -> tuple[Message, ...]:
    """``%sandbox branches``: the ends of all branches, and named states."""
    nodes = session.history()
    parents = {node.parent for node in nodes}
    ends = [node for node in nodes if node.id not in parents or node.name or node.present]
    return _shown([f"{_mark(node)} {line_of(node)}" for node in ends])


def tree_lines(nodes: Sequence[Node]) -> list[str]:
    """Return one line for each node. The line of the present state is not indented; other branches stand beside it.

    ``●`` is the present state, ``○`` one that is held, ``·`` one whose cells would have to run again.
    """
    by_id = {node.id: node for node in nodes}
    children: dict[int | None, list[Node]] = {}
    for node in nodes:
        children.setdefault(node.parent, []).append(node)
    at = next((node.id for node in nodes if node.present), None)
    present: set[int] = set()
    while at is not None and at in by_id:
        present.add(at)
        at = by_id[at].parent
    found: list[str] = []
    # A stack of lines to draw: a node with what stands before it, and what stands before the nodes after it.
    pending = [(node, "", "") for node in reversed(children.get(None, []))]
    while pending:
        node, first, rest = pending.pop()
        found.append(f"{first}{_mark(node)} {line_of(node)}")
        below = sorted(children.get(node.id, []), key=lambda child: (child.id in present, child.id))
        if below:
            pending.append((below[-1], rest, rest))
            pending += [(child, f"{rest}├─", f"{rest}│ ") for child in reversed(below[:-1])]
    return found


def line_of(node: Node) -> str:
    """Return one node as a line: its number, its name, its cell and what that changed."""
    if node.parent is None and not node.code:
        cell = "the beginning"
    else:
        first = next((line.strip() for line in node.code.splitlines() if line.strip()), "")
        cell = f"[{node.number}] {first[: _CODE - 1] + '…' if len(first) > _CODE else first}"
    parts = [str(node.id), *([repr(node.name)] if node.name else []), cell, *changed_words(node.changed)]
    return "  ".join(parts)


def changed_words(changes: Changes) -> Iterator[str]:
    """Yield what a cell changed, in signs: ``+`` added, ``~`` changed, ``-`` removed; then files."""
    signs = [(sign, name) for sign, names in _signs(changes) for name in names]
    if signs:
        more = f" and {len(signs) - _NAMES} more" if len(signs) > _NAMES else ""
        yield " ".join(f"{sign}{name}" for sign, name in signs[:_NAMES]) + more
    if changes.files:
        yield f"{len(changes.files)} file{'' if len(changes.files) == 1 else 's'}"


def _signs(changes: Changes) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return (("+", changes.added), ("~", changes.changed), ("-", changes.removed))


def summary(nodes: Sequence[Node]) -> str:
    """Return one line about all: how many states are held, and what memory they hold alone."""
    held = [node for node in nodes if node.alive]
    memory = sum(node.memory_bytes or 0 for node in held)
    return f"{len(held)} of {len(nodes)} states are held, with {memory / MIB:.0f} MB of their own"


def _mark(node: Node) -> str:
    return "●" if node.present else "○" if node.alive else "·"


def _shown(lines: Sequence[str]) -> tuple[Message, ...]:
    text = "\n".join(lines)
    return (ShowOutput({"text/html": f"<pre class='mathjax_ignore'>{escape(text)}</pre>", "text/plain": text}),)

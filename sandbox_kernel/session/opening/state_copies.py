"""Copies of states in the host's memory, for a session that uses a GPU: it makes no checkpoints, but can be saved.

``checkpoint`` makes a copy, ``checkout`` and a rollback load it. Used by ``python_state.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sandbox_kernel.session.opening.wasm_state import State

#: How many copies a session holds; each may be as large as the session.
MOST_COPIES = 2


@dataclass(frozen=True)
class StateCopy:
    """A state, and the cells that make the variables which could not be copied, by their names."""

    state: State
    recipes: Mapping[str, str]


class StateCopies:
    """The copies of one session, by node. The oldest one goes when there are too many."""

    def __init__(self) -> None:
        self._held: dict[int, StateCopy] = {}

    def __len__(self) -> int:
        return len(self._held)

    def keep(self, node: int, copy: StateCopy) -> None:
        """Hold the copy of a node, instead of an earlier one of the same node."""
        self._held.pop(node, None)
        self._held[node] = copy
        while len(self._held) > MOST_COPIES:
            del self._held[next(iter(self._held))]

    def of(self, node: int) -> StateCopy | None:
        """Return the copy of a node; None without one."""
        return self._held.get(node)

    def nearest(self, line: Sequence[int], until: int) -> int | None:
        """Return the first node of a line that has a copy, before the node ``until``; None when there is none."""
        for node in line:
            if node == until:
                return None
            if node in self._held:
                return node
        return None

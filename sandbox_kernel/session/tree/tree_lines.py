"""How the states of a session hang together, and which of them a request means: so many back, ahead, by name."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from sandbox_kernel.errors import CheckpointGone, InvalidRequest, SessionError
from sandbox_kernel.session.tree.node import Node
from sandbox_kernel.session.tree.state_record import StateRecord
from sandbox_kernel.session.worker.checkpoints import Checkpoint

#: The longest name of a node, in characters.
MAX_NAME = 100


class TreeLines:
    """The nodes of one session, the one it is at, and the ways between them."""

    def __init__(self, keep: int) -> None:
        #: How many cells back ``undo`` can go.
        self.keep = keep
        self.records: dict[int, StateRecord] = {0: StateRecord(0, None, 0, None, looked=True)}
        #: The node whose state the session has now.
        self.present = 0

    @property
    def here(self) -> StateRecord:
        """The record of the present node."""
        return self.records[self.present]

    def go_to(self, node: int) -> None:
        """Make a node the present one."""
        before, self.present = self.present, node
        child = self.records[node]
        if child.parent == before:
            # Above the parent every ``last`` leads to it already.
            self.records[before].last = node
            return
        while child.parent is not None:
            parent = self.records[child.parent]
            parent.last, child = child.id, parent

    def line(self, node: int | None = None) -> list[int]:
        """Return a node and its ancestors, nearest first; of the present node when none is given."""
        return list(self._upwards(self.present if node is None else node))

    def _upwards(self, node: int) -> Iterator[int]:
        at: int | None = node
        while at is not None:
            yield at
            at = self.records[at].parent

    def nearest(self) -> Checkpoint | None:
        """Return the checkpoint that a rollback goes back to: of the present node or its nearest living ancestor."""
        for node in self._upwards(self.present):
            checkpoint = self.records[node].checkpoint
            if checkpoint is not None:
                return checkpoint
        return None

    def reachable(self) -> tuple[Checkpoint, ...]:
        """Return the checkpoints that ``undo`` can go back to, nearest first."""
        near = itertools.islice(self._upwards(self.present), 1, self.keep + 1)
        found = (self.records[node].checkpoint for node in near)
        return tuple(checkpoint for checkpoint in found if checkpoint is not None)

    def back(self, steps: int) -> int:
        """Return the node ``steps`` cells back. Raises ``SessionError``, which lists the possible steps."""
        line = self.line()
        far = [self.here.depth - item.cell for item in self.reachable()]
        if steps in far:
            return line[steps]
        if steps < len(line) and self.records[line[steps]].killed:
            raise CheckpointGone(
                f"the checkpoint {_cells(steps)} back is gone: it was killed, by the session itself or for memory; "
                "nothing was taken back, and the session is as it was"
            )
        possible = f"possible are: {', '.join(map(str, sorted(far)))}" if far else "nothing can be undone"
        more = "; session.checkout(node) goes to any node of session.history()" if steps < len(line) else ""
        raise SessionError(f"undo of {_cells(steps)} is not possible here; {possible}{more}")

    def forward(self, steps: int) -> int:
        """Return the node ``steps`` cells ahead, on the branch that the session was in last."""
        at = self.present
        for done in range(steps):
            ahead = self.records[at].last
            if ahead is None:
                can = f"{done} can be" if done else "there is nothing to redo"
                raise SessionError(
                    f"redo of {_cells(steps)} is not possible here: {can}; redo follows an undo or a checkout"
                )
            at = ahead
        return at

    def find(self, where: Node | int | str) -> int:
        """Return the number of a node given as a node, a number or a name; raises ``SessionError`` without one."""
        if isinstance(where, Node):
            where = where.id
        if isinstance(where, bool) or not isinstance(where, int | str):
            raise InvalidRequest(f"a state is given as a node, its number or its name, got {where!r:.80}")
        if isinstance(where, str):
            named = [record.id for record in self.records.values() if record.name == where]
            if named:
                return named[0]
            if where.isascii() and where.isdigit() and int(where) in self.records:
                return int(where)
        elif where in self.records:
            return where
        names = ", ".join(repr(record.name) for record in self.records.values() if record.name)
        raise SessionError(
            f"there is no state {where!r:.120} in this session; "
            + (f"named ones are: {names:.300}" if names else "no state has a name yet")
            + "; session.history() (%sandbox tree) lists all"
        )

    def name_node(self, name: str, node: int | None = None) -> StateRecord:
        """Give a node, or the present one, a name and return it; another node that had the name loses it."""
        for record in self.records.values():
            if record.name == name:
                record.name = ""
        named = self.here if node is None else self.records[node]
        named.name = name
        return named

    def replayed(self, node: int) -> list[int]:
        """Return the nodes whose cells have to be run again to get to a node that does not live, first one first.

        The parent of the first one lives. Raises ``SessionError`` when the way there was forgotten.
        """
        again: list[int] = []
        for at in self.line(node):
            if self.records[at].checkpoint is not None:
                return again[::-1]
            again.append(at)
        raise SessionError(
            f"node {node} does not live any more and cannot be made again: "
            + ("the cells before it were forgotten" if self.records[node].cut else "no state before it lives either")
            + "; session.history() has its code"
        )


def check_name(name: object) -> str:
    """Return a name for a node; raises ``InvalidRequest`` for one that cannot be told from a number or be shown."""
    if not isinstance(name, str) or not name.strip() or len(name) > MAX_NAME or not name.isprintable():
        raise InvalidRequest(f"a state's name must be a short text of printable characters, got {name!r:.120}")
    if name.strip().isdigit():
        raise InvalidRequest(f"a state's name must not be a number, which means a node: got {name!r}")
    return name.strip()


def _cells(count: int) -> str:
    return f"{count} {'cell' if count == 1 else 'cells'}"

"""The bookkeeping of a session's tree: which states there are, and which of them live.

No processes here. A node is named by its number, which the gate uses for its checkpoint too. ``tree_lines.py`` knows
how the nodes hang together, ``tree_looks.py`` what their variables are. ``thinning.py`` decides which living node is
given up first; a node that was given up stays in the history with its code.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection

from sandbox_kernel.session.tree.looks import delta
from sandbox_kernel.session.tree.node import CellText, Node
from sandbox_kernel.session.tree.state_record import StateRecord
from sandbox_kernel.session.tree.thinning import LivingNode, first_to_go
from sandbox_kernel.session.tree.tree_looks import TreeLooks
from sandbox_kernel.session.worker.checkpoints import Checkpoint, living_bound

#: The most nodes of a history; beyond it the oldest that do not live are forgotten.
MAX_NODES = 5000


class StateTree(TreeLooks):
    """The states of one session. ``keep`` is how many cells back ``undo`` can go; 0: no state is ever held."""

    def __init__(self, keep: int) -> None:
        super().__init__(keep)
        self._next = 1
        #: The nodes that live. A session may have thousands of nodes, and few of them live: nothing that each cell does
        #: looks at all nodes.
        self._living: set[int] = set()

    def living(self) -> tuple[Checkpoint, ...]:
        """Return every checkpoint that lives, oldest node first."""
        held = (self.records[node].checkpoint for node in sorted(self._living))
        return tuple(checkpoint for checkpoint in held if checkpoint is not None)

    @property
    def living_count(self) -> int:
        """How many checkpoints live."""
        return len(self._living)

    def grow(self, cell: CellText) -> int:
        """Add the state after a cell as a child of the present node, and make it the present one."""
        here = self.here
        made = StateRecord(self._next, here.id, here.depth + 1, cell, cut=here.cut)
        self.records[made.id] = made
        here.children.append(made.id)
        self._next += 1
        self.go_to(made.id)
        while len(self.records) > MAX_NODES and self._forget_oldest():
            pass
        return made.id

    def hold(self, checkpoint: Checkpoint) -> list[int]:
        """Note the checkpoint of its node. Returns the nodes whose checkpoints the caller has to drop for it."""
        record = self.records[checkpoint.node]
        record.checkpoint, record.killed = checkpoint, False
        self._living.add(record.id)
        dropped: list[int] = []
        while len(self._living) > living_bound(self.keep) + 1 and (node := self.give_up(for_memory=False)) is not None:
            dropped.append(node)
        return dropped

    def give_up(self, *, for_memory: bool, among: Collection[int] | None = None) -> int | None:
        """Let the least worthy checkpoint go and return its node; None when only the present one is left.

        ``among`` are the nodes that may go; None means all.
        """
        near = set(itertools.islice(self._upwards(self.present), self.keep + 1))
        candidates = [
            LivingNode(
                id=record.id,
                steps_back=self.here.depth - record.depth if record.id in near else None,
                # The beginning cannot be made again by running cells.
                named=bool(record.name) or record.id == 0,
                tip=not record.children,
            )
            for record in map(self.records.__getitem__, sorted(self._living - {self.present}))
            if among is None or record.id in among
        ]
        chosen = first_to_go(candidates, newest=self._next, for_memory=for_memory)
        if chosen is not None:
            self._release(chosen)
        return chosen

    def release(self, nodes: Collection[int]) -> list[int]:
        """Let the checkpoints of these nodes go, but not that of the present one. Returns the nodes that had one."""
        going = [node for node in nodes if node in self._living and node != self.present]
        for node in going:
            self._release(node)
        return going

    def remove(self, nodes: Collection[int]) -> tuple[int, ...]:
        """Note that the checkpoints of these nodes ended without our order. Returns the nodes that had one."""
        gone = tuple(node for node in nodes if node in self.records and self.records[node].checkpoint is not None)
        for node in gone:
            self._release(node)
            self.records[node].killed = True
        return gone

    def taken_over(self, node: int) -> tuple[int, ...]:
        """The checkpoint of a node becomes the worker. Returns the nodes whose checkpoints stay."""
        self._release(node)
        return tuple(item.node for item in self.living())

    def all_ended(self) -> None:
        """Forget every checkpoint: their jail has ended. The session is at its beginning again."""
        for node in tuple(self._living):
            self._release(node)
        self.go_to(0)

    def _release(self, node: int) -> None:
        self.records[node].checkpoint = None
        self._living.discard(node)

    def unseen(self) -> list[int]:
        """Return the living nodes whose variables were not looked at, oldest first."""
        return [item.node for item in self.living() if not self.records[item.node].looked]

    def nodes(self, memory: dict[int, int]) -> tuple[Node, ...]:
        """Return the tree as values, oldest first. ``memory`` is what each process holds alone, by its pid inside."""
        return tuple(self.node(record, memory) for record in self.records.values())

    def node(self, record: StateRecord, memory: dict[int, int]) -> Node:
        """Return one node as a value."""
        cell, held = record.cell, record.checkpoint
        return Node(
            id=record.id,
            parent=record.parent,
            name=record.name,
            number=cell.number if cell is not None and cell.number is not None else record.depth,
            code=cell.code if cell is not None else "",
            time=record.time,
            changed=record.changes,
            memory_bytes=memory.get(held.pid) if held is not None else None,
            alive=held is not None,
            present=record.id == self.present,
            lacks=record.lacks,
        )

    def _forget_oldest(self) -> bool:
        """Remove the oldest node that does not live, has no name and is not the beginning; False without one."""
        kept = set(itertools.islice(self._upwards(self.present), self.keep + 1))
        for record in self.records.values():
            if record.checkpoint is None and not record.name and record.id not in kept and record.parent is not None:
                parent = self.records[record.parent]
                later = [(below, self.look_at(below.id)) for below in self._looked_below(record.id)]
                parent.children = [child for child in parent.children if child != record.id] + record.children
                parent.last = record.last if parent.last == record.id else parent.last
                for child in record.children:
                    self.records[child].parent = parent.id
                self._cut(record.children)
                del self.records[record.id]
                self._forget_whole(record.id)
                for below, whole in later:
                    below.look = delta(self.look_at(parent.id), whole)
                return True
        return False

    def _cut(self, nodes: list[int]) -> None:
        """Mark these nodes and all below them: the way to them can no longer be run again."""
        pending = list(nodes)
        while pending:
            record = self.records[pending.pop()]
            if not record.cut:
                record.cut = True
                pending += record.children

"""The bookkeeping of a session's tree: which states there are, which of them live, where the session is.

No processes here. A node is named by its number, which the gate uses for its checkpoint too. ``thinning.py`` decides
which living node is given up first; a node that was given up stays in the history with its code.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from sandbox_kernel.errors import CheckpointGone, InvalidRequest, SessionError
from sandbox_kernel.model import FsChange
from sandbox_kernel.session.tree.looks import LookDelta, Seen, apply, changes, delta
from sandbox_kernel.session.tree.maker import Maker, find_maker
from sandbox_kernel.session.tree.node import CellText, Changes, Node
from sandbox_kernel.session.tree.thinning import LivingNode, first_to_go
from sandbox_kernel.session.worker.checkpoints import Checkpoint, living_bound

#: The most nodes of a history; beyond it the oldest that do not live are forgotten.
MAX_NODES = 5000
#: Beside what differs at each node, the variables of some nodes are kept whole: at least of so many nodes ...
_WHOLE_LOOKS = 8
#: ... and of more as long as all of them together have no more variables than this.
_WHOLE_VARIABLES = 50_000
#: The longest name of a node, in characters.
MAX_NAME = 100


@dataclass
class StateRecord:
    """What the tree knows of one node. ``last`` is the child that the session was in last: where ``redo`` goes."""

    id: int
    parent: int | None
    depth: int
    cell: CellText | None
    time: float
    name: str = ""
    checkpoint: Checkpoint | None = None
    #: Whether its checkpoint ended without our order.
    killed: bool = False
    last: int | None = None
    children: list[int] = field(default_factory=list)
    changes: Changes = field(default_factory=Changes)
    lacks: tuple[str, ...] = ()
    #: What its variables are, as a difference; None when they are not known.
    look: LookDelta | None = None
    #: Whether its variables were looked at, with or without success.
    looked: bool = False
    #: Whether a cell between it and the beginning was forgotten, so that the way there cannot be run again.
    cut: bool = False


class StateTree:
    """The states of one session. ``keep`` is how many cells back ``undo`` can go; 0: no state is ever held."""

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self.records: dict[int, StateRecord] = {0: StateRecord(0, None, 0, None, time.time(), looked=True)}
        #: The node whose state the session has now.
        self.present = 0
        self._next = 1
        #: The nodes that live. A session may have thousands of nodes, and few of them live: nothing that each cell does
        #: looks at all nodes.
        self._living: set[int] = set()
        #: The variables of some nodes, whole, so that nothing goes up the whole line to know what a node has.
        self._known: dict[int, dict[str, Seen]] = {}
        self._known_variables = 0

    @property
    def here(self) -> StateRecord:
        """The record of the present node."""
        return self.records[self.present]

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
        made = StateRecord(self._next, here.id, here.depth + 1, cell, time.time(), cut=here.cut)
        self.records[made.id] = made
        here.children.append(made.id)
        self._next += 1
        self.go_to(made.id)
        while len(self.records) > MAX_NODES and self._forget_oldest():
            pass
        return made.id

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

    def hold(self, checkpoint: Checkpoint) -> list[int]:
        """Note the checkpoint of its node. Returns the nodes whose checkpoints the caller has to drop for it."""
        record = self.records[checkpoint.node]
        record.checkpoint, record.killed = checkpoint, False
        self._living.add(record.id)
        dropped: list[int] = []
        while len(self._living) > living_bound(self.keep) + 1 and (node := self.give_up(for_memory=False)) is not None:
            dropped.append(node)
        return dropped

    def give_up(self, *, for_memory: bool) -> int | None:
        """Let the least worthy checkpoint go and return its node; None when only the present one is left."""
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

    def looked(self, node: int, found: Mapping[str, Seen]) -> None:
        """Note what the variables of a node are; the first look at a node counts."""
        record = self.records.get(node)
        if record is None or record.look is not None:
            return
        record.looked = True
        # States that were looked at earlier are told by what differs from this one from now on.
        later = [(below, self.look_at(below.id)) for below in self._looked_below(node)]
        before = self.look_at(record.parent) if record.parent is not None else {}
        record.look = delta(before, found)
        self._keep_whole(node, dict(found))
        record.changes = replace(changes(before, found), files=record.changes.files)
        for below, whole in later:
            below.look = delta(found, whole)
            below.changes = replace(changes(found, whole), files=below.changes.files)

    def _keep_whole(self, node: int, found: dict[str, Seen]) -> None:
        """Keep what the variables of a node are, and forget the ones kept longest beyond the bounds."""
        self._forget_whole(node)
        self._known[node] = found
        self._known_variables += len(found) + 1
        while len(self._known) > _WHOLE_LOOKS and self._known_variables > _WHOLE_VARIABLES:
            self._forget_whole(next(iter(self._known)))

    def _forget_whole(self, node: int) -> None:
        found = self._known.pop(node, None)
        self._known_variables -= 0 if found is None else len(found) + 1

    def _looked_below(self, node: int) -> Iterator[StateRecord]:
        """Yield the nearest nodes below a node that were looked at."""
        pending = list(self.records[node].children)
        while pending:
            record = self.records[pending.pop()]
            if record.look is not None:
                yield record
            else:
                pending += record.children

    def unseen(self) -> list[int]:
        """Return the living nodes whose variables were not looked at, oldest first."""
        return [item.node for item in self.living() if not self.records[item.node].looked]

    def not_seen(self, nodes: Iterable[int]) -> None:
        """Note of those of these nodes that are not known: no look at them will bring anything any more."""
        for record in filter(None, map(self.records.get, nodes)):
            if not record.looked:
                record.looked = True
                record.changes = replace(record.changes, unknown="its variables could not be looked at")

    def maker_of(self, variable: str) -> Maker | None:
        """Return the cell on the present line that makes a variable again; None if it may make another value."""
        return find_maker([self.records[node] for node in self.line()], self.look_at, variable)

    def changed_files(self, files: tuple[FsChange, ...]) -> None:
        """Note which files the cell of the present node has changed."""
        self.here.changes = replace(self.here.changes, files=files)

    def seen(self, node: int) -> dict[str, Seen] | None:
        """Return what the variables of a node are; None when it was not looked at. The beginning has none."""
        return self.look_at(node) if node == 0 or self.records[node].look is not None else None

    def look_at(self, node: int) -> dict[str, Seen]:
        """Return what the variables of a node are, or of its nearest ancestor that was looked at."""
        found: dict[str, Seen] = {}
        later = []
        for at in self._upwards(node):
            if at in self._known:
                found = dict(self._known[at])
                break
            known = self.records[at].look
            if known is not None:
                later.append(known)
        for known in reversed(later):
            found = apply(found, known)
        if later:
            self._keep_whole(node, dict(found))
        return found

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
            + ("the cells before it were forgotten" if self.records[node].cut else "no state of this session lives")
        )

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


def check_name(name: object) -> str:
    """Return a name for a node; raises ``InvalidRequest`` for one that cannot be told from a number or be shown."""
    if not isinstance(name, str) or not name.strip() or len(name) > MAX_NAME or not name.isprintable():
        raise InvalidRequest(f"a state's name must be a short text of printable characters, got {name!r:.120}")
    if name.strip().isdigit():
        raise InvalidRequest(f"a state's name must not be a number, which means a node: got {name!r}")
    return name.strip()


def cell_name(record: StateRecord) -> tuple[int, str]:
    """Return the number of a node's cell as the user knows it, and its code."""
    if record.cell is None:
        return record.depth, ""
    return record.depth if record.cell.number is None else record.cell.number, record.cell.code


def _cells(count: int) -> str:
    return f"{count} {'cell' if count == 1 else 'cells'}"

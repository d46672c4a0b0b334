"""The bookkeeping of a session's tree: which states there are, which of them live, what their variables are.

No processes here. A node is named by its number, which the gate uses for its checkpoint too. A node whose checkpoint
was evicted stays in the history with its code.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import field, replace

from sandbox_kernel.errors import CheckpointGone, InvalidRequest, SessionError
from sandbox_kernel.session.cell.request import CellRequest
from sandbox_kernel.session.tree.node import Changes, Node
from sandbox_kernel.session.tree.variables import Seen, changes
from sandbox_kernel.util.values import dataclass

#: The most nodes of a history; beyond it the oldest that do not live are forgotten.
MAX_NODES = 5000
#: The most variables that are remembered, of all nodes together; beyond it those of the oldest node are forgotten.
MAX_VARIABLES = 100_000
#: The longest name of a node, in characters.
MAX_NAME = 100


def living_bound(keep: int) -> int:
    """How many checkpoints may live beside the present one: those of ``undo``, named ones, tips, and older ones."""
    return max(keep, min(4 * keep, 60))


@dataclass
class StateRecord:
    """What the tree knows of one node. ``last`` is the child that the session was in last: where ``redo`` goes."""

    id: int
    parent: int | None
    depth: int
    #: The cell that made the state, to be run again; None for the beginning.
    cell: CellRequest | None
    #: Whether the cell ended without an error. When it is run again it has to end the same way.
    ended_well: bool = True
    time: float = field(default_factory=time.time)
    name: str = ""
    #: The pid inside the jail of its checkpoint; 0 when it does not live.
    pid: int = 0
    #: Whether its checkpoint ended without our order.
    killed: bool = False
    last: int | None = None
    children: list[int] = field(default_factory=list)
    changes: Changes = field(default_factory=Changes)
    lacks: tuple[str, ...] = ()
    #: Whether its variables were looked at, with or without success.
    looked: bool = False
    #: Whether a cell between it and the beginning was forgotten, so that the way there cannot be run again.
    cut: bool = False

    @property
    def code(self) -> str:
        """The source of the cell; empty for the beginning."""
        return str(self.cell.code) if self.cell is not None else ""

    @property
    def number(self) -> int:
        """The number of the cell as the user knows it: the notebook's, or how many cells are in the state."""
        return self.depth if self.cell is None or self.cell.number is None else self.cell.number

    def __str__(self) -> str:
        """Say which state it is: by its name, by its cell as the notebook counts it, or by its number in the tree."""
        if self.name:
            return repr(self.name)
        if self.cell is not None and self.cell.number is not None:
            return f"cell [{self.number}]"
        return f"node {self.id}" if self.id else "the beginning"


class StateTree:
    """The states of one session. ``keep`` is how many cells back ``undo`` can go; 0: no state is ever held."""

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self.records: dict[int, StateRecord] = {0: StateRecord(0, None, 0, None, looked=True)}
        #: The node whose state the session has now.
        self.present = 0
        #: The number of the next new node.
        self.next = 1
        #: The nodes that live. A session may have thousands of nodes, and few of them live: nothing that each cell does
        #: looks at all nodes.
        self._living: set[int] = set()
        #: What the variables of each node are, oldest report first.
        self._variables: dict[int, dict[str, Seen]] = {}
        self._variable_count = 0

    @property
    def here(self) -> StateRecord:
        """The record of the present node."""
        return self.records[self.present]

    def grow(self, cell: CellRequest, *, ended_well: bool = True) -> int:
        """Add the state after a cell as a child of the present node, and make it the present one."""
        here = self.here
        made = StateRecord(self.next, here.id, here.depth + 1, cell, ended_well, cut=here.cut)
        self.records[made.id] = made
        here.children.append(made.id)
        self.next += 1
        self.go_to(made.id)
        while len(self.records) > MAX_NODES and self._forget_oldest():
            pass
        return made.id

    def _forget_oldest(self) -> bool:
        """Remove the oldest node that does not live, has no name and is not the beginning; False without one."""
        kept = set(self._near())
        for record in self.records.values():
            if not record.pid and not record.name and record.id not in kept and record.parent is not None:
                parent = self.records[record.parent]
                parent.children = [child for child in parent.children if child != record.id] + record.children
                parent.last = record.last if parent.last == record.id else parent.last
                for child in record.children:
                    self.records[child].parent = parent.id
                # The way to those below can no longer be run again.
                pending = list(record.children)
                while pending:
                    below = self.records[pending.pop()]
                    pending += [] if below.cut else below.children
                    below.cut = True
                del self.records[record.id]
                self._forget_variables(record.id)
                return True
        return False

    # Moving.

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

    def _near(self) -> Iterator[int]:
        return itertools.islice(self._upwards(self.present), self.keep + 1)

    def nearest(self) -> StateRecord | None:
        """Return the state that a rollback goes back to: the present one or its nearest living ancestor."""
        return next((self.records[node] for node in self._upwards(self.present) if self.records[node].pid), None)

    def reachable(self) -> list[StateRecord]:
        """Return the living states that ``undo`` can go back to, nearest first."""
        return [self.records[node] for node in itertools.islice(self._near(), 1, None) if self.records[node].pid]

    def back(self, steps: int) -> int:
        """Return the node ``steps`` cells back. Raises ``SessionError``, which lists the possible steps."""
        line = self.line()
        far = [self.here.depth - record.depth for record in self.reachable()]
        if steps in far:
            return line[steps]
        if steps < len(line) and self.records[line[steps]].killed:
            raise CheckpointGone(
                f"the checkpoint {_cells(steps)} back is gone: it was killed, by the session itself or for memory; "
                "nothing was taken back, and the session is as it was"
            )
        possible = f"possible are: {', '.join(map(str, sorted(far)))}" if far else "nothing can be undone"
        more = "; session.checkout (%sandbox go) goes to any state of the tree" if steps < len(line) else ""
        raise SessionError(f"undo of {_cells(steps)} is not possible here; {possible}{more}")

    def forward(self, steps: int) -> int:
        """Return the node ``steps`` cells ahead, on the branch that the session was in last."""
        at = self.present
        for done in range(steps):
            ahead = self.records[at].last
            if ahead is None:
                can = f"{done} can be" if done else "there is nothing to redo"
                raise SessionError(
                    f"redo of {_cells(steps)} is not possible here: {can}; redo follows an undo, or going back"
                )
            at = ahead
        return at

    def replayed(self, node: int) -> list[int]:
        """Return the nodes whose cells run again to get to a lost one, from a living one on; else ``SessionError``."""
        again: list[int] = []
        for at in self._upwards(node):
            if self.records[at].pid:
                return again[::-1]
            again.append(at)
        raise SessionError(
            f"{self.records[node]} does not live any more and cannot be made again: "
            + ("the cells before it were forgotten" if self.records[node].cut else "no state before it lives either")
            + "; session.history() has its code"
        )

    # Names.

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

    def name_node(self, name: str, node: int) -> StateRecord:
        """Give a node a name and return it; another node that had the name loses it."""
        for record in self.records.values():
            if record.name == name:
                record.name = ""
        self.records[node].name = name
        return self.records[node]

    def node(self, record: StateRecord, memory: Mapping[int, int]) -> Node:
        """Return one node as a value. ``memory`` is what each process holds alone, by its pid inside."""
        return Node(
            id=record.id,
            parent=record.parent,
            name=record.name,
            number=record.number,
            code=record.code,
            time=record.time,
            changed=record.changes,
            memory_bytes=memory.get(record.pid) if record.pid else None,
            alive=bool(record.pid),
            present=record.id == self.present,
            lacks=record.lacks,
        )

    # Living nodes.

    def living(self) -> list[StateRecord]:
        """Return every state that lives, oldest node first."""
        return [self.records[node] for node in sorted(self._living)]

    @property
    def living_count(self) -> int:
        """How many checkpoints live."""
        return len(self._living)

    def hold(self, node: int, pid: int) -> None:
        """Note the checkpoint of a node."""
        self.records[node].pid, self.records[node].killed = pid, False
        self._living.add(node)

    @property
    def surplus(self) -> int:
        """How many checkpoints live beyond the bound."""
        return len(self._living) - living_bound(self.keep) - 1

    def evict(self, *, for_memory: bool, among: Collection[int] | None = None) -> int | None:
        """Give up the least worthy checkpoint and return its node; None when nothing may go.

        Named states and the tips of branches stay longest, then those near the present one. Of the rest, the states are
        spaced ever wider into the past: the one whose loss makes the smallest gap for its age goes first. Only
        ``for_memory`` may those go that ``undo`` can reach, and at last all but the present one.
        """
        living = self._living - {self.present}
        others = sorted(living if among is None else living.intersection(among))
        near = set(self._near()) if others else set[int]()
        gaps = {
            node: (after - before) / max(1, self.next - node)
            for node, before, after in zip(others, (0, *others), (*others[1:], self.next), strict=False)
        }

        def order(node: int) -> tuple[int, float]:
            record = self.records[node]
            if not node:
                return 5, node  # it holds little, and what was given up is made again from there if from nowhere else
            if record.name:
                return 4, node
            if node not in near:
                return (0, gaps[node]) if record.children else (2, node)
            return 3 if self.here.depth - record.depth == 1 else 1, node

        orders = {node: order(node) for node in others}
        may_go = [node for node in others if for_memory or orders[node][0] not in (1, 3)]
        if not may_go:
            return None
        chosen = min(may_go, key=orders.__getitem__)
        self._release(chosen)
        return chosen

    def release(self, nodes: Collection[int], *, present: bool = False) -> list[int]:
        """Let checkpoints go, that of the present node only if ``present``. Returns the nodes that had one."""
        going = [node for node in nodes if node in self._living and (present or node != self.present)]
        for node in going:
            self._release(node)
        return going

    def remove(self, nodes: Collection[int]) -> tuple[int, ...]:
        """Note that the checkpoints of these nodes ended without our order. Returns the nodes that had one."""
        gone = tuple(node for node in nodes if node in self._living)
        for node in gone:
            self._release(node)
            self.records[node].killed = True
        return gone

    def all_ended(self) -> None:
        """Forget every checkpoint: their jail has ended. The session is at its beginning again."""
        self.release(tuple(self._living), present=True)
        self.go_to(0)

    def _release(self, node: int) -> None:
        self.records[node].pid = 0
        self._living.discard(node)

    # Variables.

    def looked(self, node: int, found: Mapping[str, Seen]) -> None:
        """Note what the variables of a node are; the first report of a node counts."""
        record = self.records.get(node)
        if record is None or node in self._variables:
            return
        record.looked = True
        before = self.variables_at(record.parent) if record.parent is not None else {}
        # Equal values are kept once.
        kept = {name: before[name] if before.get(name) == seen else seen for name, seen in found.items()}
        self._variables[node] = kept
        self._variable_count += len(kept) + 1
        record.changes = replace(changes(before, kept), files=record.changes.files)
        # The nearest known ones below it were looked at earlier, and compared with a state before this one.
        pending = list(record.children)
        while pending:
            below = self.records[pending.pop()]
            if below.id in self._variables:
                below.changes = replace(changes(kept, self._variables[below.id]), files=below.changes.files)
            else:
                pending += below.children
        while self._variable_count > MAX_VARIABLES and len(self._variables) > 1:
            self._forget_variables(next(iter(self._variables)))

    def _forget_variables(self, node: int) -> None:
        found = self._variables.pop(node, None)
        self._variable_count -= 0 if found is None else len(found) + 1

    def not_seen(self, nodes: Iterable[int]) -> None:
        """Note which of these nodes are not known: no report of them will come any more."""
        for record in filter(None, map(self.records.get, nodes)):
            if not record.looked:
                record.looked = True
                record.changes = replace(record.changes, unknown="its variables could not be looked at")

    def unseen(self) -> list[int]:
        """Return the living nodes whose variables were not looked at, oldest first."""
        return [record.id for record in self.living() if not record.looked]

    def variables(self, node: int) -> dict[str, Seen] | None:
        """Return what the variables of a node are; None when they are not known. The beginning has none."""
        return self._variables.get(node, {} if node == 0 else None)

    def variables_at(self, node: int) -> dict[str, Seen]:
        """Return what the variables of a node are, or of its nearest ancestor whose variables are known."""
        return next((self._variables[at] for at in self._upwards(node) if at in self._variables), {})


def check_name(name: object) -> str:
    """Return a name for a node; raises ``InvalidRequest`` for one that cannot be told from a number or be shown."""
    if not isinstance(name, str) or not name.strip() or len(name) > MAX_NAME or not name.isprintable():
        raise InvalidRequest(f"a state's name must be a short text of printable characters, got {name!r:.120}")
    if name.strip().isdigit():
        raise InvalidRequest(f"a state's name must not be a number, which means a node: got {name!r}")
    return name.strip()


def _cells(count: int) -> str:
    return f"{count} {'cell' if count == 1 else 'cells'}"

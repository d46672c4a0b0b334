"""What the variables of each state of a session are, kept as what differs from the state before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from sandbox_kernel.model import FsChange
from sandbox_kernel.session.tree.looks import Seen, apply, changes, delta
from sandbox_kernel.session.tree.maker import Maker, find_maker
from sandbox_kernel.session.tree.state_record import StateRecord
from sandbox_kernel.session.tree.tree_lines import TreeLines

#: Beside what differs at each node, the variables of some nodes are kept whole: at least of so many nodes ...
_WHOLE_LOOKS = 8
#: ... and of more as long as all of them together have no more variables than this.
_WHOLE_VARIABLES = 50_000


class TreeLooks(TreeLines):
    """The nodes of one session, and what was seen of their variables and files."""

    def __init__(self, keep: int) -> None:
        super().__init__(keep)
        #: The variables of some nodes, whole, so that nothing goes up the whole line to know what a node has.
        self._known: dict[int, dict[str, Seen]] = {}
        self._known_variables = 0

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

    def not_seen(self, nodes: Iterable[int]) -> None:
        """Note which of these nodes are not known: no look at them will bring anything any more."""
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

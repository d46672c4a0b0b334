"""A comm that is open, as its gate keeps it: its state, and what was sent besides. Values; nothing here changes one.

Some widgets send more than state: commands to draw, or entries that are set and cleared at once (Plotly's figures).
From the first of them on, a comm has a *journal*.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from sandbox_kernel.notebook.page.frames.counted import OVERHEAD, Counted, CountedStore
from sandbox_kernel.untrusted.frames.comm_message import CommMessage

#: The most messages in the journal of one comm, and their bytes.
MAX_JOURNAL, MAX_JOURNAL_BYTES = 1000, 4 << 20
#: Models stand in a state by name, and in the outputs of an ``Output`` widget as what is shown.
_REFERENCE = re.compile(r'(?:IPY_MODEL_|"model_id":")([0-9a-f-]{1,64})')
_NONE = "null"

Path = tuple[object, ...]


@dataclass(frozen=True, kw_only=True)
class StateChange:
    """An update of some entries of a state, and of the buffers that belong into it by their paths."""

    state: Mapping[str, Counted[str]] = field(default_factory=dict)
    buffers: Mapping[Path, Counted[bytes]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The bytes that it takes."""
        return sum(entry.size for entry in self.state.values()) + sum(part.size for part in self.buffers.values())

    @cached_property
    def characters(self) -> int:
        """Its characters as JSON, without its buffers."""
        return sum(len(name) + len(entry.content) for name, entry in self.state.items())

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of the comms that it refers to."""
        return frozenset(found[1] for entry in self.state.values() for found in _REFERENCE.finditer(entry.content))

    def data(self) -> dict[str, object]:
        """Return the content of a message with it."""
        state = {name: json.loads(entry.content) for name, entry in self.state.items()}
        return {"state": state, "buffer_paths": [list(path) for path in self.buffers]}


@dataclass(frozen=True, kw_only=True)
class Command:
    """A message that is no state, with its buffers."""

    content: Counted[str]
    parts: tuple[Counted[bytes], ...]

    @property
    def size(self) -> int:
        """The bytes that it takes."""
        return self.content.size + sum(part.size for part in self.parts)


@dataclass(frozen=True, kw_only=True)
class OpenComm:
    """A comm that is open, and its state now."""

    name: str
    metadata: Counted[str]
    now: StateChange = field(default_factory=StateChange)
    #: The entries that the newest update has set.
    newest: frozenset[str] = frozenset()
    #: What was sent since the state was ``base``, in its order; empty while the state says it all.
    journal: tuple[StateChange | Command, ...] = ()
    journal_size: int = 0
    base: StateChange | None = None

    @property
    def first(self) -> StateChange:
        """Its state before its journal."""
        return self.base or self.now

    @property
    def characters(self) -> int:
        """About how many characters of JSON it takes to tell it to a page."""
        return len(self.metadata.content) + self.first.characters + self.journal_size

    @property
    def told_size(self) -> int:
        """The same with its buffers, in bytes."""
        return self.characters + sum(len(part.content) for part in self.first.buffers.values())

    @property
    def tables(self) -> int:
        """The bytes that its tables take, which each version of it has for itself."""
        entries = [len(change.state) + len(change.buffers) for change in (self.now, self.base) if change is not None]
        return OVERHEAD * (1 + (sum(entries) + len(self.journal)) // 4)

    def message(self, kind: str, state: StateChange) -> CommMessage:
        """Return a message with a whole state: ``comm_open``, or ``comm_msg`` with an update."""
        data = state.data() if kind == "comm_open" else {**state.data(), "method": "update"}
        return self._message(kind, data, state.buffers.values())

    def told(self) -> list[CommMessage]:
        """Return the messages of its journal."""
        return [
            self.message("comm_msg", one)
            if isinstance(one, StateChange)
            else self._message("comm_msg", json.loads(one.content.content), one.parts)
            for one in self.journal
        ]

    def closing(self) -> CommMessage:
        """Return the message that closes it."""
        return self._message("comm_close", {}, ())

    def _message(self, kind: str, data: dict[str, object], parts: Iterable[Counted[bytes]]) -> CommMessage:
        metadata = json.loads(self.metadata.content)
        buffers = tuple(part.content for part in parts)
        return CommMessage(kind=kind, comm_id=self.name, data=data, metadata=metadata, buffers=buffers)


def opened(message: CommMessage, store: CountedStore) -> OpenComm:
    """Return the comm that a message opens."""
    change = change_of(message, store)
    return OpenComm(name=message.comm_id, metadata=store.json(message.metadata), now=merged(StateChange(), [change]))


def change_of(message: CommMessage, store: CountedStore) -> StateChange:
    """Return the change of state that a message makes."""
    state, paths = message.data.get("state"), message.data.get("buffer_paths")
    if not isinstance(state, Mapping):
        return StateChange()
    entries = {str(name): store.json(value) for name, value in state.items()}
    buffers: dict[Path, Counted[bytes]] = {}
    if isinstance(paths, list) and len(paths) == len(message.buffers):
        for path, part in zip(paths, message.buffers, strict=True):
            if isinstance(path, list) and all(isinstance(step, str | int) for step in path):
                buffers[tuple(path)] = store.bytes(part)
    return StateChange(state=entries, buffers=buffers)


def merged(state: StateChange, changes: Iterable[StateChange]) -> StateChange:
    """Return a state with changes made to it, one after the other."""
    entries, buffers = dict(state.state), dict(state.buffers)
    for change in changes:
        if buffers:
            buffers = {path: part for path, part in buffers.items() if not path or path[0] not in change.state}
        entries.update(change.state)
        # The place of a buffer was taken out of the state, so the first step is not always among its entries.
        buffers.update(change.buffers)
    return StateChange(state=entries, buffers=buffers)


def changed(comm: OpenComm, change: StateChange) -> OpenComm:
    """Return the comm after an update. An entry that is cleared right after it was set begins a journal."""
    now = merged(comm.now, [change])
    after = replace(comm, now=now, newest=frozenset(change.state))
    if comm.journal:
        return _told(after, comm.first, change)
    cleared = [name for name, entry in change.state.items() if entry.content == _NONE and name in comm.newest]
    was_set = {name: comm.now.state[name] for name in cleared if comm.now.state[name].content != _NONE}
    if not was_set:
        return after
    parts = {path: part for path, part in comm.now.buffers.items() if path and path[0] in was_set}
    others = {path: part for path, part in comm.now.buffers.items() if path not in parts}
    nothing = {name: change.state[name] for name in was_set}
    base = StateChange(state={**comm.now.state, **nothing}, buffers=others)
    return _told(after, base, StateChange(state=was_set, buffers=parts), change)


def commanded(comm: OpenComm, message: CommMessage, store: CountedStore) -> OpenComm:
    """Return the comm after a message that is no state."""
    command = Command(content=store.json(dict(message.data)), parts=tuple(map(store.bytes, message.buffers)))
    return _told(comm, comm.first, command)


def without_journal(comm: OpenComm) -> OpenComm:
    """Return the comm with its state alone."""
    return replace(comm, base=None, journal=(), journal_size=0)


def _told(comm: OpenComm, base: StateChange, *news: StateChange | Command) -> OpenComm:
    """Return the comm with more in its journal. What is too much goes, the oldest first, into the state before it."""
    journal, size = [*comm.journal], comm.journal_size
    for one in news:
        if journal and _is_same_change(journal[-1], one):
            size -= journal.pop().size
        journal.append(one)
        size += one.size
    going = 0
    while len(journal) - going > MAX_JOURNAL or size > MAX_JOURNAL_BYTES:
        size -= journal[going].size
        going += 1
    if going == len(journal):
        return without_journal(comm)
    base = merged(base, [one for one in journal[:going] if isinstance(one, StateChange)])
    return replace(comm, base=base, journal=tuple(journal[going:]), journal_size=size)


def _is_same_change(earlier: StateChange | Command, later: StateChange | Command) -> bool:
    """Whether the later of two messages makes the earlier one needless, as at the moves of a slider."""
    if not isinstance(earlier, StateChange) or not isinstance(later, StateChange) or not later.state:
        return False
    values = (*earlier.state.values(), *later.state.values())
    return earlier.state.keys() == later.state.keys() and all(entry.content != _NONE for entry in values)

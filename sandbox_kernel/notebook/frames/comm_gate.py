"""The gate between the widgets of one session and the pages that show them.

It knows the open comms of its session with their state: no session speaks for the comms of another or of the kernel,
and a page that is opened later gets the state as it is. It makes a mark at each state that the session can go back to.
When it goes back, pages get that state again, and a new *epoch* begins: messages of earlier ones are refused.

Some widgets send more than state: commands to draw, or entries that are set and cleared at once (Plotly's figures).
From the first of them on, a comm has a *journal*.

A hostile session chooses what is kept. So values are kept as JSON text, because objects made of it take many times the
space, and are counted for as long as anything refers to them. Equal large texts, such as libraries, are kept once.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from functools import cached_property
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from sandbox_kernel.untrusted.frames.comm_message import CommMessage
from sandbox_kernel.util.values import dataclass

#: What one text takes besides its characters: objects, and its places in tables.
OVERHEAD = 256
_LARGE = 16 << 10

Content = TypeVar("Content", str, bytes)


class Counted(Generic[Content]):
    """A text, or bytes, of a store; ``more`` is what they take besides."""

    __slots__ = ("__weakref__", "_store", "content", "size")

    def __init__(self, store: CountedStore, content: Content, more: int = OVERHEAD) -> None:
        self._store: CountedStore = store
        self.content: Content = content
        self.size: int = len(content) + more
        store.held += self.size

    def __del__(self) -> None:
        self._store.held -= self.size


class CountedStore:
    """Counts what it keeps: ``held``, in bytes. For one thread at a time."""

    def __init__(self) -> None:
        self.held = 0
        self._large: WeakValueDictionary[str, Counted[str]] = WeakValueDictionary()

    def json(self, value: object) -> Counted[str]:
        """Keep a value as JSON text."""
        text = json.dumps(value, separators=(",", ":"))
        if len(text) < _LARGE:
            return Counted(self, text)
        known = self._large.get(text)
        if known is None:
            known = self._large[text] = Counted(self, text)
        return known


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
    #: What its tables take; each version of it has its own.
    tables: Counted[bytes] | None = None

    @property
    def first(self) -> StateChange:
        """Its state before its journal."""
        return self.base or self.now

    @property
    def characters(self) -> int:
        """About how many characters of JSON it takes to tell it to a page."""
        return len(self.metadata.content) + self.first.characters + self.journal_size

    @property
    def drawn_size(self) -> int:
        """The same with its buffers, in bytes."""
        return self.characters + sum(len(part.content) for part in self.first.buffers.values())

    def message(self, kind: str, state: StateChange) -> CommMessage:
        """Return a message with a whole state: ``comm_open``, or ``comm_msg`` with an update."""
        data = state.data() if kind == "comm_open" else {**state.data(), "method": "update"}
        return self.with_data(kind, data, state.buffers.values())

    def journal_messages(self) -> list[CommMessage]:
        """Return the messages of its journal."""
        return [
            self.message("comm_msg", one)
            if isinstance(one, StateChange)
            else self.with_data("comm_msg", json.loads(one.content.content), one.parts)
            for one in self.journal
        ]

    def with_data(self, kind: str, data: dict[str, object], parts: Iterable[Counted[bytes]] = ()) -> CommMessage:
        """Return a message with this content."""
        metadata = json.loads(self.metadata.content)
        buffers = tuple(part.content for part in parts)
        return CommMessage(kind=kind, comm_id=self.name, data=data, metadata=metadata, buffers=buffers)


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
                buffers[tuple(path)] = Counted(store, part)
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
        return _with_journal(after, comm.first, change)
    cleared = [name for name, entry in change.state.items() if entry.content == _NONE and name in comm.newest]
    was_set = {name: comm.now.state[name] for name in cleared if comm.now.state[name].content != _NONE}
    if not was_set:
        return after
    parts = {path: part for path, part in comm.now.buffers.items() if path and path[0] in was_set}
    others = {path: part for path, part in comm.now.buffers.items() if path not in parts}
    nothing = {name: change.state[name] for name in was_set}
    base = StateChange(state={**comm.now.state, **nothing}, buffers=others)
    return _with_journal(after, base, StateChange(state=was_set, buffers=parts), change)


def without_journal(comm: OpenComm) -> OpenComm:
    """Return the comm with its state alone."""
    return replace(comm, base=None, journal=(), journal_size=0)


def _with_journal(comm: OpenComm, base: StateChange, *news: StateChange | Command) -> OpenComm:
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


MAX_OPEN_COMMS = 2000
#: The most that all comms may hold together, with those of earlier states, in bytes.
MAX_HELD = 256 << 20
#: The most entries of one state.
MAX_ENTRIES = 1000
#: The most states with their comms.
MAX_MARKS = 64
#: The most names of closed comms that are kept.
MAX_CLOSED = 10_000
#: The most messages of all pages to one session in a second; ``perSecond`` of ``relay.js`` bounds one frame.
PER_SECOND = 400
#: What pages get of a session: so many bytes at once, and then so many in a second.
MAX_BURST, BYTES_PER_SECOND = 256 << 20, 8 << 20
#: The most characters of JSON that a page gets to draw one model, or to go back: all that is encoded at once.
MAX_DRAWN = 32 << 20
#: The largest state of a link, in bytes: a session may send any number of models that call themselves one.
_MAX_LINK = 4096
#: Models that ``jslink`` and ``jsdlink`` make, as JSON.
_LINKS = ('"LinkModel"', '"DirectionalLinkModel"')


class CommGate:
    """One for each session: the comms of its widgets."""

    def __init__(self) -> None:
        self.epoch = 0
        self._store = CountedStore()
        self._open: dict[str, OpenComm] = {}
        #: Comms that the session has closed; the newest come last.
        self._closed: dict[str, None] = {}
        #: The comms of each state that can be gone back to; those of older ones close.
        self._marks: dict[int, dict[str, OpenComm]] = {}
        self._state, self._newest = -1, -1
        #: Whether pages have shown what was taken back and is no state: they must draw anew.
        self.is_outdated = False
        #: Whether pages have missed something, because the session has sent too much.
        self.is_behind = False
        self._window, self._count = 0.0, 0
        self._room, self._refilled = float(MAX_BURST), time.monotonic()

    def from_session(self, message: CommMessage) -> bool:
        """Take a message of the session; whether the pages get it."""
        self._spend(message.size)
        if not (taken := self._taken(message)) or self._room >= 0:
            return taken
        self._room, self.is_behind = 0.0, True
        return False

    def _spend(self, size: int) -> None:
        now = time.monotonic()
        self._room = min(MAX_BURST, self._room + (now - self._refilled) * BYTES_PER_SECOND) - size
        self._refilled = now

    def _taken(self, message: CommMessage) -> bool:
        """Take a message of the session; whether it is for one of its comms, and fits."""
        known = self._open.get(message.comm_id)
        if message.kind == "comm_open":
            if known is not None or len(self._open) >= MAX_OPEN_COMMS:
                return False
            metadata, now = self._store.json(message.metadata), change_of(message, self._store)
            return self._keep(OpenComm(name=message.comm_id, metadata=metadata, now=now))
        if known is None:
            return False
        if message.kind == "comm_close":
            del self._open[message.comm_id]
            self._closed[message.comm_id] = None
            if len(self._closed) > MAX_CLOSED:
                del self._closed[next(iter(self._closed))]
        elif message.data.get("method") in ("update", "echo_update"):
            return self._keep(changed(known, change_of(message, self._store)))
        elif message.data.get("method") == "custom":
            parts = tuple(Counted(self._store, part) for part in message.buffers)
            command = Command(content=self._store.json(dict(message.data)), parts=parts)
            self._keep(_with_journal(known, known.first, command))
        return True

    def has_closed(self, model: str) -> bool:
        """Whether the session itself has closed a model."""
        return model in self._closed and model not in self._open

    def _keep(self, comm: OpenComm) -> bool:
        """Keep a comm with its state, unless that is too large; comms of earlier states go before it."""
        if len(comm.now.state) > MAX_ENTRIES or len(comm.now.buffers) > MAX_ENTRIES:
            return False
        entries = [len(change.state) + len(change.buffers) for change in (comm.now, comm.base) if change is not None]
        size = OVERHEAD * (1 + (sum(entries) + len(comm.journal)) // 4)
        comm = replace(comm, tables=Counted(self._store, b"", size))
        while self._store.held > MAX_HELD and self._let_go():
            pass
        if self._store.held > MAX_HELD:
            return False
        self._open[comm.name] = comm
        return True

    def _let_go(self) -> bool:
        """Let the comms of the oldest state go; False when only the last state has any."""
        oldest = next((state for state in self._marks if state != self._state), None)
        if oldest is None:
            return False
        del self._marks[oldest]
        return True

    def from_page(self, message: CommMessage, epoch: object) -> bool:
        """Whether the session gets a message of a page."""
        now = time.monotonic()
        if now - self._window > 1:
            self._window, self._count = now, 0
        self._count += 1
        return self._count <= PER_SECOND and epoch == self.epoch and message.comm_id in self._open

    def drawn(self, model: str) -> list[CommMessage]:
        """Return what a page that was opened gets of a model; nothing when that is too large, or was sent too often."""
        self._spend(0)
        found = self.replay(model, int(self._room))
        self._spend(sum(self._open[one.comm_id].drawn_size for one in found if one.kind == "comm_open"))
        return found

    def replay(self, model: str, most: int = MAX_HELD) -> list[CommMessage]:
        """Return what a page needs to draw a model with all that it refers to; nothing where that is too much."""
        comms = self._open
        place = {name: at for at, name in enumerate(comms)}  # names are random: in their order no two runs are alike
        kinds = {name: comm.now.state.get("_model_name") for name, comm in comms.items()}
        named = (name for name, kind in kinds.items() if kind is not None and kind.content in _LINKS)
        links = dict.fromkeys(name for name in named if comms[name].now.size <= _MAX_LINK)
        tied: dict[str, list[str]] = {}
        for link in links:
            for end in comms[link].now.names:
                tied.setdefault(end, []).append(link)
        wanted, found = [model], dict[str, OpenComm]()
        size, characters = 0, 0
        while wanted:
            name = wanted.pop()
            if name in comms and name not in found:
                found[name] = comm = comms[name]
                size, characters = size + comm.drawn_size, characters + comm.characters
                if size > most or characters > MAX_DRAWN:
                    return []
                wanted += sorted(comm.now.names & place.keys(), key=place.__getitem__)
                # Nothing refers to a link, and its other end may be shown elsewhere.
                wanted += tied.get(name, ())
        # A model comes after those that it refers to.
        models = [name for name in reversed(found) if name not in links]
        drawn = [found[name] for name in (*models, *(name for name in links if name in found))]
        # A journal that begins with a model that has been closed since cannot be told again.
        drawn = [comm if comm.first.names <= found.keys() else without_journal(comm) for comm in drawn]
        return [
            *(comm.message("comm_open", comm.first) for comm in drawn),
            *(message for comm in drawn for message in comm.journal_messages()),
        ]

    def settled(self, state: int, *, went_back: bool) -> list[CommMessage]:
        """Note that the session is in this state; returns what the pages must get if it has gone back to it."""
        self.is_outdated, self.is_behind = self.is_outdated or self.is_behind, False
        moved, self._state = state != self._state, state
        is_earlier = state in self._marks or went_back or state < self._newest
        self._newest = max(self._newest, state)
        news = self.rewind(self._marks.get(state, {})) if is_earlier and (went_back or moved) else []
        self._marks.pop(state, None)
        self._marks[state] = dict(self._open)
        if len(self._marks) > MAX_MARKS:
            self._let_go()
        return news

    def rewind(self, marked: Mapping[str, OpenComm]) -> list[CommMessage]:
        """Go back to these comms; returns what the pages must get. Without any, the session has ended."""
        self.epoch += 1
        news = [comm.with_data("comm_close", {}) for name, comm in self._open.items() if name not in marked]
        self._spend(0)
        most, size = min(MAX_DRAWN, self._room), 0
        back = [(was, self._open.get(name)) for name, was in marked.items() if self._open.get(name) is not was]
        for was, now in back:
            size += was.drawn_size
            # What is too much for one message pages ask for themselves, each widget that they show.
            self.is_outdated |= size > most or (now is not None and now.journal != was.journal)
            if size <= most:
                news.append(was.message("comm_open" if now is None else "comm_msg", was.now))
        self._spend(int(min(size, most)))
        self._open = dict(marked)
        return news

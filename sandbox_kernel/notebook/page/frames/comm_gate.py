"""The gate between the widgets of one session and the pages that show them.

It knows the open comms of its session with their state, so that no session can speak for the comms of another or of the
kernel, and so that a page that is opened later gets the state as it is. Some widgets send more than state: commands to
draw, or entries that are set and cleared at once (Plotly's figures). From the first of them on, a comm has a *journal*.
At each state of the session that can be gone back to it makes a mark; when the session goes back, it makes the pages
match that state again, and counts an *epoch*, so that messages of a page that were under way are refused.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sandbox_kernel.untrusted.frames.comm_message import CommMessage

MAX_COMMS = 2000
#: The most that the states of all open comms may hold together, in bytes, and the most entries of one state.
MAX_HELD = 256 << 20
MAX_ENTRIES = 1000
#: The most messages in the journal of one comm, and their bytes.
MAX_JOURNAL, MAX_JOURNAL_BYTES = 1000, 4 << 20
MAX_MARKS = 64
MAX_CLOSED = 10_000
PER_SECOND = 400
_REFERENCE = re.compile(r"IPY_MODEL_([0-9a-f-]{1,64})")
#: Models that ``jslink`` and ``jsdlink`` make.
_LINKS = ("LinkModel", "DirectionalLinkModel")
_PARTS = ("state", "buffer_paths")

Buffers = dict[tuple[object, ...], bytes]


@dataclass(frozen=True, kw_only=True)
class OpenComm:
    """A comm that is open: how it was opened, and its state now."""

    opened: CommMessage
    state: Mapping[str, object] = field(default_factory=dict)
    buffers: Mapping[tuple[object, ...], bytes] = field(default_factory=dict)
    #: The size of each entry of the state.
    sizes: Mapping[str, int] = field(default_factory=dict)
    #: The entries that the newest update has set.
    newest: frozenset[str] = frozenset()
    #: What was sent since the state was ``base``, in its order; empty while the state says it all.
    journal: tuple[CommMessage, ...] = ()
    journal_sizes: tuple[int, ...] = ()
    base: OpenComm | None = None

    @property
    def held(self) -> int:
        """What it takes to keep it, in bytes."""
        own = sum(self.sizes.values()) + sum(map(len, self.buffers.values())) + sum(self.journal_sizes)
        return own + (self.base.held if self.base is not None else 0)

    @property
    def first(self) -> OpenComm:
        """The comm before its journal."""
        return self.base or self

    def message(self, kind: str) -> CommMessage:
        """Return a message with the whole state: ``comm_open``, or ``comm_msg`` with an update."""
        data: dict[str, object] = {"state": dict(self.state), "buffer_paths": [list(path) for path in self.buffers]}
        if kind == "comm_msg":
            data["method"] = "update"
        return replace(self.opened, kind=kind, data=data, buffers=tuple(self.buffers.values()), message_id="")


class CommGate:
    """One for each session: the comms of its widgets."""

    def __init__(self) -> None:
        self.epoch = 0
        self._open: dict[str, OpenComm] = {}
        #: Comms that the session has closed; the newest come last.
        self._closed: dict[str, None] = {}
        self._held = 0
        self._marks: dict[int, dict[str, OpenComm]] = {}
        self._state = -1
        #: Whether pages have shown what was taken back and is no state: they must draw anew.
        self.is_outdated = False
        self._window, self._count = 0.0, 0

    def from_session(self, message: CommMessage) -> bool:
        """Take a message of the session; whether the pages get it."""
        known = self._open.get(message.comm_id)
        if message.kind == "comm_open":
            if known is not None or len(self._open) >= MAX_COMMS:
                return False
            # The state is kept once, beside how the comm was opened.
            return self._keep(_changed(OpenComm(opened=replace(message, data={}, buffers=())), message), 0)
        if known is None:
            return False
        if message.kind == "comm_close":
            self._held -= self._open.pop(message.comm_id).held
            self._closed[message.comm_id] = None
            if len(self._closed) > MAX_CLOSED:
                del self._closed[next(iter(self._closed))]
        elif message.data.get("method") in ("update", "echo_update"):
            return self._keep(_changed(_journaled(known, message), message), known.held)
        elif message.data.get("method") == "custom":
            self._keep(_journaled(known, message), known.held)
        return True

    def has_closed(self, model: str) -> bool:
        """Whether the session itself has closed a model."""
        return model in self._closed and model not in self._open

    def _keep(self, comm: OpenComm, before: int) -> bool:
        """Keep a comm with its state, unless that is too large; ``before`` is what it took until now."""
        held = self._held - before + comm.held
        if held > MAX_HELD or len(comm.state) > MAX_ENTRIES or len(comm.buffers) > MAX_ENTRIES:
            return False
        self._open[comm.opened.comm_id], self._held = comm, held
        return True

    def from_page(self, message: CommMessage, epoch: object) -> bool:
        """Whether the session gets a message of a page."""
        now = time.monotonic()
        if now - self._window > 1:
            self._window, self._count = now, 0
        self._count += 1
        return self._count <= PER_SECOND and epoch == self.epoch and message.comm_id in self._open

    def replay(self, model: str) -> list[CommMessage]:
        """Return what a page needs to draw a model: it, all that it refers to, and their links, as they are now."""
        refers = {name: _refers_to(comm) for name, comm in self._open.items()}
        links = [name for name, comm in self._open.items() if comm.state.get("_model_name") in _LINKS]
        wanted, found = [model], dict[str, OpenComm]()
        while wanted:
            name = wanted.pop()
            if name in self._open and name not in found:
                found[name] = self._open[name]
                wanted += refers[name]
                # Nothing refers to a link, and its other end may be shown elsewhere.
                wanted += [link for link in links if name in refers[link]]
        # A model comes after those that it refers to.
        models = [name for name in reversed(found) if name not in links]
        comms = [found[name] for name in (*models, *(name for name in links if name in found))]
        # A journal that begins with a model that has been closed since cannot be told again.
        comms = [comm if _refers_to(comm.first) <= found.keys() else _without_journal(comm) for comm in comms]
        return [
            *(comm.first.message("comm_open") for comm in comms),
            *(told for comm in comms for told in comm.journal),
        ]

    def settled(self, state: int, *, went_back: bool) -> list[CommMessage]:
        """Note that the session is in this state; returns what the pages must get if it has gone back to it."""
        moved, self._state = state != self._state, state
        if (went_back or moved) and state in self._marks:
            return self._rewind(self._marks[state])
        self._marks[state] = dict(self._open)
        while len(self._marks) > MAX_MARKS:
            del self._marks[next(iter(self._marks))]
        return []

    def close_all(self) -> list[CommMessage]:
        """Return what the pages must get when the session has ended."""
        return self._rewind({})

    def _rewind(self, marked: dict[str, OpenComm]) -> list[CommMessage]:
        self.epoch += 1
        news = [_closed(comm.opened) for name, comm in self._open.items() if name not in marked]
        for name, comm in marked.items():
            now = self._open.get(name)
            if now is None:
                news.append(comm.message("comm_open"))
            elif now is not comm:
                news.append(comm.message("comm_msg"))
                self.is_outdated |= now.journal != comm.journal
        self._open = dict(marked)
        self._held = sum(comm.held for comm in marked.values())
        return news


def _refers_to(comm: OpenComm) -> set[str]:
    return set(_REFERENCE.findall(repr(comm.state)))


def _without_journal(comm: OpenComm) -> OpenComm:
    return replace(comm, base=None, journal=(), journal_sizes=())


def _closed(opened: CommMessage) -> CommMessage:
    return replace(opened, kind="comm_close", data={}, buffers=())


def _entries(message: CommMessage) -> Mapping[str, object]:
    """Return the entries of the state that a message sets."""
    state = message.data.get("state")
    return state if isinstance(state, Mapping) else {}


def _journaled(comm: OpenComm, message: CommMessage) -> OpenComm:
    """Return the comm with a message in its journal, if it has one now; its state does not change."""
    is_change = message.data.get("method") != "custom"
    if is_change and not comm.journal:
        # A journal begins when an entry is cleared that the message right before has set.
        names = [name for name, value in _entries(message).items() if value is None and name in comm.newest]
        was_set = {name: comm.state[name] for name in names if comm.state.get(name) is not None}
        if not was_set:
            return comm
        parts = {path: part for path, part in comm.buffers.items() if path and path[0] in was_set}
        others = {path: part for path, part in comm.buffers.items() if path not in parts}
        base = replace(comm, state={**comm.state, **dict.fromkeys(was_set)}, buffers=others)
        setting: dict[str, object] = {"state": was_set, "buffer_paths": [list(path) for path in parts]}
        news = [replace(message, data=setting, buffers=tuple(parts.values())), message]
    else:
        base, news = comm.first, [message]
    told = [replace(one, data={**one.data, "method": "update"}) if is_change else one for one in news]
    told = [replace(one, kind="comm_msg", metadata=comm.opened.metadata, message_id="") for one in told]
    return _bounded(replace(comm, base=base, journal=(*comm.journal, *told)))


def _bounded(comm: OpenComm) -> OpenComm:
    """Return the comm with the newest of its journal; what went out of it is in the state that it begins with."""
    journal = [*comm.journal]
    sizes = [*comm.journal_sizes, *map(_size, journal[len(comm.journal_sizes) :])]
    base = comm.first
    if len(journal) > 1 and _is_same_change(journal[-2], journal[-1]):
        del journal[-2], sizes[-2]
    while len(journal) > MAX_JOURNAL or sum(sizes) > MAX_JOURNAL_BYTES:
        base = _changed(base, journal.pop(0))
        del sizes[0]
    if not journal:
        return _without_journal(comm)
    return replace(comm, base=base, journal=tuple(journal), journal_sizes=tuple(sizes))


def _is_same_change(earlier: CommMessage, later: CommMessage) -> bool:
    """Whether the later of two messages makes the earlier one needless, as at the moves of a slider."""
    entries, news = _entries(earlier), _entries(later)
    return bool(news) and entries.keys() == news.keys() and None not in (*entries.values(), *news.values())


def _size(message: CommMessage) -> int:
    return len(json.dumps(message.data)) + sum(map(len, message.buffers))


def _changed(comm: OpenComm, message: CommMessage) -> OpenComm:
    """Return the comm with the state of a message merged into its own."""
    state, paths = (message.data.get(part) for part in _PARTS)
    if not isinstance(state, Mapping):
        return comm
    kept = {path: part for path, part in comm.buffers.items() if not path or path[0] not in state}
    if isinstance(paths, list) and len(paths) == len(message.buffers):
        for path, part in zip(paths, message.buffers, strict=True):
            if isinstance(path, list) and all(isinstance(step, str | int) for step in path):
                # Its place in the state was taken out, so the first step is not among the keys of the state.
                kept = {old: value for old, value in kept.items() if old != tuple(path)}
                kept[tuple(path)] = part
    sizes = {**comm.sizes, **{name: len(name) + len(json.dumps(value)) for name, value in state.items()}}
    newest = frozenset(state) if message.kind == "comm_msg" else comm.newest
    return replace(comm, state={**comm.state, **state}, buffers=kept, sizes=sizes, newest=newest)

"""The gate between the widgets of one session and the pages that show them.

It knows the open comms of its session with their state, so that no session can speak for the comms of another or of the
kernel, and so that a page that is opened later gets the state as it is, and what was sent besides (``open_comm.py``).
At each state of the session that can be gone back to it makes a mark; when the session goes back, it makes the pages
match that state again, and counts an *epoch*, so that messages of a page that were under way are refused.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from sandbox_kernel.notebook.page.frames.counted import Counted, CountedStore
from sandbox_kernel.notebook.page.frames.open_comm import (
    OpenComm,
    change_of,
    changed,
    commanded,
    opened,
    without_journal,
)
from sandbox_kernel.untrusted.frames.comm_message import CommMessage

MAX_COMMS = 2000
#: The most that all comms may hold together, with those of earlier states, in bytes.
MAX_HELD = 256 << 20
#: The most entries of one state.
MAX_ENTRIES = 1000
#: The most states with their comms, and with the names of their comms alone.
MAX_MARKS, MAX_NAMED = 64, 256
#: The most names of closed comms that are kept.
MAX_CLOSED = 10_000
#: The most messages of a page in a second.
PER_SECOND = 400
#: What pages get of a session: so many bytes at once, and then so many in a second.
MAX_BURST, BYTES_PER_SECOND = 256 << 20, 8 << 20
#: The most characters of JSON that a page gets to draw one model: all that is encoded at once.
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
        self._open: dict[str, _KeptComm] = {}
        #: Comms that the session has closed; the newest come last.
        self._closed: dict[str, None] = {}
        #: The comms of each state that can be gone back to, and the names of those of older states.
        self._marks: dict[int, dict[str, _KeptComm]] = {}
        self._names: dict[int, frozenset[str]] = {}
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
        if not self._taken(message):
            return False
        if self._room < 0:
            self._room, self.is_behind = 0.0, True
            return False
        return True

    def _spend(self, size: int) -> None:
        now = time.monotonic()
        self._room = min(MAX_BURST, self._room + (now - self._refilled) * BYTES_PER_SECOND) - size
        self._refilled = now

    def _taken(self, message: CommMessage) -> bool:
        """Take a message of the session; whether it is for one of its comms, and fits."""
        known = self._open.get(message.comm_id)
        if message.kind == "comm_open":
            if known is not None or len(self._open) >= MAX_COMMS:
                return False
            return self._keep(opened(message, self._store))
        if known is None:
            return False
        if message.kind == "comm_close":
            del self._open[message.comm_id]
            self._closed[message.comm_id] = None
            if len(self._closed) > MAX_CLOSED:
                del self._closed[next(iter(self._closed))]
        elif message.data.get("method") in ("update", "echo_update"):
            return self._keep(changed(known.comm, change_of(message, self._store)))
        elif message.data.get("method") == "custom":
            self._keep(commanded(known.comm, message, self._store))
        return True

    def has_closed(self, model: str) -> bool:
        """Whether the session itself has closed a model."""
        return model in self._closed and model not in self._open

    def _keep(self, comm: OpenComm) -> bool:
        """Keep a comm with its state, unless that is too large; comms of earlier states go before it."""
        if len(comm.now.state) > MAX_ENTRIES or len(comm.now.buffers) > MAX_ENTRIES:
            return False
        version = _KeptComm(comm, self._store)
        while self._store.held > MAX_HELD and self._let_go():
            pass
        if self._store.held > MAX_HELD:
            return False
        self._open[comm.name] = version
        return True

    def _let_go(self) -> bool:
        """Let the comms of the oldest state go, but for their names; False when only the last state has any."""
        oldest = next((state for state in self._marks if state != self._state), None)
        if oldest is None:
            return False
        self._names[oldest] = frozenset(self._marks.pop(oldest))
        for state in [*self._names][:-MAX_NAMED]:
            del self._names[state]
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
        self._spend(sum(self._open[one.comm_id].comm.told_size for one in found if one.kind == "comm_open"))
        return found

    def replay(self, model: str, most: int = MAX_HELD) -> list[CommMessage]:
        """Return what a page needs to draw a model: it, all that it refers to, and their links, as they are now.

        Returns nothing, before anything is decoded, where that is more than ``most`` bytes, or ``MAX_DRAWN`` of text.
        """
        comms = {name: version.comm for name, version in self._open.items()}
        links = dict.fromkeys(name for name, comm in comms.items() if _is_link(comm))
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
                size, characters = size + comm.told_size, characters + comm.characters
                if size > most or characters > MAX_DRAWN:
                    return []
                wanted += sorted(comm.now.names)
                # Nothing refers to a link, and its other end may be shown elsewhere.
                wanted += tied.get(name, ())
        # A model comes after those that it refers to.
        models = [name for name in reversed(found) if name not in links]
        drawn = [found[name] for name in (*models, *(name for name in links if name in found))]
        # A journal that begins with a model that has been closed since cannot be told again.
        drawn = [comm if comm.first.names <= found.keys() else without_journal(comm) for comm in drawn]
        return [
            *(comm.message("comm_open", comm.first) for comm in drawn),
            *(told for comm in drawn for told in comm.told()),
        ]

    def settled(self, state: int, *, went_back: bool) -> list[CommMessage]:
        """Note that the session is in this state; returns what the pages must get if it has gone back to it."""
        self.catch_up()
        moved, self._state = state != self._state, state
        is_known = state in self._marks or state in self._names
        is_earlier = is_known or went_back or state < self._newest
        self._newest = max(self._newest, state)
        news = self._rewind(self._comms_at(state)) if is_earlier and (went_back or moved) else []
        self._names.pop(state, None)
        self._marks.pop(state, None)
        self._marks[state] = dict(self._open)
        if len(self._marks) > MAX_MARKS:
            self._let_go()
        return news

    def catch_up(self) -> None:
        """Let pages draw anew if they have missed something."""
        self.is_outdated |= self.is_behind
        self.is_behind = False

    def _comms_at(self, state: int) -> dict[str, _KeptComm]:
        """Return the comms of an earlier state. One that is not known was there before the first comm."""
        if state in self._marks:
            return self._marks[state]
        # Only their names were kept: those that are open stay as they are.
        return {name: self._open[name] for name in self._names.get(state, ()) if name in self._open}

    def close_all(self) -> list[CommMessage]:
        """Return what the pages must get when the session has ended."""
        return self._rewind({})

    def _rewind(self, marked: Mapping[str, _KeptComm]) -> list[CommMessage]:
        self.epoch += 1
        news = [version.comm.closing() for name, version in self._open.items() if name not in marked]
        for name, was in marked.items():
            now = self._open.get(name)
            if now is None:
                news.append(was.comm.message("comm_open", was.comm.now))
            elif now is not was:
                news.append(was.comm.message("comm_msg", was.comm.now))
                self.is_outdated |= now.comm.journal != was.comm.journal
        self._open = dict(marked)
        return news


class _KeptComm:
    """A comm as it was at one time, and the space that its tables take."""

    def __init__(self, comm: OpenComm, store: CountedStore) -> None:
        self.comm = comm
        self._tables: Counted[bytes] = store.bytes(b"", comm.tables)


def _is_link(comm: OpenComm) -> bool:
    name = comm.now.state.get("_model_name")
    return name is not None and name.content in _LINKS and comm.now.size <= _MAX_LINK

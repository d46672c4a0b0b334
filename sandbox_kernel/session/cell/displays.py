"""What the cells of a session show, bounded: displays while a cell runs, and background output after its end.

The worker is hostile: each cell may send so much and no more.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Protocol

from sandbox_kernel.model import Display
from sandbox_kernel.session.worker.messages import DisplayShown, LateText, OutputCleared
from sandbox_kernel.util.values import dataclass

#: What one cell may show; the rest is dropped and said so.
MAX_DISPLAYS = 2000
MAX_BYTES = 64 << 20
#: How often one cell may clear what it has shown.
MAX_CLEARS = 20_000
#: How many messages the widgets of one cell may send.
MAX_COMM_MESSAGES = 50_000
#: How many cells are remembered for their background output.
MAX_CELLS = 200
#: What one cell may send after its end: characters of text, bytes of displays, messages of either kind, and the work
#: of a page with its displays (``sanitize.MAX_WORK``).
MAX_LATE_TEXT, MAX_LATE_BYTES, MAX_LATE_MESSAGES, MAX_LATE_WORK = 1 << 20, 16 << 20, 5000, 400_000
#: How many seconds of a processor the host works on what one cell sends, and which share of the cell's time besides.
MAX_WORK_S, WORK_SHARE = 10.0, 0.25
#: See ``untrusted/frames/comm_message.py``, which the first cell with a widget imports.
COMM = "application/vnd.sandbox-kernel.comm+json"


class HostWork:
    """What this thread works from now on, as time of a processor, on what a program sends: reading, cleaning."""

    def __init__(self) -> None:
        self._cpu, self._began = time.thread_time(), time.monotonic()

    @property
    def is_used_up(self) -> bool:
        """Whether the program has had its part."""
        worked_s, passed_s = time.thread_time() - self._cpu, time.monotonic() - self._began
        return worked_s > MAX_WORK_S + WORK_SHARE * passed_s


@dataclass(frozen=True, kw_only=True)
class SessionDisplay(Display):
    """A display of a session; ``kind`` is display, result, update, clear or comm, ``display_id`` names it for updates.

    An ``update`` changes what was shown under its id. A ``clear`` takes away everything; its metadata says whether to
    ``wait`` for the next output. Its data is what a page may show; ``removed`` says what else the sandbox sent.

    ``display_id`` is the program's own word, and every program may choose the same. The host chooses ``worker_id`` at
    random. A page that shows several sessions goes by ``page_id``, which holds both.
    """

    display_id: str | None = None
    worker_id: str = ""
    #: None where nobody has cleaned it yet.
    removed: tuple[str, ...] | None = None

    @property
    def page_id(self) -> str:
        """The name of this display on a page, which no other worker of any session can name; empty without an id."""
        if self.display_id is None:
            return ""
        # As a digest: of a word of the sandbox neither the length nor the characters matter then.
        return f"sandbox:{self.worker_id}:{sha256(self.display_id.encode('utf-8', 'replace')).hexdigest()[:32]}"


OnDisplay = Callable[[SessionDisplay], None]


class Displays:
    """Collects the displays of a cell and hands each on as it comes. Made and called on the cell's thread."""

    def __init__(
        self, on_display: OnDisplay | None = None, worker_id: str = "", is_over: Callable[[], bool] = lambda: False
    ) -> None:
        self._on_display = on_display
        self._worker_id = worker_id
        self._is_over = is_over
        self.work = HostWork()
        self._items: list[SessionDisplay] = []
        self._room = MAX_BYTES
        self._count = MAX_DISPLAYS
        self._clears = MAX_CLEARS
        self._comms = MAX_COMM_MESSAGES
        self._clear_next = False
        self._work = 0
        self.dropped = 0

    def show(self, frame: DisplayShown) -> None:
        """Take one display of the worker. To check it is work for the cell: it ends with its time and ``HostWork``."""
        if COMM in frame.data:
            # A message of a widget is no part of what the cell has shown.
            self._comms -= 1
            if self._comms < 0 or self._is_over() or self.work.is_used_up:
                self.dropped += 1
            else:
                self._hand_on(_comm(frame, self._worker_id))
            return
        self._room -= frame.size
        self._count -= 1
        if self._room < 0 or self._count < 0 or self._is_over() or self.work.is_used_up:
            self.dropped += 1
            return
        # Imported by the first cell that shows something.
        from sandbox_kernel.untrusted.sanitize import MAX_WORK

        item, work = _cleaned(frame, self._worker_id)
        self._work += work
        if self._work > MAX_WORK:
            self.dropped += 1
            return
        if self._clear_next:
            self._clear_next = False
            self._items = []
        if frame.kind == "update":
            known = item.display_id is not None
            self._items = [
                replace(item, kind=old.kind) if known and old.display_id == item.display_id else old
                for old in self._items
            ]
        else:
            self._items.append(item)
        self._hand_on(item)

    def clear(self, frame: OutputCleared) -> None:
        """Take away what was shown, now or with the next display."""
        self._clears -= 1
        if self._clears < 0:
            self.dropped += 1
            return
        self._clear_next = frame.wait
        if not frame.wait:
            self._items = []
        self._hand_on(SessionDisplay(data={}, metadata={"wait": frame.wait}, kind="clear"))

    def all(self) -> tuple[Display, ...]:
        """What is to be seen at the end; the value of the last expression comes last."""
        return tuple(sorted(self._items, key=lambda item: item.kind == "result"))

    def _hand_on(self, item: SessionDisplay) -> None:
        if self._on_display is not None:
            self._on_display(item)


def _cleaned(frame: DisplayShown, worker_id: str) -> tuple[SessionDisplay, int]:
    """Return a display of the worker as a page may show it, and how much work it was to clean it."""
    # Imported by the first cell that shows something.
    from sandbox_kernel.untrusted.frames.frame_output import sanitize_display

    clean = sanitize_display(frame.data, frame.metadata, gate=worker_id)
    shown = SessionDisplay(
        data=clean.data,
        metadata=clean.metadata,
        kind=frame.kind,
        display_id=frame.display_id,
        worker_id=worker_id,
        removed=clean.removed,
    )
    return shown, clean.work


def _comm(frame: DisplayShown, worker_id: str) -> SessionDisplay:
    """Return a message of a widget, which its listener checks."""
    return SessionDisplay(data={COMM: frame.data[COMM]}, kind="comm", worker_id=worker_id)


class LateListener(Protocol):
    """Where the background output of one cell goes; called on any thread, never after ``cut``."""

    def text(self, stream: str, text: str) -> None:
        """Show text of stdout or stderr."""

    def display(self, display: SessionDisplay) -> None:
        """Show a display, which has been cleaned; one of kind ``comm`` is a message of a widget."""

    def cut(self) -> None:
        """Say that further output of this cell is not shown."""


@dataclass
class _Room:
    listener: LateListener
    text: int = MAX_LATE_TEXT
    size: int = MAX_LATE_BYTES
    messages: int = MAX_LATE_MESSAGES
    work: int = MAX_LATE_WORK
    comms: int = MAX_COMM_MESSAGES

    def take(self, *, text: int = 0, size: int = 0, messages: int = 0, work: int = 0) -> bool:
        """Whether there is room for this much; says once that there is none."""
        had_room = self._has_room
        self.text, self.size = self.text - text, self.size - size
        self.messages, self.work = self.messages - messages, self.work - work
        if self._has_room:
            return True
        if had_room:
            self.listener.cut()
        return False

    @property
    def _has_room(self) -> bool:
        return min(self.text, self.size, self.messages, self.work) >= 0


class BackgroundOutput:
    """Output of threads and tasks of one worker after their cell, for the front end of that cell, if it is known."""

    def __init__(self, worker_id: str) -> None:
        self._worker_id = worker_id
        self._rooms: OrderedDict[int, _Room] = OrderedDict()

    def follow(self, cell: int, listener: LateListener) -> None:
        """Hand on what this cell sends after its end; forgets the oldest cell when there are too many."""
        self._rooms[cell] = _Room(listener)
        if len(self._rooms) > MAX_CELLS:
            self._rooms.popitem(last=False)

    def knows(self, cell: int) -> bool:
        """Whether the front end of this cell listens."""
        return cell in self._rooms

    def take(self, message: LateText | DisplayShown) -> None:
        """Hand on output to the front end of its cell."""
        room = self._rooms.get(message.id)
        if room is None:
            return
        if isinstance(message, LateText):
            if room.take(text=len(message.text), messages=1):
                room.listener.text(message.name, message.text)
        elif COMM in message.data:
            room.comms -= 1
            if room.comms >= 0:
                room.listener.display(_comm(message, self._worker_id))
        elif room.take(size=message.size, messages=1):
            shown, work = _cleaned(message, self._worker_id)
            if room.take(work=work):
                room.listener.display(shown if shown.kind == "update" else replace(shown, kind="display"))

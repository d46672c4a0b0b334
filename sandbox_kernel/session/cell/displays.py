"""What one cell has shown so far, bounded: later updates and clearings applied, as a page would have them."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256

from sandbox_kernel.ground.values import dataclass
from sandbox_kernel.model import Display
from sandbox_kernel.session.worker.messages import DisplayShown, OutputCleared

#: What one cell may show; the rest is dropped and said so.
MAX_DISPLAYS = 2000
MAX_BYTES = 64 << 20
#: How often one cell may clear what it has shown.
MAX_CLEARS = 20_000
#: How many messages the widgets of one cell may send.
MAX_COMMS = 50_000
#: How many seconds of a processor the host works on what one cell sends, and which share of the cell's time besides.
MAX_WORK_S, WORK_SHARE = 10.0, 0.25
#: See ``untrusted/frames/comm_message.py``, which the first cell with a widget imports.
COMM = "application/vnd.sandbox-kernel.comm+json"


class HostWork:
    """What this thread works, from now on, on what a program sends: reading, cleaning, encoding, sending.

    Measured as time of a processor, so that it does not depend on how busy the host is.
    """

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

    ``display_id`` is the program's own word, and every program may choose the same. ``worker_id`` is chosen by the
    host, at random, for each worker of a session. A page that shows several sessions goes by ``page_id``, which holds
    both.
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
        self,
        on_display: OnDisplay | None = None,
        worker_id: str = "",
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        self._on_display = on_display
        self._worker_id = worker_id
        self._is_over = is_over
        self.work = HostWork()
        self._items: list[SessionDisplay] = []
        self._room = MAX_BYTES
        self._count = MAX_DISPLAYS
        self._clears = MAX_CLEARS
        self._comms = MAX_COMMS
        self._clear_next = False
        self._work = 0
        self.dropped = 0
        self.late = 0

    def show(self, frame: DisplayShown) -> None:
        """Take one display of the worker. To check it is work for the cell: it ends with its time and ``HostWork``."""
        if COMM in frame.data:
            self._pass_on_comm(frame)
            return
        self._room -= frame.size
        self._count -= 1
        if self._room < 0 or self._count < 0:
            self.dropped += 1
            return
        if self._is_over() or self.work.is_used_up:
            self.late += 1
            return
        # Imported by the first cell that shows something.
        from sandbox_kernel.untrusted.frames.frame_output import sanitize_display
        from sandbox_kernel.untrusted.sanitize import MAX_WORK

        clean = sanitize_display(frame.data, frame.metadata, gate=self._worker_id)
        self._work += clean.work
        if self._work > MAX_WORK:
            self.dropped += 1
            return
        if self._clear_next:
            self._clear_next = False
            self._items = []
        item = SessionDisplay(
            data=clean.data,
            metadata=clean.metadata,
            kind=frame.kind,
            display_id=frame.display_id,
            worker_id=self._worker_id,
            removed=clean.removed,
        )
        if frame.kind == "update":
            self._items = [replace(item, kind=old.kind) if _same(old, item) else old for old in self._items]
        else:
            self._items.append(item)
        self._hand_on(item)

    def _pass_on_comm(self, frame: DisplayShown) -> None:
        """Hand on a message of a widget; it is no part of what the cell has shown."""
        self._comms -= 1
        if self._comms < 0 or self._is_over() or self.work.is_used_up:
            self.dropped += 1
            return
        self._hand_on(SessionDisplay(data={COMM: frame.data[COMM]}, kind="comm", worker_id=self._worker_id))

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
        shown = [item for item in self._items if item.kind != "result"]
        return (*shown, *(item for item in self._items if item.kind == "result"))

    def _hand_on(self, item: SessionDisplay) -> None:
        if self._on_display is not None:
            self._on_display(item)


def _same(old: SessionDisplay, new: SessionDisplay) -> bool:
    return new.display_id is not None and old.display_id == new.display_id

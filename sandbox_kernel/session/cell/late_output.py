"""Output of threads and tasks that comes when their cell has ended: handed to the front end of that cell.

The worker is hostile: a cell number that is not known is dropped, and each cell may send so much and no more. One
``LateOutput`` belongs to one worker of a session and is used by the thread that has the turn.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Protocol

from sandbox_kernel.session.cell.displays import COMM, MAX_COMMS, SessionDisplay
from sandbox_kernel.session.worker.messages import DisplayShown, LateText

#: How many cells are remembered.
MAX_CELLS = 200
#: What one cell may send after its end: characters of text, bytes of displays, and messages of either kind.
MAX_TEXT, MAX_BYTES, MAX_MESSAGES = 1 << 20, 16 << 20, 5000


class LateListener(Protocol):
    """Where the late output of one cell goes; called on any thread, never after ``cut``."""

    def text(self, stream: str, text: str) -> None:
        """Show text of stdout or stderr."""

    def display(self, display: SessionDisplay) -> None:
        """Show a display, which has been cleaned; one of kind ``comm`` is a message of a widget."""

    def cut(self) -> None:
        """Say that further output of this cell is not shown."""


@dataclass
class _Room:
    listener: LateListener
    text: int = MAX_TEXT
    size: int = MAX_BYTES
    messages: int = MAX_MESSAGES
    comms: int = MAX_COMMS

    def take(self, text: int, size: int) -> bool:
        """Whether there is room for this much; says once that there is none."""
        had_room = min(self.text, self.size, self.messages) >= 0
        self.text, self.size, self.messages = self.text - text, self.size - size, self.messages - 1
        if min(self.text, self.size, self.messages) >= 0:
            return True
        if had_room:
            self.listener.cut()
        return False


class LateOutput:
    """The cells of one worker whose front ends still listen.

    Args:
        worker_id: the name of the worker's worker_id, part of the ids of its displays.

    """

    def __init__(self, worker_id: str) -> None:
        self._worker_id = worker_id
        self._rooms: OrderedDict[int, _Room] = OrderedDict()

    def follow(self, cell: int, listener: LateListener) -> None:
        """Hand on what this cell sends after its end; forgets the oldest cell when there are too many."""
        self._rooms[cell] = _Room(listener)
        if len(self._rooms) > MAX_CELLS:
            self._rooms.popitem(last=False)

    @property
    def listens(self) -> bool:
        """Whether any front end listens."""
        return bool(self._rooms)

    def knows(self, cell: int) -> bool:
        """Whether the front end of this cell listens."""
        return cell in self._rooms

    def text(self, message: LateText) -> None:
        """Hand on text."""
        room = self._rooms.get(message.id)
        if room is not None and room.take(len(message.text), 0):
            room.listener.text(message.name, message.text)

    def display(self, message: DisplayShown) -> None:
        """Clean a display and hand it on; a message of a widget is checked by the listener, as in a running cell."""
        room = self._rooms.get(message.id)
        if room is not None and COMM in message.data:
            room.comms -= 1
            if room.comms >= 0:
                room.listener.display(
                    SessionDisplay(data={COMM: message.data[COMM]}, kind="comm", worker_id=self._worker_id)
                )
            return
        if room is None or not room.take(0, message.size):
            return
        # Imported by the first cell that shows something.
        from sandbox_kernel.untrusted.frames.frame_output import sanitize_display

        clean = sanitize_display(message.data, message.metadata, gate=self._worker_id)
        room.listener.display(
            SessionDisplay(
                data=clean.data,
                metadata=clean.metadata,
                kind="update" if message.kind == "update" else "display",
                display_id=message.display_id,
                worker_id=self._worker_id,
                removed=clean.removed,
            )
        )

"""Shows output that comes after the end of its cell, below that cell. One for each cell; called on any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Protocol

from sandbox_kernel.notebook.render import Message, ShowOutput
from sandbox_kernel.receipt import MARK, unmarked
from sandbox_kernel.session.cell.displays import SessionDisplay
from sandbox_kernel.untrusted.ansi import END, ColourFilter


class CellMessages(Protocol):
    """What a ``LateWire`` needs of the ``Wire`` of its cell."""

    def stream(self, name: str, text: str) -> None:
        """Send text of stdout or stderr."""

    def message(self, message: Message) -> None:
        """Send a display."""


class LateWire:
    """The ``LateListener`` of the kernel.

    Args:
        wire: sends the messages.
        messages: returns what a page gets for a display; nothing for a message of a widget, which goes its own way.

    """

    def __init__(self, wire: CellMessages, messages: Callable[[SessionDisplay], list[Message]]) -> None:
        self._wire = wire
        self._messages = messages
        self._filters: dict[str, ColourFilter] = {}
        self._lock = threading.Lock()
        self._held: list[Callable[[], None]] | None = []

    def open(self) -> None:
        """The cell has sent its last message: what came meanwhile follows it, and so does all that comes later."""
        with self._lock:
            held, self._held = self._held or [], None
            for send in held:
                send()

    def _send(self, send: Callable[[], None]) -> None:
        with self._lock:
            if self._held is not None:
                self._held.append(send)
            else:
                send()

    def text(self, stream: str, text: str) -> None:
        """See ``LateListener``. Text is cleaned as that of a running cell is."""
        shown = unmarked(self._filters.setdefault(stream, ColourFilter()).feed(text))
        if shown:
            self._send(lambda: self._wire.stream(stream, shown))

    def display(self, display: SessionDisplay) -> None:
        """See ``LateListener``."""
        for message in self._messages(display):
            if isinstance(message, ShowOutput):
                self._send(partial(self._wire.message, message))

    def cut(self) -> None:
        """See ``LateListener``."""
        told = f"{END}\n{MARK} further output of this cell after its end is not shown: it is too much\n"
        self._send(lambda: self._wire.stream("stderr", told))

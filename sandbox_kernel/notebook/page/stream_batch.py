"""Batches the stdout and stderr text of a cell, so that it reaches the page in order and complete.

One message for each line is too much for Jupyter: its queues hold 1000 messages, and a client that waits for the reply
first loses the rest, the idle status included. So text is held for ``INTERVAL_S``, or until there are ``SIZE``
characters.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from sandbox_kernel.receipt import unmarked
from sandbox_kernel.untrusted.ansi import ColourFilter

INTERVAL_S = 0.05
SIZE = 64 << 10
#: Most changes between stdout and stderr in one batch; if there are more, each stream is sent as a whole.
MAX_PIECES = 16

Send = Callable[[str, str], None]


class StreamBatch:
    """Collects text and calls ``send(name, text)`` with batches. Made on the cell's loop; called on any thread."""

    def __init__(self, send: Send, interval_s: float = INTERVAL_S, size: int = SIZE) -> None:
        self._send = send
        self._interval_s = interval_s
        self._size = size
        self._pieces: list[tuple[str, str]] = []
        self._length = 0
        self._loop = asyncio.get_running_loop()
        #: Whether the loop will look by itself: a short cell does not wake it, which takes longer than the cell.
        self._looks = True
        self._loop.call_later(interval_s, self._look)
        self._lock = threading.RLock()
        self._filters: dict[str, ColourFilter] = {}

    def write(self, name: str, text: str) -> None:
        """Add text of one stream. Removes escape sequences other than colours, and our mark (``receipt.unmarked``)."""
        with self._lock:
            shown = unmarked(self._filters.setdefault(name, ColourFilter()).feed(text))
            if not shown:
                return
            self._pieces.append((name, shown))
            self._length += len(shown)
            if self._length >= self._size:
                self.flush()
            elif not self._looks:
                self._looks = True
                self._loop.call_soon_threadsafe(self._loop.call_later, self._interval_s, self._look)

    def _look(self) -> None:
        """Send what waits, and look again after the interval; without anything the next text wakes the loop."""
        with self._lock:
            self._looks = bool(self._pieces)
            if self._looks:
                self._loop.call_later(self._interval_s, self._look)
            self.flush()

    def flush(self) -> None:
        """Send the collected text. Called at each look, for a full batch, and before other output of the cell."""
        with self._lock:
            pieces, self._pieces, self._length = self._pieces, [], 0
            for name, text in merged(pieces):
                for start in range(0, len(text), 16 * self._size):
                    self._send(name, text[start : start + 16 * self._size])

    def settle(self) -> None:
        """Send the collected text and reset its colours, so that they do not hide our own text after it."""
        with self._lock:
            self._pieces += [(name, end) for name, colours in self._filters.items() if (end := colours.end_colours())]
            self.flush()

    def close(self) -> None:
        """Send everything, also text that a filter held back. Called at the end of the cell."""
        with self._lock:
            for name, colours in self._filters.items():
                if rest := colours.close():
                    self._pieces.append((name, unmarked(rest)))
            self.settle()


def merged(pieces: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Join neighbouring texts of one stream. If the streams alternate too often, join all text of each stream."""
    runs: list[tuple[str, list[str]]] = []
    for name, text in pieces:
        if runs and runs[-1][0] == name:
            runs[-1][1].append(text)
        else:
            runs.append((name, [text]))
    if len(runs) > MAX_PIECES:
        names = dict.fromkeys(name for name, _ in runs)
        return [(wanted, "".join(text for name, text in pieces if name == wanted)) for wanted in names]
    return [(name, "".join(texts)) for name, texts in runs]

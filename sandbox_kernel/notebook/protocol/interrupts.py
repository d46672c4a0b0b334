"""Registers running cells, so that another thread can stop them.

Interrupts arrive as messages, while cells wait on the same loop, and a magic's cells on a loop of their own. SIGINT
cannot be used: in an async kernel it is raised in the event loop and ends the whole kernel.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class RunningCells:
    """The cancel events of the running cells; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cells: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        self._idle = threading.Event()
        self._idle.set()

    @contextmanager
    def cell(self) -> Iterator[asyncio.Event]:
        """Enter while a cell runs, on the loop that runs it. Yields an event that is set when the cell must stop."""
        cancel = asyncio.Event()
        with self._lock:
            self._cells[cancel] = asyncio.get_running_loop()
            self._idle.clear()
        try:
            yield cancel
        finally:
            with self._lock:
                del self._cells[cancel]
                if not self._cells:
                    self._idle.set()

    def interrupt(self) -> int:
        """Set the cancel event of every running cell, from any thread. Returns how many there were."""
        with self._lock:
            for cancel, loop in self._cells.items():
                loop.call_soon_threadsafe(cancel.set)
            return len(self._cells)

    def wait_idle(self, timeout_s: float) -> bool:
        """Block until no cell runs, or until the timeout. Returns whether no cell runs."""
        return self._idle.wait(timeout_s)

"""Cells that are running now, and how to stop them from another thread.

Interrupts come as messages on the control thread while cells wait on the main loop or on a subshell's loop. A signal
would not do: with an async kernel SIGINT lands in the event loop and takes the whole kernel down.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class RunningCells:
    """Registers each running cell's cancel event; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cells: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}
        self._idle = threading.Event()
        self._idle.set()

    @contextmanager
    def cell(self) -> Iterator[asyncio.Event]:
        """Enter for the time a cell runs, on the loop that runs it; the event is set when it shall stop."""
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
        """Tell every running cell to stop; from any thread. Returns how many there were."""
        with self._lock:
            for cancel, loop in self._cells.items():
                loop.call_soon_threadsafe(cancel.set)
            return len(self._cells)

    def wait_idle(self, timeout_s: float) -> bool:
        """Block until no cell runs, or until the time is over."""
        return self._idle.wait(timeout_s)

"""An event loop in a background thread, for blocking code that has something to await."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

_T = TypeVar("_T")


class LoopThread:
    """A daemon thread with one event loop. Starts at the first use; a forked child starts its own."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._forget()
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the running loop."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name=self._name, daemon=True)
                self._thread.start()
            return self._loop

    def start(self, work: Coroutine[Any, Any, _T]) -> Future[_T]:
        """Start a coroutine on the loop, from any thread."""
        return asyncio.run_coroutine_threadsafe(work, self.loop())

    def close(self) -> None:
        """Stop the loop, if it runs; the next use starts another."""
        loop, thread = self._loop, self._thread
        if loop is not None and thread is not None:
            self._forget()
            loop.call_soon_threadsafe(loop.stop)
            thread.join(timeout=5)

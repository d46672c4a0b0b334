"""Runs an event loop in a thread, because IPython's main thread is blocked while a magic runs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """A daemon thread that runs one event loop until ``close``. All cells of one shell run on it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="sandbox-magic", daemon=True)
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine on the loop, from any thread."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def close(self) -> None:
        """Stop the loop; may be called twice."""
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(timeout=5)

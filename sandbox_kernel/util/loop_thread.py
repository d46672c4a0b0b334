"""Event loops in threads, for callers that block: one for the network, one for host functions, one for the magics."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
_all: weakref.WeakSet[LoopThread] = weakref.WeakSet()


class LoopThread:
    """A daemon thread that runs one event loop. It starts at the first use; a forked child starts its own."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.forget()
        _all.add(self)

    def forget(self) -> None:
        """Begin anew at the next use: threads do not survive a fork."""
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name=self._name, daemon=True)
                self._thread.start()
            return self._loop

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a coroutine on the loop, from any thread."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and return its result; an interrupt cancels it. Raises ``RuntimeError`` on that thread."""
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError(f"a blocking call was made from the thread {self._name} itself; await the async form")
        future = self.start(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Stop the loop; may be called twice."""
        if self._loop is not None and self._thread is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout=5)


os.register_at_fork(after_in_child=lambda: list(map(LoopThread.forget, _all)))

#: The loop of every proxy and every blocking fetch of this process.
NETWORK = LoopThread("sandbox-kernel-net")
#: The loop of coroutine functions that are called by a blocking ``run``; ``arun`` has a loop already.
FUNCTIONS = LoopThread("sandbox-kernel-functions")

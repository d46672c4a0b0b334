"""One background thread with one event loop, shared by every proxy and every blocking fetch of this process.

The thread starts at the first use and is a daemon. A forked child starts its own, because threads do not survive a
fork.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import TypeVar

_T = TypeVar("_T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None


def network_loop() -> asyncio.AbstractEventLoop:
    """Return the running event loop of the network thread; starts the thread if there is none."""
    global _loop, _thread
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            _thread = threading.Thread(target=_loop.run_forever, name="sandbox-kernel-net", daemon=True)
            _thread.start()
        return _loop


def run_on_network_loop(work: Coroutine[object, object, _T]) -> _T:
    """Run a coroutine on the network loop, wait for it and return its result.

    An interrupt of the caller cancels the coroutine. Raises ``RuntimeError`` when called from the network thread.
    """
    loop = network_loop()
    if threading.current_thread() is _thread:
        work.close()
        raise RuntimeError("a blocking network call was made from the network thread itself; await the async form")
    future = asyncio.run_coroutine_threadsafe(work, loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def _after_fork() -> None:
    global _lock, _loop, _thread
    _lock = threading.Lock()
    _loop = _thread = None


os.register_at_fork(after_in_child=_after_fork)

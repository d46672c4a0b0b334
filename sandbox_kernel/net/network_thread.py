"""One background thread with one event loop, shared by every proxy and every blocking fetch of this process.

It starts with the first use, is a daemon, and is made anew in a forked child, where threads do not survive.
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
    """The running loop of the network thread."""
    global _loop, _thread
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            _thread = threading.Thread(target=_loop.run_forever, name="sandbox-kernel-net", daemon=True)
            _thread.start()
        return _loop


def run_on_network_loop(work: Coroutine[object, object, _T]) -> _T:
    """Run to completion there and wait; an interrupt of the caller cancels the work. Never call it from that thread."""
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

"""One background thread with one event loop, shared by every proxy and every blocking fetch of this process."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

from sandbox_kernel.ground.loop_thread import LoopThread

_T = TypeVar("_T")
_thread = LoopThread("sandbox-kernel-net")


def network_loop() -> asyncio.AbstractEventLoop:
    """Return the running event loop of the network thread; starts the thread if there is none."""
    return _thread.loop()


def run_on_network_loop(work: Coroutine[object, object, _T]) -> _T:
    """Run a coroutine on the network loop, wait for it and return its result.

    An interrupt of the caller cancels the coroutine. Raises ``RuntimeError`` when called from the network thread.
    """
    if asyncio._get_running_loop() is network_loop():
        work.close()
        raise RuntimeError("a blocking network call was made from the network thread itself; await the async form")
    future = _thread.start(work)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise

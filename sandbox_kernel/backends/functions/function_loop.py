"""One background thread with one event loop, for coroutine functions that are called by a blocking ``run``.

``arun`` has a loop already, and its functions run there. The thread starts at the first use and is a daemon.
"""

from __future__ import annotations

import asyncio
import os
import threading

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None


def function_loop() -> asyncio.AbstractEventLoop:
    """Return the running loop; starts its thread if there is none."""
    global _loop
    with _lock:
        if _loop is None:
            _loop = asyncio.new_event_loop()
            threading.Thread(target=_loop.run_forever, name="sandbox-kernel-functions", daemon=True).start()
        return _loop


def _after_fork() -> None:
    global _lock, _loop
    _lock = threading.Lock()
    _loop = None


os.register_at_fork(after_in_child=_after_fork)

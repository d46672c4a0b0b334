"""Adapts CPython to WebAssembly, once when it has started.

Runs inside the guest, on Python 3.12 and 3.15. There are no sockets, so asyncio's event loop gets a selector that only
sleeps. Modules of the work folder are not compiled to files, which the user did not make.
"""

from __future__ import annotations

import _thread
import sys

sys.dont_write_bytecode = True


def _no_thread(*_arguments: object, **_named: object) -> int:
    raise RuntimeError("can't start new thread: WebAssembly has none; use asyncio, or run this with backend='process'")


# CPython would say that it is about to end, which is not the reason. Newer versions have the last one too.
for _name in ("start_new_thread", "start_new", "start_joinable_thread"):
    if hasattr(_thread, _name):
        setattr(_thread, _name, _no_thread)


def _give_asyncio_a_loop() -> None:
    import asyncio
    import selectors
    import time
    import warnings

    class Sleeper(selectors.BaseSelector):
        """A selector without files: it only sleeps for as long as the loop asks."""

        def register(self, fileobj: object, events: int, data: object = None) -> selectors.SelectorKey:
            raise OSError("there are no sockets in this sandbox")

        def unregister(self, fileobj: object) -> selectors.SelectorKey:
            raise KeyError(fileobj)

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            if timeout is None:
                raise RuntimeError("the event loop would wait forever: nothing is scheduled")
            if timeout > 0:
                time.sleep(timeout)
            return []

        def get_map(self) -> dict[object, selectors.SelectorKey]:  # type: ignore[override]
            return {}

    class Loop(asyncio.SelectorEventLoop):
        """An event loop without the socket pair with which threads wake it."""

        def __init__(self) -> None:
            super().__init__(Sleeper())

        def _make_self_pipe(self) -> None:
            self._internal_fds = 0

        def _close_self_pipe(self) -> None:
            pass

        def _write_to_self(self) -> None:
            pass

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of Python 3.14 and later, which has nothing else yet

        class Policy(asyncio.DefaultEventLoopPolicy):
            """Makes event loops of the class ``Loop``."""

            _loop_factory = Loop

        asyncio.set_event_loop_policy(Policy())


_give_asyncio_a_loop()

"""The event loop of a session: there is one while a cell runs, and it runs between cells.

As in ipykernel, ``asyncio.create_task`` works in a plain cell, and its task goes on after the cell. While a plain cell
runs, the loop stands still but counts as running; a program may still run a loop of its own (``asyncio.run``), which
ipykernel refuses.

The loop is part of the session's memory: a checkpoint has its tasks as they were when it was made, right after a cell.
What they did between that moment and the rollback is done again. Connections of tasks are shared with the copy, as all
descriptors are.
"""

from __future__ import annotations

import contextlib
import functools
import signal
import sys
import traceback

from IPython.core import async_helpers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Iterator


def the_loop() -> Any:
    """Return the session's loop; None where IPython does not expose it (before version 8)."""
    if not hasattr(async_helpers, "get_asyncio_loop"):
        return None
    import asyncio

    loop = getattr(async_helpers, "_asyncio_event_loop", None)
    if loop is not None and not loop.is_closed():
        return loop
    # An interrupt in the middle would leave half a loop, whose end prints an error.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with stepped_out(asyncio):
            return async_helpers.get_asyncio_loop()  # type: ignore[no-untyped-call]
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def counts_as_running() -> Iterator[None]:
    """Let the session's loop be the running one, for a cell."""
    import asyncio

    loop = the_loop()
    asyncio._set_running_loop(loop)
    try:
        yield
    finally:
        asyncio._set_running_loop(None)


@contextlib.contextmanager
def stepped_out(asyncio: Any) -> Iterator[None]:
    """Let no loop be the running one, if the one that is only counts as running."""
    loop = asyncio._get_running_loop()
    pretended = loop is not None and not loop.is_running()
    if pretended:
        asyncio._set_running_loop(None)
    try:
        yield
    finally:
        if pretended:
            asyncio._set_running_loop(loop)


def allow_own_loops() -> None:
    """Let programs run loops of their own in a plain cell. Called once, before the first cell."""
    import asyncio
    from asyncio import base_events

    def free(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **named: Any) -> Any:
            with stepped_out(asyncio):
                return function(*args, **named)

        return call

    asyncio.run = asyncio.runners.run = free(asyncio.run)
    for home, name in (
        (getattr(asyncio, "Runner", None), "run"),
        (base_events.BaseEventLoop, "run_until_complete"),
        (base_events.BaseEventLoop, "run_forever"),
    ):
        if home is not None:
            setattr(home, name, free(getattr(home, name)))


def run_until_readable(fd: int) -> None:
    """Run the loop until a descriptor is readable; returns at once when the loop has nothing to do."""
    loop = getattr(async_helpers, "_asyncio_event_loop", None)
    if loop is None or loop.is_closed() or loop.is_running() or is_idle(loop):
        return
    try:
        loop.add_reader(fd, loop.stop)
        loop.run_forever()
    except BaseException:
        # A task of the user raised SystemExit or the like: it is printed, and the session goes on.
        traceback.print_exc(file=sys.stderr)
    finally:
        loop.remove_reader(fd)


def is_idle(loop: Any) -> bool:
    """Whether nothing waits in a loop: no callback, no timer, no descriptor but its own."""
    selector = getattr(loop, "_selector", None)
    registered = len(selector.get_map()) if selector is not None else 2
    return not getattr(loop, "_ready", True) and not getattr(loop, "_scheduled", True) and registered <= 1


def renew() -> None:
    """Give the loop descriptors of its own. Called in a checkpoint that has become the worker.

    The selector and the pipe that wakes it are shared with the process that was ended, and with other checkpoints. They
    are closed first: the cells may have used up all descriptors.
    """
    import selectors

    loop = getattr(async_helpers, "_asyncio_event_loop", None)
    old = getattr(loop, "_selector", None)
    if loop is None or loop.is_closed() or old is None:
        return
    own = loop._ssock.fileno()
    others = [key for key in old.get_map().values() if key.fd != own]
    old.close()
    loop._ssock.close()
    loop._csock.close()
    loop._internal_fds -= 1
    loop._selector = new = selectors.DefaultSelector()
    for key in others:
        with contextlib.suppress(OSError, ValueError, KeyError):
            new.register(key.fileobj, key.events, key.data)
    loop._make_self_pipe()

"""What goes on between the cells of a Python session: whose output a text is, the event loop, top-level ``await``."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import io
import os
import selectors
import signal
import sys
import threading
import traceback
from asyncio import base_events
from concurrent.futures import ThreadPoolExecutor

from IPython.core import async_helpers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CoroutineType
    from typing import Any, Callable, Dict, Iterator


# ``sys.stdout`` and ``sys.stderr`` of a session: text of the running cell goes to the pipe, other text to its cell.
#
# Text of threads, and of tasks whose cell has ended, is sent as a message with the number of their cell. Only a front
# end has a place for it; without one all text goes to the pipe.

#: How much text waits for the end of its line, in characters; the host accepts no longer piece.
MAX_WAITING = 8192
_MAIN = threading.main_thread().ident


class CellStream(io.TextIOWrapper):
    """One stream. ``_late`` sends text to its cell; ``_running`` returns whose text is for the pipe.

    ``_running`` returns the running cell, minus the last cell between cells, and 0 when all text is for the pipe:
    without a front end, and in a forked process. Text of threads is always sent: their cell may end between two writes.
    """

    _name: str
    _running: Callable[[], int]
    _late: Callable[[str, int, str], None]
    _waiting: threading.local
    _pid = 0

    def write(self, text: str) -> int:
        """Write text to the place that it belongs to."""
        running = self._running()
        if not running or not isinstance(text, str):
            return super().write(text)
        cell = current() or abs(running)
        if cell == running and threading.get_ident() == _MAIN:
            return super().write(text)
        held: Dict[Any, str] = self._waiting.__dict__
        whole = held.pop(cell, "") + text
        if "\n" in text or len(whole) > MAX_WAITING:
            self._send(cell, whole)
        else:
            held[cell] = whole
        return len(text)

    def flush(self) -> None:
        """Write everything that this thread has written."""
        held: Dict[Any, str] = self.__dict__["_waiting"].__dict__ if "_waiting" in self.__dict__ else {}
        for cell in list(held):
            self._send(cell, held.pop(cell))
        super().flush()

    def _send(self, cell: int, text: str) -> None:
        super().flush()  # what was printed before it comes before it
        for start in range(0, len(text), MAX_WAITING):
            self._late(self._name, cell, text[start : start + MAX_WAITING])

    def _is_master_process(self) -> bool:
        """Whether this is the session's process; programs written for ipykernel ask this."""
        return os.getpid() == self._pid


def replace_streams(pid: int, running: Callable[[], int], late: Callable[[str, int, str], None]) -> None:
    """Put a ``CellStream`` in the place of each standard stream."""
    for name in ("stdout", "stderr"):
        old: Any = getattr(sys, name)
        old.flush()
        new = CellStream(
            old.buffer,
            encoding=old.encoding,
            errors=old.errors,
            line_buffering=old.line_buffering,
            write_through=old.write_through,
        )
        new._name, new._running, new._late, new._pid = name, running, late, pid
        new._waiting = threading.local()
        setattr(sys, name, new)


# Which cell the running code belongs to: the one that started its thread or its task, also after that cell has ended.
#
# Tasks inherit the context of the code that creates them. Threads do not, so ``Thread.start`` notes the cell. A pool's
# threads belong to no cell: each call that is handed to one belongs to the cell that handed it over.

#: The cell of this context; 0 in threads, which have a context of their own.
CELL: contextvars.ContextVar[int] = contextvars.ContextVar("sandbox_cell", default=0)
NOTED = "_sandbox_cell"


def current() -> int:
    """Return the number of the cell that the running code belongs to; 0 when that is not known."""
    return CELL.get() or getattr(threading.current_thread(), NOTED, 0)


def follow_threads() -> None:
    """Let threads and calls in thread pools belong to the cell that started them. Called once, at the beginning."""
    start = threading.Thread.start
    submit: Any = ThreadPoolExecutor.submit

    @functools.wraps(start)
    def start_of_cell(self: threading.Thread) -> None:
        if not hasattr(self, NOTED):
            setattr(self, NOTED, current())
        start(self)

    @functools.wraps(submit)
    def submit_of_cell(self: Any, function: Callable[..., Any], /, *args: Any, **named: Any) -> Any:
        cell = current()

        def run_for_cell(*args: Any, **named: Any) -> Any:
            token = CELL.set(cell)
            try:
                return function(*args, **named)
            finally:
                CELL.reset(token)

        return submit(self, run_for_cell, *args, **named)

    threading.Thread.start = start_of_cell  # type: ignore[method-assign]
    ThreadPoolExecutor.submit = submit_of_cell  # type: ignore[method-assign]


# The event loop of a session: there is one while a cell runs, and it runs between cells.
#
# As in ipykernel, ``asyncio.create_task`` works in a plain cell, and its task goes on after the cell. While a plain
# cell runs, the loop stands still but counts as running; a program may still run a loop of its own (``asyncio.run``),
# which ipykernel refuses.
#
# The loop is part of the session's memory: a checkpoint has its tasks as they were when it was made, right after a
# cell. What they did between that moment and the rollback is done again. Connections of tasks are shared with the copy,
# as all descriptors are.


def the_loop() -> Any:
    """Return the session's loop; None where IPython does not expose it (before version 8)."""
    if not hasattr(async_helpers, "get_asyncio_loop"):
        return None
    loop = open_loop()
    if loop is not None:
        return loop
    # An interrupt in the middle would leave half a loop, whose end prints an error.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with stepped_out():
            return async_helpers.get_asyncio_loop()  # type: ignore[no-untyped-call]
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def open_loop() -> Any:
    """Return the session's loop if there is one already."""
    loop = getattr(async_helpers, "_asyncio_event_loop", None)
    return None if loop is None or loop.is_closed() else loop


@contextlib.contextmanager
def as_cell(cell: int) -> Iterator[None]:
    """Let what the main thread does belong to a cell, and the session's loop be the running one."""
    CELL.set(cell)
    asyncio._set_running_loop(the_loop())
    try:
        yield
    finally:
        asyncio._set_running_loop(None)


@contextlib.contextmanager
def stepped_out() -> Iterator[None]:
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

    def free(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **named: Any) -> Any:
            with stepped_out():
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
    loop = open_loop()
    if loop is None or loop.is_running():
        return
    # Nothing waits in it: no callback, no timer, no descriptor but its own.
    registered = len(loop._selector.get_map()) if hasattr(loop, "_selector") else 2
    if not getattr(loop, "_ready", True) and not getattr(loop, "_scheduled", True) and registered <= 1:
        return
    try:
        loop.add_reader(fd, loop.stop)
        loop.run_forever()
    except BaseException:
        # A task of the user raised SystemExit or the like: it is printed, and the session goes on.
        traceback.print_exc(file=sys.stderr)
    finally:
        loop.remove_reader(fd)


def renew() -> None:
    """Give the loop descriptors of its own. Called in a checkpoint that has become the worker.

    The selector and the pipe that wakes it are shared with the process that was ended, and with other checkpoints. They
    are closed first: the cells may have used up all descriptors.
    """
    loop = open_loop()
    old = getattr(loop, "_selector", None)
    if loop is None or old is None:
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


# Cells with top-level ``await``: they run on IPython's event loop, and their task ends with the cell.
#
# If an interrupt comes while the loop itself runs, IPython leaves the cell's task in the loop, and the rest of the cell
# would run in the next cell that awaits.


class CellRunner:
    """Runs a cell's coroutine to its end. Replaces IPython's own function."""

    def __call__(self, cell: CoroutineType[Any, Any, Any]) -> Any:
        """Run it; cancels it when it is interrupted."""
        __tracebackhide__ = True
        loop = the_loop()
        task = loop.create_task(cell)
        try:
            return loop.run_until_complete(task)
        except BaseException as error:
            if task.done():
                raise
            interrupted = isinstance(error, KeyboardInterrupt)
            awaited = getattr(task, "_fut_waiter", None)
            if interrupted and awaited is not None and not awaited.done():
                try:  # in the cell, where it awaits something
                    awaited.set_exception(KeyboardInterrupt())
                except RuntimeError:
                    pass  # another task, which cannot be made to raise it
                else:
                    return loop.run_until_complete(task)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                loop.run_until_complete(task)
            if interrupted:
                # The frames of the loop say nothing to the user, and take long to format.
                raise error.with_traceback(None) from None
            raise

    def __str__(self) -> str:
        """As IPython's own; ``%autoawait`` shows it."""
        return "asyncio"

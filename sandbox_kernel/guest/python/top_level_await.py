"""Cells with top-level ``await``: they run on IPython's event loop, and their task ends with the cell.

If an interrupt comes while the loop itself runs, IPython leaves the cell's task in the loop, and the rest of the cell
would run in the next cell that awaits.
"""

from __future__ import annotations

import contextlib

from IPython.core import async_helpers

from .between.background_loop import the_loop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CoroutineType
    from typing import Any


def run_to_end(cell: CoroutineType[Any, Any, Any]) -> Any:
    """Run a cell's coroutine to its end; cancels it when it is interrupted. Replaces IPython's own function."""
    import asyncio

    __tracebackhide__ = True
    loop = the_loop()
    task = loop.create_task(cell)
    try:
        return loop.run_until_complete(task)
    except KeyboardInterrupt as interrupt:
        if task.done():
            raise
        if interrupt_where_it_waits(task):
            return loop.run_until_complete(task)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(task)
        # The frames of the loop say nothing to the user, and take long to format.
        raise interrupt.with_traceback(None) from None
    except BaseException:
        if not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                loop.run_until_complete(task)
        raise


class NamedRunner:
    """``run_to_end`` with the name that ``%autoawait`` shows."""

    def __call__(self, cell: CoroutineType[Any, Any, Any]) -> Any:
        """Run a cell's coroutine."""
        __tracebackhide__ = True
        return run_to_end(cell)

    def __str__(self) -> str:
        """As IPython's own."""
        return "asyncio"


def interrupt_where_it_waits(task: Any) -> bool:
    """Raise ``KeyboardInterrupt`` in the cell, where it awaits something. False if what it awaits cannot raise it."""
    awaited = getattr(task, "_fut_waiter", None)
    if awaited is None or awaited.done():
        return False
    try:
        awaited.set_exception(KeyboardInterrupt())
    except RuntimeError:  # another task
        return False
    return True


def watch_over(shell: Any) -> None:
    """Make a shell use ``run_to_end``. IPython before version 8 does not expose its loop and is left as it is."""
    if hasattr(async_helpers, "get_asyncio_loop"):
        shell.loop_runner_map["asyncio"] = (NamedRunner(), True)
        shell.loop_runner = "asyncio"

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
    from typing import Any, Coroutine


def run_to_end(cell: Coroutine[Any, Any, Any]) -> Any:
    """Run a cell's coroutine to its end; cancels it when it is interrupted. Replaces IPython's own function."""
    import asyncio

    loop = the_loop()
    task = loop.create_task(cell)
    try:
        return loop.run_until_complete(task)
    except BaseException:
        if not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                loop.run_until_complete(task)
        raise


def watch_over(shell: Any) -> None:
    """Make a shell use ``run_to_end``. IPython before version 8 does not expose its loop and is left as it is."""
    if hasattr(async_helpers, "get_asyncio_loop"):
        shell.loop_runner_map["asyncio"] = (run_to_end, True)
        shell.loop_runner = "asyncio"

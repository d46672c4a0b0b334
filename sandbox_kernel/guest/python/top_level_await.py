"""Cells that await something: they run on IPython's own event loop, and end with the cell.

An interrupt that meets the loop, and not a line of the cell, would leave the cell's task waiting there: the rest of it
would run in the next cell that awaits.
"""

from __future__ import annotations

import contextlib

from IPython.core import async_helpers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Coroutine


def run_to_end(cell: Coroutine[Any, Any, Any]) -> Any:
    """Run a cell until it is done; one that is broken off is cancelled. IPython calls this in place of its own."""
    import asyncio

    loop = async_helpers.get_asyncio_loop()  # type: ignore[no-untyped-call]
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
    """Have a shell run its cells that way; an IPython before 8 keeps its loop to itself, and its own way."""
    if hasattr(async_helpers, "get_asyncio_loop"):
        shell.loop_runner_map["asyncio"] = (run_to_end, True)
        shell.loop_runner = "asyncio"

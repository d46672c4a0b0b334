"""Which cell the running code belongs to: the one that started its thread or its task, also after that cell has ended.

Tasks inherit the context of the code that creates them. Threads do not, so ``Thread.start`` notes the cell. A pool's
threads belong to no cell: each call that is handed to one belongs to the cell that handed it over.
"""

from __future__ import annotations

import contextvars
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict

#: The cell of this context; 0 in threads, which have a context of their own.
CELL: contextvars.ContextVar[int] = contextvars.ContextVar("sandbox_cell", default=0)
_NOTED = "_sandbox_cell"


def current() -> int:
    """Return the number of the cell that the running code belongs to; 0 when that is not known."""
    return CELL.get() or getattr(threading.current_thread(), _NOTED, 0)


def follow_threads() -> None:
    """Let threads and calls in thread pools belong to the cell that started them. Called once, at the beginning."""
    start = threading.Thread.start

    def start_of_cell(self: threading.Thread) -> None:
        if not hasattr(self, _NOTED):
            setattr(self, _NOTED, current())
        start(self)

    start_of_cell.__name__, start_of_cell.__doc__ = "start", start.__doc__
    threading.Thread.start = start_of_cell  # type: ignore[method-assign]
    from concurrent.futures import ThreadPoolExecutor

    submit = ThreadPoolExecutor.submit

    def submit_of_cell(self: Any, function: Callable[..., Any], /, *args: Any, **named: Any) -> Any:
        return submit(self, _Call(function, current()), *args, **named)

    submit_of_cell.__name__, submit_of_cell.__doc__ = "submit", submit.__doc__
    ThreadPoolExecutor.submit = submit_of_cell  # type: ignore[method-assign]


class _Call:
    """A call that a thread of a pool makes for a cell."""

    def __init__(self, function: Callable[..., Any], cell: int) -> None:
        self.function, self.cell = function, cell

    def __call__(self, *args: Any, **named: Any) -> Any:
        token = CELL.set(self.cell)
        try:
            return self.function(*args, **named)
        finally:
            CELL.reset(token)


def parent() -> Dict[str, Any]:
    """Return a message header that names the cell of the running code, for programs written for ipykernel."""
    return {"header": {"msg_id": f"sandbox-cell-{current()}", "msg_type": "execute_request"}, _NOTED: current()}


def belong_to(parent: Dict[str, Any]) -> contextvars.Token[int]:
    """Let the running code belong to the cell of a ``parent()``; returns the token that undoes it."""
    cell = parent.get(_NOTED) if isinstance(parent, dict) else None
    return CELL.set(cell if isinstance(cell, int) else current())

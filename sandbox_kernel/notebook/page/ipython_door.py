"""Shows the output of a sandboxed cell in IPython, from the main thread.

The cell runs on a loop in another thread. IPython's display, streams and ``input`` work only in the main thread, which
runs the functions in the queue of a ``MainThread`` while it waits for the cell.
"""

# mypy: disallow-untyped-calls=False
# IPython has too few types for this rule.

from __future__ import annotations

import asyncio
import builtins
import getpass
import queue
import sys
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from IPython.core.interactiveshell import InteractiveShell
from IPython.display import clear_output, display, update_display

from sandbox_kernel.notebook.page.stdin_channel import PROMPT_MARK
from sandbox_kernel.notebook.page.widgets import RunPanel, report_widget, view
from sandbox_kernel.notebook.render import ClearOutput, Failure, Message, ReportPanel, ShowOutput, Value, one_line
from sandbox_kernel.report.page import Measure


class SandboxValue:
    """The value of a sandboxed cell's last expression: only its representations, not the object."""

    def __init__(self, value: Value) -> None:
        self._value = value

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> tuple[dict[str, object], object]:
        return dict(self._value.data), dict(self._value.metadata)

    def __repr__(self) -> str:
        return str(self._value.data.get("text/plain", "<value of a sandboxed cell>"))


class MainThread:
    """The ``Door`` of ``CellExecution`` in IPython: queues everything that a cell shows for the main thread."""

    def __init__(self, watched: bool, measure: Measure) -> None:
        self.work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._watched = watched
        self._measure = measure

    def watched(self) -> bool:
        """See ``execution.Door``."""
        return self._watched

    def late(self, messages: object) -> None:
        """See ``execution.Door``: IPython has no place for output of an earlier cell."""

    def stream(self, name: str, text: str) -> None:
        """See ``execution.Door``."""
        self.work.put(lambda: _write(name, text))

    def message(self, message: Message) -> None:
        """See ``execution.Door``."""
        if not isinstance(message, Failure):  # failures are raised at the end, and IPython shows them
            self.work.put(lambda: _show(message, self._measure))

    def live(self, timeout_s: float, stop: Callable[[], None]) -> _Panel | None:
        """See ``execution.Door``."""
        return _Panel(self.work, timeout_s, stop) if self._watched else None

    async def ask(self, prompt: str, password: bool) -> str:
        """Ask the user, from the main thread. The prompt is marked as coming from the sandbox."""
        answer: Future[str] = Future()
        self.work.put(lambda: _ask(answer, PROMPT_MARK + one_line(prompt, 1000), password))
        return await asyncio.wrap_future(answer)

    async def question(self, text: str) -> str | None:
        """Ask the user something ourselves; None without an answer."""
        answer: Future[str] = Future()
        self.work.put(lambda: _ask(answer, text, False))
        try:
            return await asyncio.wrap_future(answer)
        except EOFError:
            return None


class _Panel:
    """The run panel, created and updated by the main thread."""

    def __init__(self, work: queue.SimpleQueue[Callable[[], None]], timeout_s: float, stop: Callable[[], None]) -> None:
        self._work = work
        self._panel: RunPanel | None = None
        self._handle: Any = None
        work.put(lambda: self._open(timeout_s, stop))

    def _open(self, timeout_s: float, stop: Callable[[], None]) -> None:
        self._panel = RunPanel(timeout_s, stop, blocking_kernel=True)
        self._handle = display(view(self._panel.widget, "running"), raw=True, display_id=True)

    def update(self, elapsed_s: float, memory: tuple[int, int] | None) -> None:
        self._work.put(lambda: self._panel.update(elapsed_s, memory) if self._panel else None)

    def close(self) -> None:
        self._work.put(self._close)

    def _close(self) -> None:
        if self._panel is not None:
            self._panel.close()
            update_display({"text/plain": ""}, raw=True, display_id=self._handle.display_id)


def _write(name: str, text: str) -> None:
    stream = sys.stdout if name == "stdout" else sys.stderr
    stream.write(text)
    stream.flush()


def _show(message: Message, measure: Measure) -> None:
    match message:
        case ShowOutput():
            draw = update_display if message.update else display
            known = {"display_id": message.display_id} if message.display_id else {}
            draw(dict(message.data), metadata=dict(message.metadata), raw=True, **known)
        case ClearOutput():
            clear_output(wait=message.wait)
        case Value():
            shell = InteractiveShell.instance()
            shell.displayhook(SandboxValue(message))
        case ReportPanel():
            display(view(report_widget(message.document, measure), "Capability report, to explore"), raw=True)


def _ask(answer: Future[str], prompt: str, password: bool) -> None:
    try:
        answer.set_result(getpass.getpass(prompt) if password else builtins.input(prompt))
    except KeyboardInterrupt:
        answer.set_exception(EOFError("interrupted while waiting for input"))
        raise
    except Exception as error:  # the client accepts no input request: the program gets an EOFError, the cell goes on
        answer.set_exception(EOFError(f"{error}; give the text with %%sandbox --stdin TEXT"))

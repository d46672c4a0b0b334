"""``%%sandbox`` and ``%sandbox`` in the ordinary Python kernel and in terminal IPython.

The cell runs on an event loop in its own thread. Meanwhile the main thread shows its output, asks the user for input,
and waits. So Ctrl-C stops the sandbox and nothing else, and the Stop button works although this cell blocks the shell.

Failures are raised as exceptions of our own: for IPython's ``UsageError`` clients would get the status "ok".
"""

from __future__ import annotations

import asyncio
import atexit
import builtins
import getpass
import queue
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import comm
from IPython.core.completer import CompletionContext, SimpleCompletion, context_matcher
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, line_cell_magic, magics_class, no_var_expand
from IPython.display import clear_output, display, update_display

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.model import CellError
from sandbox_kernel.notebook import render
from sandbox_kernel.notebook.editor import complete_magic
from sandbox_kernel.notebook.execution import CellExecution, CellReply, NotebookState
from sandbox_kernel.notebook.options.option_table import usage
from sandbox_kernel.notebook.options.own_rights import LineRights, LineSetting
from sandbox_kernel.notebook.options.parse_cell import CellPlan, new_defaults, parse_line, parse_magic, plan_line
from sandbox_kernel.report.page import Measure, report_widget, view
from sandbox_kernel.util.loop_thread import LoopThread


class SandboxValue:
    """The value of a sandboxed cell's last expression: only its representations, not the object."""

    def __init__(self, value: render.Value) -> None:
        self._value = value

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> tuple[dict[str, object], object]:
        return dict(self._value.data), dict(self._value.metadata)

    def __repr__(self) -> str:
        return str(self._value.data.get("text/plain", "<value of a sandboxed cell>"))


class _MainThread(render.Door):
    """The ``Door`` of ``CellExecution`` in IPython: queues everything that a cell shows for the main thread."""

    def __init__(self, kernel: Any, cell_id: str, watched: bool, measure: Measure) -> None:
        self.work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._kernel, self._cell_id, self._watched = kernel, cell_id, watched
        self._measure = measure

    def watched(self) -> bool:
        return self._watched

    def stream(self, name: str, text: str) -> None:
        self.work.put(lambda: _write(name, text))

    def message(self, message: render.Message) -> None:
        if not isinstance(message, CellError):  # failures are raised at the end, and IPython shows them
            self.work.put(lambda: _show(message, self._measure))

    def progress(self, made: render.Progress) -> None:
        self._tell(render.PROGRESS, made.content(self._cell_id))

    def library(self, made: Mapping[str, object]) -> None:
        self._tell(render.LIBRARY, made)

    def _tell(self, kind: str, content: Mapping[str, object]) -> None:
        if self._watched:
            parent, send, iopub = self._kernel.get_parent("shell"), self._kernel.session.send, self._kernel.iopub_socket
            self.work.put(lambda: send(iopub, kind, dict(content), parent=parent))

    async def ask(self, prompt: str, password: bool) -> str:
        """Ask the user for the program. The prompt is marked as coming from the sandbox."""
        return await self._asked(render.PROMPT_MARK + render.one_line(prompt, 1000), password)

    async def question(self, text: str) -> str | None:
        """Ask the user something ourselves; None without an answer."""
        try:
            return await self._asked(text, False)
        except EOFError:
            return None

    def _asked(self, text: str, password: bool) -> asyncio.Future[str]:
        answer: Future[str] = Future()
        self.work.put(lambda: _ask(answer, text, password))
        return asyncio.wrap_future(answer)


def _write(name: str, text: str) -> None:
    stream = sys.stdout if name == "stdout" else sys.stderr
    stream.write(text)
    stream.flush()


def _show(message: render.Message, measure: Measure) -> None:
    match message:
        case render.ShowOutput():
            draw = update_display if message.update else display
            known = {"display_id": message.display_id} if message.display_id else {}
            draw(dict(message.data), metadata=dict(message.metadata), raw=True, **known)
        case render.ClearOutput():
            clear_output(wait=message.wait)
        case render.Value():
            InteractiveShell.instance().displayhook(SandboxValue(message))
        case render.ReportPanel():
            display(view(report_widget(message.document, measure)), raw=True)


def _ask(answer: Future[str], prompt: str, password: bool) -> None:
    try:
        answer.set_result(getpass.getpass(prompt) if password else builtins.input(prompt))
    except KeyboardInterrupt:
        answer.set_exception(EOFError("interrupted while waiting for input"))
        raise
    except Exception as error:  # the client accepts no input request: the program gets an EOFError, the cell goes on
        answer.set_exception(EOFError(f"{error}; give the text with %%sandbox --stdin TEXT"))


#: How often the main thread wakes up to handle signals. Output and the end of the cell wake it at once.
_TICK_S = 0.5
_MATCHER = "sandbox-kernel"


class CellFailed(SandboxError):
    """A sandboxed cell failed. ``failed`` makes a subclass for each kind, whose name clients see as ``ename``."""

    def __init__(self, failure: CellError) -> None:
        super().__init__(failure.evalue)
        self.failure = failure

    def _render_traceback_(self) -> list[str]:
        """The lines that IPython prints instead of a traceback through this file."""
        return list(self.failure.traceback)


def failed(failure: CellError) -> CellFailed:
    """Return an exception for a failure. Its class has the name of the failure."""
    kind: type[CellFailed] = type(failure.ename, (CellFailed,), {"__module__": __name__})
    return kind(failure)


@magics_class
class SandboxMagics(Magics):
    """The magics of one IPython shell, with the state of its notebook."""

    def __init__(self, shell: Any) -> None:
        super().__init__(shell)
        # Cells of the Python kernel are code of the host: their lines give what the user has.
        self.state = NotebookState(variables=shell.user_ns, in_python=True, rights=LineRights(LineSetting.ALL))
        self.state.comms.register(comm.get_comm_manager())
        self._loop = LoopThread("sandbox-magic")
        atexit.register(self.close)

    @no_var_expand
    @line_cell_magic
    def sandbox(self, line: str, cell: str | None = None) -> None:
        """Run a cell in a sandbox (%%sandbox), or set the notebook's defaults and ask (%sandbox). See %sandbox help."""
        try:
            if cell is not None:
                plan = parse_magic(line, cell, self.state.defaults)
            else:
                command = parse_line(line)
                plan = plan_line(command, new_defaults(command, self.state.defaults))
        except SandboxError as error:
            raise failed(render.refusal(error)) from None
        done = self._run(plan)
        if done.bug is not None:
            raise done.bug
        if done.failure is not None:
            raise failed(done.failure)

    sandbox.__doc__ = f"Run a cell in a sandbox, or set the notebook's defaults and ask.\n\n{usage()}"

    def _run(self, plan: CellPlan) -> CellReply:
        loop = self._loop.loop
        cell_id, watched = _of_page(self.shell)
        door = _MainThread(getattr(self.shell, "kernel", None), cell_id, watched, self.state.measure_again)
        cancel: list[asyncio.Event] = []
        number = self.shell.execution_count if self.shell is not None else None

        async def work() -> CellReply:
            cancel.append(asyncio.Event())
            # In a terminal no kernel serves the cells, and there are no buttons.
            in_terminal = getattr(self.shell, "kernel", None) is None and sys.stdin is not None and sys.stdin.isatty()
            question = door.question if in_terminal else None
            execution = CellExecution(self.state, door, door.ask, cancel[0], number, cell_id, question=question)
            return await execution.run(plan)

        future = self._loop.start(work())
        future.add_done_callback(lambda _: door.work.put(lambda: None))
        while True:
            try:
                while not future.done() or not door.work.empty():
                    try:
                        door.work.get(timeout=_TICK_S)()
                    except queue.Empty:
                        continue
                return future.result()
            except KeyboardInterrupt:
                # Stop the sandbox and keep waiting for its end, so that no process is left behind.
                if cancel:
                    loop.call_soon_threadsafe(cancel[0].set)
                else:
                    future.cancel()
                    raise

    def complete(self, context: CompletionContext) -> dict[str, object]:
        """Complete our magic lines for IPython's completer, as the Sandbox kernel does, and suppress other matchers."""
        position = len(context.text_until_cursor)
        if context.cursor_line > 0:
            position += sum(len(line) + 1 for line in context.full_text.split("\n")[: context.cursor_line])
        found = complete_magic(context.full_text, position, self.state.known())
        if found is None or found.is_magic:  # IPython completes the names of magics itself
            return {"completions": [], "suppress": False}
        typed = context.full_text[found.start : position]
        completions = [SimpleCompletion(text=text, type="magic") for text in found.matches]
        return {"completions": completions, "matched_fragment": typed, "suppress": True, "ordered": True}

    def close(self) -> None:
        """Close every sandbox of this shell. Called at exit and by ``%unload_ext``."""
        self.state.close()
        self._loop.close()


def _of_page(shell: Any) -> tuple[str, bool]:
    """Return the id of the running cell, if the client sends one, and whether a page runs it (it takes questions)."""
    kernel = getattr(shell, "kernel", None)
    parent = kernel.get_parent("shell") if kernel is not None else {}
    try:
        cell, asks = parent["metadata"].get("cellId"), parent["content"].get("allow_stdin")
    except (KeyError, AttributeError, TypeError):
        return "", False
    return (cell, bool(asks)) if isinstance(cell, str) and cell else ("", False)


def load(shell: Any) -> None:
    """Register the magics and their completion. Called by ``%load_ext sandbox_kernel``."""
    magics = SandboxMagics(shell)
    shell.register_magics(magics)

    @context_matcher(identifier=_MATCHER)
    def matcher(context: CompletionContext) -> Any:
        return magics.complete(context)

    shell.Completer.custom_matchers.append(matcher)


def unload(shell: Any) -> None:
    """Close the sandboxes and remove the completion. Called by ``%unload_ext sandbox_kernel``."""
    magics = shell.magics_manager.registry.get("SandboxMagics")
    if magics is not None:
        magics.close()
        others = [one for one in shell.Completer.custom_matchers if getattr(one, "matcher_identifier", "") != _MATCHER]
        shell.Completer.custom_matchers[:] = others

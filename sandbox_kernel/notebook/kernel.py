"""The Sandbox kernel: a Jupyter kernel that never runs user code in its own process.

It subclasses ipykernel's base class, not IPython's kernel, because the latter has many ways to run text in its own
process (``!cmd``, ``%run``, ``user_expressions``, start-up files). ``options`` parses a cell, ``runner`` runs it in a
sandbox, ``render`` makes its messages and ``page/kernel_door.py`` sends them. This class connects them to the protocol.

Everything but the protocol is imported where it is used, or by a background thread after the first answer: so the first
answer, for which the page waits, does not wait for the imports.
"""

# mypy: disallow-untyped-calls=False, disallow-subclassing-any=False
# ipykernel's base class has no types; everything that other files use from here has.

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import comm
from ipykernel.kernelbase import Kernel
from traitlets import Float

from sandbox_kernel import __version__
from sandbox_kernel.notebook.interrupts import RunningCells
from sandbox_kernel.notebook.kernel_facts import BANNER, HELP_LINKS, LANGUAGE_INFO, PROTOCOL_VERSION

if TYPE_CHECKING:
    from sandbox_kernel.notebook.debugger import NotebookDebugger
    from sandbox_kernel.notebook.editor.complete import Completion
    from sandbox_kernel.notebook.editor.history import History
    from sandbox_kernel.notebook.execution import NotebookState
    from sandbox_kernel.notebook.page.widgets import RunPanel
    from sandbox_kernel.notebook.side_panel.panel_answers import PanelDesk

#: How long a shutdown waits for running cells to end. After that the process exits, and its jails are killed with it.
_SHUTDOWN_S = 2.0


class SandboxKernel(Kernel):
    """The kernel of one notebook. ``IPKernelApp`` creates it and calls the ``do_*`` methods."""

    implementation = "sandbox-kernel"
    implementation_version = __version__
    banner = BANNER
    language_info = LANGUAGE_INFO
    help_links = HELP_LINKS
    #: The base class sleeps before each reply because of a race of its sys.stdout; cells do not write to that here.
    _execute_sleep = Float(0.0).tag(config=True)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._number = 0
        self._uncounted = 0
        self._running = RunningCells()
        self._stdin_lock = threading.Lock()
        self._state_lock = threading.Lock()
        self._widgets_enabled = False
        self._warm = False
        self._debugger: NotebookDebugger | None = None
        self.comm_manager = comm.get_comm_manager()
        for kind in ("comm_open", "comm_msg", "comm_close"):
            self.shell_handlers[kind] = getattr(self.comm_manager, kind)
        self.shell_handlers["sandbox_request"] = self.sandbox_request

    @property
    def state(self) -> NotebookState:
        """Defaults, sandboxes and variables of this notebook; the first to ask, on whatever thread, makes it."""
        with self._state_lock:
            return self._made_state

    @cached_property
    def _made_state(self) -> NotebookState:
        from sandbox_kernel.notebook.execution import NotebookState
        from sandbox_kernel.notebook.kept_files import kept_work
        from sandbox_kernel.notebook.runner import CellRunner

        state = NotebookState(runner=CellRunner(kept=kept_work(self._connection_file)))
        state.comms.register(self.comm_manager)
        return state

    @property
    def _connection_file(self) -> str:
        """The path of this kernel's connection file; a restarted kernel has the same."""
        return str(getattr(self.parent, "abs_connection_file", "") or "")

    @cached_property
    def panel_desk(self) -> PanelDesk:
        """What answers the side panel of the page."""
        from sandbox_kernel.notebook.side_panel.panel_answers import PanelDesk

        return PanelDesk(self.state)

    @cached_property
    def history(self) -> History:
        """The cells that were run in this kernel."""
        from sandbox_kernel.notebook.editor.history import History

        return History()

    async def kernel_info_request(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        """Answer the first request of every client, then prepare for the first cell in a background thread."""
        await super().kernel_info_request(stream, ident, parent)
        if not self._warm:
            self._warm = True
            threading.Thread(target=self._warm_up, name="sandbox-warm-up", daemon=True).start()

    def _warm_up(self) -> None:
        """Import the rest of the package and open a first sandbox, so that the first cell does not wait for them."""
        from sandbox_kernel.errors import SandboxError

        try:
            self.state.runner.warm(self.state.defaults)
        except SandboxError as error:
            self.log.warning("no sandbox could be made ready: %s", error)  # the first cell shows the same error

    # -- kernel information ---------------------------------------------------------------------------------------

    @property
    def kernel_info(self) -> dict[str, Any]:
        """Kernel information. That of the base class imports debugpy here, where nothing is debugged."""
        debugger = find_spec("debugpy") is not None
        features = ["kernel subshells"] if self._supports_kernel_subshells else []
        return {
            "protocol_version": PROTOCOL_VERSION,
            "implementation": self.implementation,
            "implementation_version": self.implementation_version,
            "language_info": self.language_info,
            "banner": self.banner,
            "help_links": self.help_links,
            "supported_features": [*features, "debugger"] if debugger else features,
            "debugger": debugger,
        }

    @property
    def execution_count(self) -> int:
        """The number of the next cell."""
        return self._number + 1

    @execution_count.setter
    def execution_count(self, value: int) -> None:
        """Do nothing: the base class also counts silent cells, so ``do_execute`` counts instead."""

    # -- running cells -----------------------------------------------------------------------------------------------

    async def do_execute(
        self,
        code: str,
        silent: bool,
        store_history: bool = True,
        user_expressions: Mapping[str, str] | None = None,
        allow_stdin: bool = False,
        *,
        cell_meta: object = None,
        cell_id: object = None,
    ) -> dict[str, object]:
        """Called by the base class for each ``execute_request``, one at a time on each (sub)shell."""
        from sandbox_kernel.notebook.editor.explain import is_question
        from sandbox_kernel.notebook.editor.history import HistoryEntry
        from sandbox_kernel.notebook.execution import CellExecution
        from sandbox_kernel.notebook.options.option_table import usage
        from sandbox_kernel.notebook.page.kernel_door import Wire, failure_fields
        from sandbox_kernel.notebook.page.reply_parts import expressions, payload
        from sandbox_kernel.notebook.page.stdin_channel import NotebookPrompts, StdinChannel
        from sandbox_kernel.session.cell.front_end import unanswered
        from sandbox_kernel.untrusted.json_value import encodable

        number = self.execution_count
        counted = store_history and not silent
        # nbval runs all cells without history, so that all have the same number; a cell is named by its own.
        name = number + self._uncounted
        if counted:
            self._number, name = number, number
            self.panel_desk.ran(number, cell_id)
        elif not silent:
            self._uncounted += 1
        if is_question(code):
            page = {"source": "page", "start": 0, "data": {"text/plain": usage()}}
            return {"status": "ok", "execution_count": number, "payload": [page], "user_expressions": {}}
        parent = self.get_parent("shell")
        ident = self._get_shell_context_var(self._shell_parent_ident)
        if self._debugger is not None:
            await self._debugger.before_cell()
        # Notebook pages send a cell id and accept input requests; nbval, papermill and nbclient do neither.
        wire = Wire(self, parent, number, silent=silent, watched=allow_stdin and cell_id is not None)
        with self._running.cell() as cancel:
            channel = StdinChannel(self.session, self.stdin_socket, parent, ident)
            questions = NotebookPrompts(channel, self._stdin_lock, cancel, allow_stdin)
            asked = user_expressions or {}
            # A page has buttons for what a console is asked.
            question = questions.question if allow_stdin and cell_id is None and not silent else None
            where = str(cell_id or "")
            execution = CellExecution(
                self.state, wire, questions.ask, cancel, name, where, asked, silent=silent, question=question
            )
            done = await execution.run(code)
        if done.bug is not None:
            self.log.error("a cell could not be run", exc_info=done.bug)
        if counted:
            self.history.add(HistoryEntry(number, encodable(str(code)), done.value))
        if done.failure is not None:
            return {"status": "error", "execution_count": number, **failure_fields(done.failure)}
        reply = done.reply or unanswered(asked)
        parts = {"payload": payload(reply, str(code)), "user_expressions": expressions(reply)}
        return {"status": "ok", "execution_count": number, **parts}

    async def sandbox_request(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        """Answer the side panel of the page, between cells; see ``side_panel``."""
        with self._running.cell() as cancel:
            content = await self.panel_desk.answer(parent.get("content"), cancel)
        if self.session is not None:
            self.session.send(stream, "sandbox_reply", content, parent, ident=ident)

    def publish(self, kind: str, content: Mapping[str, object], parent: Mapping[str, object]) -> None:
        """Send an iopub message for a parent; see ``kernel_door.KernelPublisher``."""
        if self.session is not None:
            self.session.send(self.iopub_socket, kind, dict(content), parent=dict(parent), ident=self._topic(kind))

    def report_view(self, document: Mapping[str, object]) -> Mapping[str, object]:
        """See ``kernel_door.KernelPublisher``."""
        from sandbox_kernel.notebook.page.widgets import report_widget, view

        self._enable_widgets()
        return view(report_widget(document, self._measure_again), "Capability report, to explore")

    def run_panel(self, timeout_s: float, stop: Callable[[], None]) -> RunPanel:
        """See ``kernel_door.KernelPublisher``."""
        from sandbox_kernel.notebook.page.widgets import RunPanel

        self._enable_widgets()
        return RunPanel(timeout_s, stop)

    def _measure_again(self, on_progress: Callable[[int, int], None]) -> Mapping[str, object]:
        return self.state.runner.box(self.state.defaults).report(again=True, on_progress=on_progress).to_dict()

    def _enable_widgets(self) -> None:
        """Register the comm target of ipywidgets, so that a page finds our widgets, also after a reload."""
        if not self._widgets_enabled:
            import ipywidgets

            ipywidgets.register_comm_target()
            self._widgets_enabled = True

    def _publish_execute_input(self, code: object, parent: Mapping[str, object], execution_count: int) -> None:
        from sandbox_kernel.untrusted.json_value import encodable

        # Messages are UTF-8: a lone surrogate would make sending this message fail, and with it the reply.
        super()._publish_execute_input(encodable(str(code)), parent, execution_count)

    # -- stopping ----------------------------------------------------------------------------------------------------

    async def interrupt_request(self, stream: Any, ident: Any, parent: dict[str, Any]) -> None:
        """Stop all running cells. Called on the control thread. The base class raises SIGINT; see ``interrupts``."""
        self._running.interrupt()
        if self.session is not None:
            self.session.send(stream, "interrupt_reply", {"status": "ok"}, parent, ident=ident)

    def pre_handler_hook(self) -> None:
        """Install no signal handler: that of the base class lets SIGINT end the event loop."""

    def post_handler_hook(self) -> None:
        """See ``pre_handler_hook``."""

    async def do_shutdown(self, restart: bool) -> dict[str, object]:
        """Stop all cells and close all sandboxes. Called on the control thread."""
        from sandbox_kernel.errors import SandboxError
        from sandbox_kernel.notebook.kept_files import before_shutdown

        self._running.interrupt()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._running.wait_idle, _SHUTDOWN_S)
        keep = partial(before_shutdown, self.state.runner, self._connection_file, restart=restart)
        with contextlib.suppress(SandboxError, OSError):  # a kernel that is asked to end ends
            await loop.run_in_executor(None, keep)
        await loop.run_in_executor(None, self.state.close)
        return {"status": "ok", "restart": restart}

    async def _progressively_terminate_all_children(self) -> None:
        """Do nothing. The base class signals every child process and waits for up to half a minute.

        Here ``do_shutdown`` and the pool end the child processes, and jails end when this process does.
        """

    # -- the debugger ------------------------------------------------------------------------------------------------

    async def do_debug_request(self, msg: object) -> dict[str, object]:
        """Answer a page's debugger. Called on the control thread, one request at a time."""
        if self._debugger is None:
            from sandbox_kernel.notebook.debugger import NotebookDebugger

            runner = self.state.runner
            self._debugger = NotebookDebugger(
                lambda on_event: runner.attach_debugger(self.state.defaults, on_event),
                lambda code: runner.program(code, self.state.defaults),
                lambda event: self.publish("debug_event", event, {}),
            )
        return await self._debugger.answer(msg)

    # -- editor requests ---------------------------------------------------------------------------------------------

    async def do_complete(self, code: str, cursor_pos: int) -> dict[str, object]:
        """Complete magics and options from the table, everything else by asking the cell's session if it is open."""
        from sandbox_kernel.notebook.editor.complete import complete_magic, complete_python, with_magics

        found = complete_magic(code, cursor_pos, self.state.known())
        if found is not None and "magic" not in found.kinds:
            return _completion_reply(found)
        known = await self._ask_session("complete", code, cursor_pos)
        if found is not None:
            return _completion_reply(with_magics(found, known or {}))
        if known is not None and "matches" in known:
            return {"status": "ok", "metadata": {}, **known}
        return _completion_reply(complete_python(code, cursor_pos))

    async def do_inspect(
        self, code: str, cursor_pos: int, detail_level: int = 0, omit_sections: object = ()
    ) -> dict[str, object]:
        """Explain magics and options from the table, everything else by asking the session, then Python's built-ins."""
        from sandbox_kernel.notebook.editor.explain import explain_builtin, explain_magic
        from sandbox_kernel.notebook.render import told_apart
        from sandbox_kernel.untrusted.sanitize import sanitize_docstring

        text = explain_magic(code, cursor_pos)
        if text is None:
            known = await self._ask_session("inspect", code, cursor_pos, detail_level)
            if known:
                # A docstring comes from the sandbox and is shown on the page, so it is cleaned like an output. Cleaning
                # runs in a thread, so that this loop stays free for other requests.
                clean = await asyncio.get_running_loop().run_in_executor(None, sanitize_docstring, known)
                return {"status": "ok", "found": True, "data": told_apart(clean.data), "metadata": {}}
            text = explain_builtin(code, cursor_pos)
        own = {} if text is None else {"text/plain": text}
        return {"status": "ok", "found": text is not None, "data": own, "metadata": {}}

    async def do_is_complete(self, code: str) -> dict[str, str]:
        """Tell a console whether to run the code or to wait for more lines."""
        from sandbox_kernel.notebook.editor.is_complete import completeness

        return completeness(code, self.state.defaults)

    async def do_history(
        self,
        hist_access_type: str,
        output: bool,
        raw: bool,
        session: int | None = None,
        start: int | None = None,
        stop: int | None = None,
        n: int | None = None,
        pattern: str | None = None,
        unique: bool = False,
    ) -> dict[str, object]:
        """Return cells that were run in this kernel."""
        match hist_access_type:
            case "tail":
                rows = self.history.tail(10 if n is None else n, output=output)
            case "range":
                rows = self.history.range(session or 0, start or 0, stop, output=output)
            case "search":
                rows = self.history.search(pattern or "*", n, unique=unique, output=output)
            case _:
                rows = []
        return {"status": "ok", "history": rows}

    async def _ask_session(self, what: str, code: str, position: int, detail: int = 0) -> Mapping[str, object] | None:
        """Ask the session in which this cell would run; None if there is none, or if it cannot answer."""
        from sandbox_kernel.errors import SandboxError
        from sandbox_kernel.notebook.editor.complete import program_of

        plan = program_of(code, self.state.defaults)
        try:
            session = self.state.runner.sessions.of_cell(plan) if plan is not None else None
            if plan is None or session is None:
                return None
            ask = session.complete if what == "complete" else partial(session.inspect, detail=detail)
            return await asyncio.get_running_loop().run_in_executor(None, ask, plan.code, position)
        except SandboxError as error:
            self.log.info("the session could not %s: %s", what, error)
            return None


def _completion_reply(found: Completion) -> dict[str, object]:
    kinds = [
        {"start": found.start, "end": found.end, "text": text, "type": kind}
        for text, kind in zip(found.matches, found.kinds, strict=True)
    ]
    return {
        "status": "ok",
        "matches": list(found.matches),
        "cursor_start": found.start,
        "cursor_end": found.end,
        "metadata": {"_jupyter_types_experimental": kinds} if kinds else {},
    }

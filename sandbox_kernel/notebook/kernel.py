"""The Sandbox kernel: a Jupyter kernel that never runs user code in its own process.

``protocol/`` reads requests and sends replies; this class has the answers. ``options`` parses a cell, ``sandboxes``
runs it in a sandbox, ``render`` makes its messages and ``page/kernel_door.py`` sends them.

The first sandbox begins in a thread as soon as a kernel is made, before the protocol is imported; everything else is
imported where it is used.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from sandbox_kernel.notebook.page.frames.frame_libraries import cells_gone
from sandbox_kernel.notebook.page.kept_output import KeptOutput
from sandbox_kernel.notebook.protocol.interrupts import RunningCells

if TYPE_CHECKING:
    from sandbox_kernel.notebook.editor.complete import Completion
    from sandbox_kernel.notebook.editor.history import History
    from sandbox_kernel.notebook.execution import NotebookState
    from sandbox_kernel.notebook.page.widgets import RunPanel
    from sandbox_kernel.notebook.protocol.channels import Channels
    from sandbox_kernel.notebook.protocol.debugger import NotebookDebugger
    from sandbox_kernel.notebook.protocol.request_loop import Request, RequestLoop
    from sandbox_kernel.notebook.side_panel.panel_answers import PanelDesk

#: How long a shutdown waits for running cells to end. After that the process exits, and its jails are killed with it.
_SHUTDOWN_S = 2.0

Content = Mapping[str, Any]


class SandboxKernel:
    """The kernel of one notebook. ``protocol/request_loop.py`` calls ``answer``, ``execute`` and ``comm_message``."""

    log = logging.getLogger("sandbox-kernel")
    _loop: RequestLoop
    _channels: Channels

    def __init__(self, connection_file: str = "") -> None:
        """``connection_file`` is a path; a restarted kernel has the same."""
        self._number = 0
        self._uncounted = 0
        self._running = RunningCells()
        self._stdin_lock = threading.Lock()
        self._state_lock = threading.Lock()
        self._widgets_enabled = False
        self._ports: Content = {}
        self._debugger: NotebookDebugger | None = None
        self._kept = KeptOutput()
        self._connection_file = connection_file
        # What a sandbox needs is imported first, on this thread: while its processes start, the protocol is imported.
        from sandbox_kernel.notebook.options.parse_options import first_defaults
        from sandbox_kernel.notebook.sandboxes import NotebookSandboxes
        from sandbox_kernel.notebook.sessions.kept_files import kept_work

        self._sandboxes, self._first_defaults = NotebookSandboxes(kept=kept_work(connection_file)), first_defaults()
        threading.Thread(target=self._warm_up, name="sandbox-warm-up", daemon=True).start()

    def connect(self, loop: RequestLoop, channels: Channels, log: logging.Logger, ports: Content) -> None:
        """Be told, before the first request, through what messages are sent."""
        from sandbox_kernel.notebook.protocol.page_comms import use_comms

        self._loop, self._channels, self.log, self._ports = loop, channels, log, ports
        use_comms(self._publish_comm)
        threading.Thread(target=self._import_rest, name="sandbox-imports", daemon=True).start()

    @property
    def state(self) -> NotebookState:
        """Defaults, sandboxes and variables of this notebook; the first to ask, on whatever thread, makes it."""
        with self._state_lock:
            return self._made_state

    @cached_property
    def _made_state(self) -> NotebookState:
        from sandbox_kernel.notebook.execution import NotebookState

        state = NotebookState(sandboxes=self._sandboxes, defaults=self._first_defaults)
        state.comms.register(self.comm_manager)
        return state

    @cached_property
    def panel_desk(self) -> PanelDesk:
        """What answers the side panel of the page."""
        from sandbox_kernel.notebook.side_panel.panel_answers import PanelDesk

        return PanelDesk(self.state)

    @cached_property
    def comm_manager(self) -> Any:
        """The comms that are open, and the targets that a page may open."""
        import comm

        manager = comm.get_comm_manager()
        self._kept.register(manager)
        return manager

    @cached_property
    def history(self) -> History:
        """The cells that were run in this kernel."""
        from sandbox_kernel.notebook.editor.history import History

        return History()

    def _warm_up(self) -> None:
        """Open a first sandbox, so that the first cell does not wait for it."""
        from sandbox_kernel.errors import SandboxError

        try:
            self._sandboxes.warm(self._first_defaults)
        except SandboxError as error:
            self.log.warning("no sandbox could be made ready: %s", error)  # the first cell shows the same error

    def _import_rest(self) -> None:
        """Import what the first cell needs, while its sandbox starts."""
        import sandbox_kernel.notebook.page.late_wire
        import sandbox_kernel.notebook.page.reply_parts
        import sandbox_kernel.notebook.page.stdin_channel  # noqa: F401

        _ = self.state, self.history

    # -- requests ----------------------------------------------------------------------------------------------------

    async def answer(self, kind: str, content: Content) -> Content | None:
        """See ``request_loop.Answers``."""
        find = self._answers.get(kind)
        return None if find is None else await find(content)

    @cached_property
    def _answers(self) -> Mapping[str, Callable[[Content], Awaitable[Content]]]:
        """What answers each type of request; a method gets the content and returns that of the reply."""
        return {
            "kernel_info_request": self._kernel_info,
            "connect_request": self._connect,
            "comm_info_request": self._comm_info,
            "interrupt_request": self._interrupt,
            "usage_request": self._usage,
            "debug_request": self.do_debug_request,
            "sandbox_request": self._side_panel,
            "shutdown_request": lambda content: self.do_shutdown(bool(content.get("restart"))),
            "is_complete_request": lambda content: self.do_is_complete(content["code"]),
            "history_request": lambda content: self.do_history(**content),
            "complete_request": lambda content: self.do_complete(content["code"], content["cursor_pos"]),
            "inspect_request": lambda content: self.do_inspect(
                content["code"], content["cursor_pos"], content.get("detail_level", 0)
            ),
        }

    @property
    def kernel_info(self) -> dict[str, Any]:
        """What the kernel is and can do. debugpy is not imported here, where nothing is debugged."""
        from sandbox_kernel.notebook.protocol.kernel_facts import KERNEL_INFO

        debugger = find_spec("debugpy") is not None
        features = ["kernel subshells", "debugger"] if debugger else ["kernel subshells"]
        return {**KERNEL_INFO, "supported_features": features, "debugger": debugger}

    async def _kernel_info(self, content: Content) -> Content:
        return {"status": "ok", **self.kernel_info}

    async def _connect(self, content: Content) -> Content:
        return {"status": "ok", **self._ports}

    async def _comm_info(self, content: Content) -> Content:
        wanted = content.get("target_name")
        comms = list(self.comm_manager.comms.items())
        found = {name: {"target_name": one.target_name} for name, one in comms if wanted in (None, one.target_name)}
        return {"status": "ok", "comms": found}

    async def _usage(self, content: Content) -> Content:
        return await asyncio.get_running_loop().run_in_executor(None, self._usage_meter.reply)

    @cached_property
    def _usage_meter(self) -> Any:
        from sandbox_kernel.notebook.protocol.usage import UsageMeter

        return UsageMeter()

    def comm_message(self, kind: str, message: Content) -> None:
        """See ``request_loop.Answers``."""
        getattr(self.comm_manager, kind)(None, None, message)

    def is_quiet(self, comm_id: object) -> bool:
        """See ``request_loop.Answers``: widgets in frames get an answer of their own when a callback has run."""
        from sandbox_kernel.notebook.page.frames.gated_pages import TARGET

        found = self.comm_manager.comms.get(comm_id)
        return found is not None and found.target_name == TARGET

    def _publish_comm(self, kind: str, content: Content, metadata: Any, buffers: Any, topic: Any) -> None:
        from sandbox_kernel.notebook.protocol.request_loop import PRESENT

        request = PRESENT.get() or self._loop.last
        parent = request.message if request is not None else None
        topic = topic.encode() if isinstance(topic, str) else topic
        self._loop.publish(kind, content, parent, metadata=metadata, buffers=buffers, topic=topic)

    @property
    def execution_count(self) -> int:
        """The number of the next cell."""
        return self._number + 1

    # -- running cells -----------------------------------------------------------------------------------------------

    async def execute(self, request: Request) -> Content:
        """Run a cell and return the content of the reply; one at a time on each (sub)shell."""
        from sandbox_kernel.notebook.editor.explain import is_question
        from sandbox_kernel.notebook.editor.history import HistoryEntry
        from sandbox_kernel.notebook.execution import CellExecution
        from sandbox_kernel.notebook.options.option_table import usage
        from sandbox_kernel.notebook.page.kernel_door import Wire, failure_fields
        from sandbox_kernel.notebook.page.reply_parts import expressions, payload
        from sandbox_kernel.notebook.page.stdin_channel import NotebookPrompts, StdinChannel
        from sandbox_kernel.session.cell.front_end import unanswered
        from sandbox_kernel.untrusted.json_value import encodable

        asked = request.content
        code, silent, allow_stdin = asked["code"], bool(asked.get("silent")), bool(asked.get("allow_stdin"))
        cell_id = request.message["metadata"].get("cellId")
        self.state.libraries.gone(cells_gone(request.message["metadata"]))
        number = self.execution_count
        if not silent:
            # Messages are UTF-8: a lone surrogate would make sending this message fail, and with it the reply.
            echo = {"code": encodable(str(code)), "execution_count": number}
            self._loop.publish("execute_input", echo, request.message)
        counted = bool(asked.get("store_history", True)) and not silent
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
        if self._debugger is not None:
            await self._debugger.before_cell()
        # Notebook pages send a cell id and accept input requests; nbval, papermill and nbclient do neither.
        wire = Wire(self, request.message, number, silent=silent, watched=allow_stdin and cell_id is not None)
        if wire.watched():
            self._kept.begin(request.message, str(cell_id), encodable(str(code)), number)
        with self._running.cell() as cancel:
            channels = self._channels
            channel = StdinChannel(channels, channels.stdin, request.message, request.idents)
            questions = NotebookPrompts(channel, self._stdin_lock, cancel, allow_stdin)
            expressed = asked.get("user_expressions") or {}
            question = questions.question if allow_stdin and not silent else None
            where = str(cell_id or "")
            execution = CellExecution(
                self.state, wire, questions.ask, cancel, name, where, expressed, silent=silent, question=question
            )
            done = await execution.run(code)
        self._kept.end(request.message)
        if done.bug is not None:
            self.log.error("a cell could not be run", exc_info=done.bug)
        if counted:
            self.history.add(HistoryEntry(number, encodable(str(code)), done.value))
        if done.failure is not None:
            fields = failure_fields(done.failure)
            return {"status": "error", "execution_count": number, **fields, "payload": [], "user_expressions": {}}
        reply = done.reply or unanswered(expressed)
        parts = {"payload": payload(reply, str(code)), "user_expressions": expressions(reply)}
        return {"status": "ok", "execution_count": number, **parts}

    async def _side_panel(self, content: Content) -> Content:
        """Answer the side panel of the page, between cells; see ``side_panel``."""
        with self._running.cell() as cancel:
            return await self.panel_desk.answer(content, cancel)

    def publish(self, kind: str, content: Mapping[str, object], parent: Mapping[str, object]) -> None:
        """Send an iopub message for a parent; see ``kernel_door.KernelPublisher``."""
        self._kept.send(kind, content, parent, partial(self._loop.publish, kind, content, parent))

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
        return self.state.sandboxes.box(self.state.defaults).report(again=True, on_progress=on_progress).to_dict()

    def _enable_widgets(self) -> None:
        """Register the comm target of ipywidgets, so that a page finds our widgets, also after a reload."""
        if not self._widgets_enabled:
            import ipywidgets

            ipywidgets.register_comm_target()
            self._widgets_enabled = True

    # -- stopping ----------------------------------------------------------------------------------------------------

    async def _interrupt(self, content: Content) -> Content:
        """Stop all running cells."""
        self._running.interrupt()
        return {"status": "ok"}

    def save_at_the_end(self) -> None:
        """Save the sessions for the last time, if autosave is on: the server is gone. Takes a few seconds at most."""
        if "_made_state" in vars(self):
            self.state.autosave.finish()

    async def do_shutdown(self, restart: bool) -> dict[str, object]:
        """Stop all cells and close all sandboxes."""
        from sandbox_kernel.errors import SandboxError
        from sandbox_kernel.notebook.sessions.kept_files import before_shutdown

        self._running.interrupt()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._running.wait_idle, _SHUTDOWN_S)
        keep = partial(before_shutdown, self.state.sandboxes, self._connection_file, restart=restart)
        with contextlib.suppress(SandboxError, OSError):  # a kernel that is asked to end ends
            await loop.run_in_executor(None, keep)
        await loop.run_in_executor(None, self.state.close)
        return {"status": "ok", "restart": restart}

    # -- the debugger ------------------------------------------------------------------------------------------------

    async def do_debug_request(self, msg: object) -> dict[str, object]:
        """Answer a page's debugger. The control channel has one request at a time."""
        if self._debugger is None:
            from sandbox_kernel.notebook.protocol.debugger import NotebookDebugger

            sandboxes = self.state.sandboxes
            self._debugger = NotebookDebugger(
                lambda on_event: sandboxes.attach_debugger(self.state.defaults, on_event),
                lambda code: sandboxes.program(code, self.state.defaults),
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
            session = self.state.sandboxes.sessions.of_cell(plan) if plan is not None else None
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

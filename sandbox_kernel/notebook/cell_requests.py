"""The kernel's answers to requests about cells: runs them, completes, explains, debugs, and serves the side panel.

It keeps what the last cells have shown, for a page that was closed or loaded anew while a cell ran: JupyterLab gives
output only to the page that has run the cell. Our extension asks here for it, over a comm.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.notebook.editor import (
    Completion,
    History,
    complete_magic,
    completeness,
    explain_magic,
    is_question,
    program_of,
    with_magics,
)
from sandbox_kernel.notebook.execution import CellExecution, NotebookState
from sandbox_kernel.notebook.frames.frame_libraries import cells_gone
from sandbox_kernel.notebook.options.option_table import usage
from sandbox_kernel.notebook.page.kernel_door import KernelDoor, NotebookPrompts, StdinChannel, failure_fields
from sandbox_kernel.notebook.render import expressions, payload, told_apart
from sandbox_kernel.session.cell.front_end import unanswered
from sandbox_kernel.untrusted.json_value import size_of
from sandbox_kernel.untrusted.sanitize import sanitize_docstring
from sandbox_kernel.util.values import dataclass
from sandbox_kernel.util.wire import encodable

if TYPE_CHECKING:
    from sandbox_kernel.notebook.kernel import SandboxKernel
    from sandbox_kernel.notebook.protocol.debugger import NotebookDebugger
    from sandbox_kernel.notebook.protocol.request_loop import Request
    from sandbox_kernel.notebook.side_panel import PanelDesk

#: How many cells are remembered with the number under which they ran.
_MOST_CELLS = 5000

Content = Mapping[str, Any]


class CellRequests:
    """The cells of one kernel."""

    def __init__(self, kernel: SandboxKernel) -> None:
        self._kernel = kernel
        self._execution_count = 0
        self._uncounted = 0
        #: The id of the notebook's cell that ran under each number.
        self._ran: dict[int, str] = {}
        self._stdin_lock = threading.Lock()
        self._widgets_enabled = False
        self._debugger: NotebookDebugger | None = None
        self._kept = KeptOutput(kernel.loop.publish)
        #: Sends an iopub message for a parent.
        self.publish = self._kept.send
        self.history = History()
        self.state = NotebookState(sandboxes=kernel.sandboxes, defaults=kernel.first_defaults)
        self.state.comms.register(kernel.comm_manager)
        kernel.comm_manager.register_target(OUTPUT_TARGET, self._kept.asked)

    async def execute(self, request: Request) -> Content:
        """Run a cell and return the content of the reply; one at a time on each (sub)shell."""
        asked, metadata = request.content, request.message["metadata"]
        code, silent, allow_stdin = asked["code"], bool(asked.get("silent")), bool(asked.get("allow_stdin"))
        text, cell_id = encodable(str(code)), metadata.get("cellId")
        self.state.libraries.gone(cells_gone(metadata))
        number = self._execution_count + 1
        if not silent:
            # Messages are UTF-8: a lone surrogate would make sending this message fail, and with it the reply.
            self._kernel.loop.publish("execute_input", {"code": text, "execution_count": number}, request.message)
        counted = bool(asked.get("store_history", True)) and not silent
        # nbval runs all cells without history, so that all have the same number; a cell is named by its own.
        name = number + self._uncounted
        if counted:
            self._execution_count, name = number, number
            if isinstance(cell_id, str) and 0 < len(cell_id) <= 64:
                self._ran[number] = cell_id
                if len(self._ran) > _MOST_CELLS:
                    del self._ran[next(iter(self._ran))]
        elif not silent:
            self._uncounted += 1
        if is_question(code):
            page = {"source": "page", "start": 0, "data": {"text/plain": usage()}}
            return {"status": "ok", "execution_count": number, "payload": [page], "user_expressions": {}}
        if self._debugger is not None:
            await self._debugger.before_cell()
        # Notebook pages send a cell id and accept input requests; nbval, papermill and nbclient do neither.
        seen_as = str(cell_id) if allow_stdin and cell_id is not None else None
        door = KernelDoor(self, request.message, number, silent=silent, page=seen_as)
        if door.watched():
            self._kept.begin(request.message, str(cell_id), text, number)
        expressed = asked.get("user_expressions") or {}
        with self._kernel.running.cell() as cancel:
            channel = StdinChannel(self._kernel.channels, request.message, request.idents)
            prompts = NotebookPrompts(channel, self._stdin_lock, cancel, allow_stdin)
            question = prompts.question if allow_stdin and not silent else None
            done = await CellExecution(
                self.state, door, prompts.ask, cancel, name, str(cell_id or ""), expressed,
                silent=silent, question=question,
            ).run(code)  # fmt: skip
        self._kept.end(request.message)
        if done.bug is not None:
            self._kernel.log.error("a cell could not be run", exc_info=done.bug)
        if counted:
            self.history.add(number, text, done.value)
        if done.failure is not None:
            fields = failure_fields(done.failure)
            return {"status": "error", "execution_count": number, **fields, "payload": [], "user_expressions": {}}
        reply = done.reply or unanswered(expressed)
        parts = {"payload": payload(reply, str(code)), "user_expressions": expressions(reply)}
        return {"status": "ok", "execution_count": number, **parts}

    # -- what the ``KernelDoor`` of a cell needs ---------------------------------------------------------------------

    def enable_widgets(self) -> None:
        """Register the comm target of ipywidgets, so that a page finds our widgets, also after a reload."""
        if not self._widgets_enabled:
            import ipywidgets

            ipywidgets.register_comm_target()
            self._widgets_enabled = True

    # -- the side panel and the debugger -----------------------------------------------------------------------------

    async def side_panel(self, content: Content) -> Content:
        """Answer the side panel of the page, between cells."""
        with self._kernel.running.cell() as cancel:
            return await self._panel_desk.answer(content, cancel)

    @cached_property
    def _panel_desk(self) -> PanelDesk:
        from sandbox_kernel.notebook.side_panel import PanelDesk  # few notebooks have the panel open

        return PanelDesk(self.state, self._ran)

    async def debug(self, content: object) -> dict[str, object]:
        """Answer a page's debugger. The control channel has one request at a time."""
        if self._debugger is None:
            from sandbox_kernel.notebook.protocol.debugger import NotebookDebugger  # few notebooks are debugged

            sandboxes = self.state.sandboxes
            self._debugger = NotebookDebugger(
                lambda on_event: sandboxes.attach_debugger(self.state.defaults, on_event),
                lambda code: sandboxes.program(code, self.state.defaults),
                lambda event: self.publish("debug_event", event, {}),
            )
        return await self._debugger.answer(content)

    # -- editor requests ---------------------------------------------------------------------------------------------

    async def complete(self, code: str, cursor_pos: int) -> dict[str, object]:
        """Complete magics and options from the table, everything else by asking the cell's session if it is open."""
        found = complete_magic(code, cursor_pos, self.state.known())
        if found is None or found.is_magic:
            known = await self._ask_session("complete", code, cursor_pos)
            if found is None and known is not None and "matches" in known:
                return {"status": "ok", "metadata": {}, **known}
            found = with_magics(found, known or {}) if found else Completion((), cursor_pos, cursor_pos)
        place = {"cursor_start": found.start, "cursor_end": found.end}
        return {"status": "ok", "matches": list(found.matches), **place, "metadata": {}}

    async def inspect(self, code: str, cursor_pos: int, detail_level: int = 0) -> dict[str, object]:
        """Explain magics and options from the table, everything else by asking the session."""
        text = explain_magic(code, cursor_pos)
        data: Mapping[str, object] = {} if text is None else {"text/plain": text}
        if text is None and (known := await self._ask_session("inspect", code, cursor_pos, detail_level)):
            # It comes from the sandbox and is shown on the page. This loop stays free for other requests.
            clean = await asyncio.get_running_loop().run_in_executor(None, sanitize_docstring, known)
            data = told_apart(clean.data)
        return {"status": "ok", "found": bool(data), "data": data, "metadata": {}}

    async def is_complete(self, code: str) -> Mapping[str, object]:
        """Tell a console whether to run the code or to wait for more lines; without a session that is not known."""
        known = completeness(code, self.state.defaults)
        if known is not None:
            return {"status": known, "indent": ""} if known == "incomplete" else {"status": known}
        # A console that has just begun waits for the session that is being opened.
        sessions, defaults = self.state.sandboxes.sessions, self.state.defaults
        with contextlib.suppress(SandboxError):  # there can be none: not known either
            await asyncio.get_running_loop().run_in_executor(None, sessions.prepare, defaults)
        return await self._ask_session("is_complete", code) or {"status": "unknown"}

    async def _ask_session(self, what: str, code: str, *more: int) -> Mapping[str, object] | None:
        """Ask the session in which this cell would run; None if there is none, or if it cannot answer."""
        plan = program_of(code, self.state.defaults)
        try:
            session = self.state.sandboxes.sessions.choice(plan).session if plan is not None else None
            if plan is None or session is None:
                return None
            ask: Callable[..., Mapping[str, object]] = getattr(session, what)
            return await asyncio.get_running_loop().run_in_executor(None, ask, plan.code, *more)
        except SandboxError as error:
            self._kernel.log.info("the session could not %s: %s", what, error)
            return None


OUTPUT_TARGET = "sandbox-kernel.output"
#: How many cells are kept, and how much output of one, in characters.
MAX_CELLS, MAX_CHARACTERS = 8, 4 << 20
#: What a message counts besides.
_MESSAGE = 100
_KINDS = frozenset(["stream", "display_data", "update_display_data", "execute_result", "error", "clear_output"])


@dataclass
class _Shown:
    """What one cell has shown: the messages of its request. Of a stream, the texts of several are one."""

    cell: str
    code: str
    client: str
    count: int
    running: bool = True
    cut: bool = False
    size: int = 0
    messages: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def add(self, kind: str, content: Mapping[str, object]) -> None:
        """Add a message; text is added to that of the message before it, and what was cleared is forgotten."""
        if kind == "clear_output" and not content.get("wait"):
            self.messages, self.size = [], 0
            return
        self.size += _MESSAGE + size_of(content)
        if self.size > MAX_CHARACTERS:
            self.cut = True
            return
        if kind != "stream":
            self.messages.append((kind, dict(content)))
            return
        last = self.messages[-1] if self.messages else None
        if last is None or last[0] != kind or last[1]["name"] != content["name"]:
            last = (kind, {"name": content["name"], "text": []})
            self.messages.append(last)
        last[1]["text"].append(str(content["text"]))


class KeptOutput:
    """The output of the last cells by their requests. Thread-safe; messages are kept in the order they are sent in."""

    def __init__(self, publish: Callable[[str, Mapping[str, object], Mapping[str, Any]], object]) -> None:
        self._publish = publish
        self._lock = threading.Lock()
        self._shown: OrderedDict[str, _Shown] = OrderedDict()

    def begin(self, parent: Mapping[str, Any], cell: str, code: str, count: int) -> None:
        """A cell begins. ``code`` is told too: in a notebook without ids of cells, each page makes up its own."""
        header = parent.get("header", {})
        with self._lock:
            self._shown[str(header.get("msg_id"))] = _Shown(cell, code, str(header.get("session")), count)
            while len(self._shown) > MAX_CELLS:
                self._shown.popitem(last=False)

    def end(self, parent: Mapping[str, Any]) -> None:
        """A cell has ended."""
        with self._lock:
            if (shown := self._shown.get(str(parent["header"]["msg_id"]))) is not None:
                shown.running = False

    def send(self, kind: str, content: Mapping[str, object], parent: Mapping[str, Any]) -> None:
        """Keep a message for a parent and send it; some have no parent."""
        with self._lock:
            shown = self._shown.get(str((parent.get("header") or {}).get("msg_id")))
            if shown is not None and kind in _KINDS and not shown.cut:
                shown.add(kind, content)
            self._publish(kind, content, parent)

    def asked(self, comm: Any, _message: object) -> None:
        """Tell a page what cells have shown. What comes later reaches it after this message."""
        told: list[dict[str, object]] = []
        with self._lock:
            for request, shown in self._shown.items():
                messages = [
                    {"kind": kind, "content": {**said, "text": "".join(said["text"])} if kind == "stream" else said}
                    for kind, said in shown.messages
                ]
                own = {name: getattr(shown, name) for name in ("cell", "code", "client", "count", "running", "cut")}
                told.append({"request": request, **own, "messages": messages})
            comm.send({"shown": told})

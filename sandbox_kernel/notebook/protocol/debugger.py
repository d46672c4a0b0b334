"""JupyterLab's debugger: takes the debug requests of a page and asks the debugger inside the notebook's Python session.

After a rollback it is attached to the restored session before the next cell, with the breakpoints. Values are cleaned.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping

from sandbox_kernel.errors import InvalidRequest, SandboxError
from sandbox_kernel.session import debug_link

#: How long a request waits for the session. Other requests of the page, an interrupt too, wait behind it.
REPLY_S = 10.0
#: How many sources with breakpoints are kept, and the longest path of one.
_MAX_SOURCES = 1000
_MAX_PATH = 4096
#: Requests whose arguments are sent again to a session that was rolled back, in this order.
_SETUP = ("initialize", "attach", "setExceptionBreakpoints", "setFunctionBreakpoints")

Attach = Callable[[debug_link.OnEvent], debug_link.DebugLink]


class NotebookDebugger:
    """The debugger of one notebook. ``attach`` starts it in the session; ``program`` returns what a cell runs."""

    def __init__(
        self, attach: Attach, program: Callable[[str], str], publish: Callable[[Mapping[str, object]], None]
    ) -> None:
        self._attach, self._program, self._publish = attach, program, publish
        self._link: debug_link.DebugLink | None = None
        self._setup: dict[str, Mapping[str, object]] = {}
        self._breakpoints: dict[str, Mapping[str, object]] = {}
        self._cells: dict[str, str] = {}
        self._stopped: set[int] = set()
        self._events = 0
        self._lock = threading.Lock()
        self.started = False

    async def answer(self, content: object) -> dict[str, object]:
        """Return the reply to a ``debug_request``; never raises for what a page or a session sent."""
        try:
            request = debug_link.read_request(content)
        except InvalidRequest as error:
            return {"type": "response", "request_seq": 0, "command": "", "success": False, "message": str(error)}
        if request.command == "debugInfo":
            return request.reply(success=True, body=self._info())
        if request.command not in debug_link.COMMANDS:
            return request.reply(success=False, message=f"there is no debug request {request.command!r:.60}")
        loop = asyncio.get_running_loop()
        try:
            if request.command == "initialize" and not self.started:
                self._link = await loop.run_in_executor(None, self._attach, self._on_event)
                self.started = True
            if not self.started:
                return request.reply(success=False, message="the debugger is not started: send initialize first")
            return await loop.run_in_executor(None, self._ask, request)
        except SandboxError as error:
            return request.reply(success=False, message=str(error))

    async def before_cell(self) -> None:
        """Attach again when the session was rolled back or replaced since; costs nothing otherwise."""
        if self.started and (self._link is None or not self._link.alive):
            await asyncio.get_running_loop().run_in_executor(None, self._again)

    def _again(self) -> None:
        """Attach to the session as it is now, with all breakpoints; without success the next cell tries again."""
        with self._lock:
            self._went_on()
            try:
                link = self._attach(self._on_event)
                for command in _SETUP:
                    if command in self._setup:
                        link.request(command, self._setup[command], REPLY_S)
                for path, arguments in self._breakpoints.items():
                    if code := self._cells.get(path):
                        link.request("dumpCell", {"code": code, "program": self._program(code)}, REPLY_S)
                    link.request("setBreakpoints", arguments, REPLY_S)
                self._link = link
            except SandboxError:
                return

    def _ask(self, request: debug_link.DebugRequest) -> dict[str, object]:
        command, arguments = request.command, request.arguments or {}
        if command == "dumpCell":
            code = str(arguments.get("code", ""))
            arguments = {"code": code, "program": self._program(code)}
        if self._link is None or not self._link.alive:
            self._again()
        try:
            assert self._link is not None
            reply = self._link.request(command, arguments, REPLY_S)
        except debug_link.DebuggerGone:
            if command != "disconnect":
                raise
            reply = debug_link.DebugReply(0, True, {}, "")
        if reply.success:
            self._note(command, arguments, reply, str(arguments.get("code", "")))
        if command == "disconnect":
            self._went_on()
            if self._link is not None:
                self._link.close()
            self._link, self.started = None, False
            self._breakpoints, self._cells, self._setup = {}, {}, {}
        body = _clean_value(reply.body) if command == "richInspectVariables" else reply.body
        return request.reply(success=reply.success, body=body, message=reply.message)

    def _note(self, command: str, arguments: Mapping[str, object], reply: debug_link.DebugReply, code: str) -> None:
        """Keep what a session that was rolled back must be told again."""
        if command in _SETUP:
            self._setup[command] = arguments
        path = reply.body.get("sourcePath")
        if command == "dumpCell" and isinstance(path, str) and len(path) <= _MAX_PATH:
            self._cells[path] = code
            while len(self._cells) > _MAX_SOURCES:
                del self._cells[next(iter(self._cells))]
        source = arguments.get("source")
        if command == "setBreakpoints" and isinstance(source, Mapping) and isinstance(source.get("path"), str):
            given, found = (
                [one for one in lines if isinstance(one, Mapping)] if isinstance(lines, list) else []
                for lines in (arguments.get("breakpoints"), reply.body.get("breakpoints"))
            )
            # The debugger may have moved them to lines that hold code.
            moved = [
                {**asked, "line": one["line"]} if isinstance(one.get("line"), int) else dict(asked)
                for asked, one in zip(given, found, strict=False)
            ]
            self._breakpoints[source["path"]] = {**arguments, "breakpoints": moved}
            if not moved or len(self._breakpoints) > _MAX_SOURCES:
                del self._breakpoints[source["path"]]

    def _info(self) -> dict[str, object]:
        """The answer to ``debugInfo``: how a page names cells, and what is set. Asked before anything is started."""
        return {
            "isStarted": self.started,
            "hashMethod": "Murmur2",
            "hashSeed": debug_link.HASH_SEED,
            "tmpFilePrefix": debug_link.CELL_FOLDER,
            "tmpFileSuffix": debug_link.CELL_SUFFIX,
            "breakpoints": [
                {"source": path, "breakpoints": asked["breakpoints"]} for path, asked in self._breakpoints.items()
            ],
            "stoppedThreads": sorted(self._stopped),
            "richRendering": True,
            "exceptionPaths": ["Python Exceptions"],
            "copyToGlobals": True,
        }

    def _on_event(self, event: debug_link.DebugEvent) -> None:
        if event.name == "stopped":
            self._stopped = set((*event.stopped, *self._stopped)[: debug_link.MAX_THREADS])
        elif event.name == "continued":
            self._stopped.clear()
        self._send(event.name, event.body)

    def _send(self, name: str, body: Mapping[str, object]) -> None:
        self._events += 1
        self._publish({"type": "event", "seq": self._events, "event": name, "body": dict(body)})

    def _went_on(self) -> None:
        """The session that stood was ended: a page must not wait at its breakpoint."""
        if self._stopped:
            thread = min(self._stopped)
            self._stopped.clear()
            self._send("continued", {"threadId": thread, "allThreadsContinued": True})


def _clean_value(body: Mapping[str, object]) -> dict[str, object]:
    from sandbox_kernel.notebook.render import told_apart
    from sandbox_kernel.untrusted.sanitize import sanitize_bundle

    found = sanitize_bundle(body.get("data"), body.get("metadata"))
    return {"data": told_apart(found.data), "metadata": dict(found.metadata)}

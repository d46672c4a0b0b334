"""Reads requests, lets the kernel answer them in their order, and sends replies and status messages.

Requests of the shell, of each subshell and of the control channel wait in a *lane* each, and lanes do not wait for each
other: cells run in threads of their sessions, so one loop serves all (docs/decisions/notebook.md has the measurement).
"""

from __future__ import annotations

import asyncio
import contextvars
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from jupyter_client.session import utcnow

from sandbox_kernel.notebook.protocol.channels import Channels, Frames
from sandbox_kernel.util.values import dataclass

if TYPE_CHECKING:
    from sandbox_kernel.notebook.kernel import SandboxKernel

Json = Mapping[str, Any]
_COMMS = ("comm_open", "comm_msg", "comm_close")
#: Requests that a page sends when it connects; they need no session, and do not wait for a running cell.
_GREETINGS = ("kernel_info_request", "connect_request", "comm_info_request")
#: Requests that end what runs: they wait for nothing that a panel or a debugger has asked on their channel.
_ENDS = ("interrupt_request", "shutdown_request")
#: Questions about code, which are not asked any more when a cell, or Stop, has come after them.
_QUESTIONS = ("complete_request", "inspect_request", "is_complete_request")
#: Requests that only the control channel takes.
_SUBSHELLS = ("create_subshell_request", "delete_subshell_request", "list_subshell_request")
_CONTROL = ("debug_request", *_SUBSHELLS)


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request of a client, checked for its signature: its type, its content, and the whole message."""

    socket: Any
    idents: list[bytes]
    message: Json
    kind: str
    content: Json


#: The request that the running code belongs to.
PRESENT: contextvars.ContextVar[Request | None] = contextvars.ContextVar("present_request", default=None)


class Lane:
    """Requests that are handled one after the other."""

    def __init__(self, handle: Callable[[Request, Lane, bool], Awaitable[None]]) -> None:
        self._handle = handle
        self.waiting: deque[Request] = deque()
        #: How many of those that wait are not to run, if they are cells, and not to be asked, if they are questions.
        self.to_abort = self.outdated = 0
        self._work: asyncio.Future[None] | None = None
        #: Whether a cell runs, and the request that is being handled.
        self.in_cell = False
        self.present: Request | None = None

    def put(self, request: Request) -> None:
        """Handle a request after those that wait."""
        if request.kind == "execute_request":
            self.outdated = len(self.waiting)
        self.waiting.append(request)
        if self._work is None:
            self._work = asyncio.ensure_future(self._handle_all())

    async def _handle_all(self) -> None:
        try:
            while self.waiting:
                self.present = self.waiting.popleft()
                kind = self.present.kind
                abort = (kind == "execute_request" and self.to_abort > 0) or (kind in _QUESTIONS and self.outdated > 0)
                self.to_abort, self.outdated = max(0, self.to_abort - 1), max(0, self.outdated - 1)
                await self._handle(self.present, self, abort)
        finally:
            self._work = self.present = None


class RequestLoop:
    """Serves one kernel over its channels; ``run`` returns after a shutdown request."""

    def __init__(self, channels: Channels, kernel: SandboxKernel) -> None:
        self._channels = channels
        self._kernel = kernel
        self._ended = asyncio.Event()
        self._topic = f"kernel.{uuid.uuid4()}"
        #: The last request of the shell: what threads send belongs to it.
        self.last: Request | None = None
        self._answers: set[asyncio.Future[None]] = set()
        self._control = Lane(self._serve)
        #: A program that is debugged may let each request wait; the panel does not wait for those.
        self._debugging = Lane(lambda request, _, abort: self._serve(request, self._control, abort))
        self._lanes: dict[str | None, Lane] = {None: Lane(self._serve)}

    @property
    def present(self) -> Request | None:
        """The request that the running code belongs to; for a thread, the last request of the shell."""
        return PRESENT.get() or self.last

    async def run(self) -> None:
        """Serve until a client has asked for the end."""
        channels = self._channels
        channels.listen(channels.iopub, lambda _, frames: channels.welcome(frames))
        channels.listen(channels.control, self._take)
        channels.listen(channels.shell, self._take)
        await self._ended.wait()

    def publish(self, kind: str, content: Json, parent: Json | None, **more: Any) -> None:
        """Send a message to all clients; may be called on any thread."""
        topic = more.pop("topic", None) or f"{self._topic}.{kind}".encode()
        self._channels.send(self._channels.iopub, kind, content, parent, topic, **more)

    def reply(self, request: Request, content: Json, *, metadata: Json | None = None) -> None:
        """Answer a request."""
        kind = request.kind.rsplit("_", 1)[0] + "_reply"
        self._channels.send(request.socket, kind, content, request.message, request.idents, metadata=metadata)

    def _take(self, socket: Any, frames: Frames) -> None:
        session = self._channels.session
        try:
            idents, rest = session.feed_identities(frames)
            message = session.deserialize(rest)
            kind, content = str(message["header"]["msg_type"]), message["content"]
        except Exception:
            self._kernel.log.exception("a message that is none, or has a wrong signature, was dropped")
            return
        request = Request(socket=socket, idents=idents, message=message, kind=kind, content=content)
        if socket is self._channels.control:
            if kind in _ENDS:
                for each in self._lanes.values():
                    each.outdated = len(each.waiting)
                self._at_once(self._serve(request, self._control, abort=False))
            else:
                (self._debugging if kind == "debug_request" else self._control).put(request)
            return
        name = request.message["header"].get("subshell_id")
        lane = self._lanes.get(name)
        if lane is None:
            self._status("busy", request)
            error = {"ename": "UnknownSubshellError", "evalue": f"Unknown subshell_id {name!r}", "traceback": []}
            self.reply(request, {"status": "error", **error}, metadata={"started": utcnow(), "status": "error"})
            self._status("idle", request)
        elif request.kind in _COMMS and lane.in_cell:
            # The cell may wait for it; the shell's status is the cell's.
            contextvars.copy_context().run(self._comm, request)
        elif request.kind in _GREETINGS and lane.in_cell:
            self._at_once(self._serve(request, self._control, abort=False))
        else:
            lane.put(request)

    def _at_once(self, answer: Coroutine[Any, Any, None]) -> None:
        work = asyncio.ensure_future(answer)
        self._answers.add(work)
        work.add_done_callback(self._answers.discard)

    def _status(self, state: str, request: Request) -> None:
        self.publish("status", {"execution_state": state}, request.message)

    async def _serve(self, request: Request, lane: Lane, abort: bool) -> None:
        PRESENT.set(request)
        if lane is not self._control:
            self.last = request
        if request.kind == "comm_msg" and self._kernel.is_quiet(request.content.get("comm_id")):
            self._comm(request)
            return
        self._status("busy", request)
        try:
            await self._handle(request, lane, abort)
        except Exception:
            self._kernel.log.exception("a %s could not be answered", request.kind)
        self._status("idle", request)
        if lane is self._control and request.kind in ("sandbox_request", *_GREETINGS):
            # A page takes the last status for that of the kernel, and a cell may go on.
            for cell in [each.present for each in self._lanes.values() if each.in_cell and each.present is not None]:
                self._status("busy", cell)
        if request.kind == "shutdown_request":
            self._ended.set()

    async def _handle(self, request: Request, lane: Lane, abort: bool) -> None:
        kind = request.kind
        if abort:
            self.reply(request, {"status": "aborted"}, metadata={"started": utcnow(), "status": "aborted"})
        elif kind == "execute_request":
            await self._execute(request, lane)
        elif kind in _COMMS:
            self._comm(request)
        elif kind in _CONTROL and lane is not self._control:
            self._kernel.log.warning("a %s came on the shell channel; only the control channel takes it", kind)
        elif kind in _SUBSHELLS:
            self.reply(request, self._subshells(kind, request.content))
        elif (content := await self._kernel.answer(kind, request.content)) is not None:
            self.reply(request, content)
            if kind == "shutdown_request":
                self.publish("shutdown_reply", content, request.message)
        else:
            self._kernel.log.warning("unknown type of message: %r", kind)

    def _comm(self, request: Request) -> None:
        PRESENT.set(request)
        try:
            self._kernel.comm_message(request.kind, request.message)
        except Exception:
            self._kernel.log.exception("a %s could not be handled", request.kind)

    async def _execute(self, request: Request, lane: Lane) -> None:
        started = {"started": utcnow()}
        # The cell that begins may need the comm messages that wait.
        for comm in [waiting for waiting in lane.waiting if waiting.kind in _COMMS]:
            lane.waiting.remove(comm)
            contextvars.copy_context().run(self._comm, comm)
        lane.in_cell = True
        try:
            content = await self._kernel.cells.execute(request)
        finally:
            lane.in_cell = False
        asked = request.content
        if content["status"] == "error" and not asked.get("silent") and asked.get("stop_on_error", True):
            # Before the reply: a cell that a client sends after it has seen the failure is meant to run.
            self._channels.read_now(self._channels.shell)
            lane.to_abort = len(lane.waiting)
        self.reply(request, content, metadata=started)

    def _subshells(self, kind: str, content: Json) -> Json:
        if kind == "create_subshell_request":
            name = str(uuid.uuid4())
            self._lanes[name] = Lane(self._serve)
            return {"status": "ok", "subshell_id": name}
        if kind == "list_subshell_request":
            return {"status": "ok", "subshell_id": [name for name in self._lanes if name is not None]}
        name = str(content["subshell_id"])
        if self._lanes.pop(name, None) is None:
            return {"status": "error", "evalue": f"Unknown subshell_id {name!r}"}
        return {"status": "ok"}

"""The loop of the protocol over real sockets, with a kernel whose answers the test decides."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import zmq
from jupyter_client.connect import ConnectionFileMixin
from jupyter_client.session import Session

from sandbox_kernel.notebook.protocol.channels import Channels
from sandbox_kernel.notebook.protocol.request_loop import Request, RequestLoop

PATIENCE_MS = 30_000


class Kernel:
    """Cells are ``wait NAME``, ``fail``, or anything else, which succeeds."""

    log = logging.getLogger("test")

    def __init__(self) -> None:
        self.gates: dict[str, asyncio.Event] = {}
        self.comms: list[str] = []

    async def answer(self, kind: str, content: Any) -> Any:
        stopped = self.gates.setdefault("stopped", asyncio.Event())
        if kind in ("sandbox_request", "debug_request", "complete_request"):
            await stopped.wait()
        if kind in ("interrupt_request", "usage_request"):
            stopped.set()
        return None if kind == "unknown_request" else {"status": "ok"}

    @property
    def cells(self) -> Any:
        return self

    async def execute(self, request: Request) -> Any:
        code = request.content["code"]
        if code.startswith("wait "):
            await self.gates.setdefault(code[5:], asyncio.Event()).wait()
        if code.startswith("open "):
            self.gates.setdefault(code[5:], asyncio.Event()).set()
        return {"status": "error" if code == "fail" else "ok"}

    def comm_message(self, kind: str, message: Any) -> None:
        self.comms.append(message["content"]["comm_id"])

    def is_quiet(self, comm_id: object) -> bool:
        return comm_id == "quiet"


class Client:
    """Sockets of a client; what it asks, it asks in a thread of its own, while the loop runs."""

    def __init__(self, where: ConnectionFileMixin) -> None:
        self.session = Session(key=where.session.key)
        self.context = zmq.Context()
        self.shell = self._socket(where, "shell")
        self.control = self._socket(where, "control")
        self.iopub = self.context.socket(zmq.SUB)
        self.iopub.connect(where._make_url("iopub"))
        self.iopub.subscribe(b"")

    def _socket(self, where: ConnectionFileMixin, channel: str) -> Any:
        socket = self.context.socket(zmq.DEALER)
        socket.connect(where._make_url(channel))
        return socket

    def send(self, socket: Any, kind: str, content: dict[str, Any] | None = None, **header: Any) -> str:
        message = self.session.msg(kind, content or {})
        message["header"].update(header)
        self.session.send(socket, message)
        return str(message["header"]["msg_id"])

    def heard(self, until: str) -> list[tuple[str, str]]:
        """Return the statuses that were sent, each with the type of its request, until one is heard."""
        found: list[tuple[str, str]] = []
        while not found or ":".join(found[-1]) != until:
            assert self.iopub.poll(PATIENCE_MS), f"heard {found}"
            _, message = self.session.recv(self.iopub)
            if message["msg_type"] == "status":
                found.append((message["parent_header"]["msg_type"], message["content"]["execution_state"]))
        return found

    def replies(self, socket: Any, count: int) -> dict[str, Any]:
        found = {}
        while len(found) < count:
            assert socket.poll(PATIENCE_MS), "no reply came"
            _, message = self.session.recv(socket)
            found[message["parent_header"]["msg_id"]] = message["content"]
        return found


@pytest.fixture
def served(tmp_path: Path) -> Callable[[Callable[[Client, Kernel], object]], Kernel]:
    """Runs a client in a thread against a served kernel, then asks for the end."""

    async def serve(ask: Callable[[Client, Kernel], object]) -> Kernel:
        where = ConnectionFileMixin(transport="ipc", ip=str(tmp_path / "kernel"))
        where.session = Session(key=b"secret")
        where.curve_secretkey = where.curve_publickey = None
        channels, kernel = Channels(where), Kernel()
        loop = RequestLoop(channels, kernel)

        def client() -> None:
            one = Client(where)
            try:
                ask(one, kernel)
            finally:
                one.send(one.control, "shutdown_request", {"restart": False})
                one.context.destroy(linger=1000)

        try:
            work: Awaitable[None] = asyncio.get_running_loop().run_in_executor(None, client)
            await asyncio.wait_for(loop.run(), 60)
            await work
        finally:
            channels.close()
        return kernel

    return lambda ask: asyncio.run(serve(ask))


def cell(code: str) -> dict[str, str]:
    return {"code": code}


def test_a_cell_of_a_subshell_does_not_wait_for_the_main_shell(served) -> None:
    def ask(client: Client, kernel: Kernel) -> None:
        client.send(client.control, "create_subshell_request")
        (name,) = (reply["subshell_id"] for reply in client.replies(client.control, 1).values())
        first = client.send(client.shell, "execute_request", cell("wait a"))
        second = client.send(client.shell, "execute_request", cell("open a"), subshell_id=name)
        assert list(client.replies(client.shell, 2)) in ([first, second], [second, first])
        client.send(client.control, "delete_subshell_request", {"subshell_id": name})
        assert client.replies(client.control, 1).popitem()[1]["status"] == "ok"
        client.send(client.shell, "execute_request", cell("1"), subshell_id=name)
        assert client.replies(client.shell, 1).popitem()[1]["ename"] == "UnknownSubshellError"

    served(ask)


def test_cells_that_wait_behind_an_error_are_aborted_and_one_that_comes_later_runs(served) -> None:
    def ask(client: Client, kernel: Kernel) -> None:
        sent = [client.send(client.shell, "execute_request", cell(code)) for code in ("wait a", "fail", "1", "2")]
        client.send(client.control, "create_subshell_request")
        (name,) = (reply["subshell_id"] for reply in client.replies(client.control, 1).values())
        opener = client.send(client.shell, "execute_request", cell("open a"), subshell_id=name)
        found = client.replies(client.shell, 5)
        assert [found[one]["status"] for one in (*sent, opener)] == ["ok", "error", "aborted", "aborted", "ok"]
        client.send(client.shell, "execute_request", cell("3"))
        assert client.replies(client.shell, 1).popitem()[1]["status"] == "ok"

    served(ask)


def test_a_cell_that_is_sent_at_once_after_a_failure_was_seen_is_not_aborted(served, monkeypatch) -> None:
    read_now = Channels.read_now

    def slow(channels: Channels, socket: Any) -> None:
        socket.poll(300)  # a machine so busy that a client's next cell is there before the loop goes on
        read_now(channels, socket)

    def ask(client: Client, kernel: Kernel) -> None:
        client.send(client.shell, "execute_request", cell("fail"))
        assert client.replies(client.shell, 1).popitem()[1]["status"] == "error"
        client.send(client.shell, "execute_request", cell("1"))
        assert client.replies(client.shell, 1).popitem()[1]["status"] == "ok"

    monkeypatch.setattr(Channels, "read_now", slow)
    served(ask)


def test_a_message_with_a_wrong_signature_is_not_answered(served) -> None:
    def ask(client: Client, kernel: Kernel) -> None:
        right, client.session = client.session, Session(key=b"another")
        client.send(client.shell, "kernel_info_request")
        client.session = right
        good = client.send(client.shell, "kernel_info_request")
        assert list(client.replies(client.shell, 1)) == [good]

    served(ask)


def test_a_comm_message_reaches_the_kernel_while_a_cell_runs(served) -> None:
    def ask(client: Client, kernel: Kernel) -> None:
        client.send(client.shell, "execute_request", cell("wait a"))
        client.send(client.shell, "comm_msg", {"comm_id": "one", "data": {}})
        client.send(client.control, "create_subshell_request")
        (name,) = (reply["subshell_id"] for reply in client.replies(client.control, 1).values())
        client.send(client.shell, "kernel_info_request", subshell_id=name)
        client.replies(client.shell, 1)
        assert kernel.comms == ["one"]
        client.send(client.shell, "execute_request", cell("open a"), subshell_id=name)
        client.replies(client.shell, 2)

    served(ask)


def test_comm_messages_are_handled_in_order_and_a_quiet_one_does_not_make_the_kernel_busy(served) -> None:
    def ask(client: Client, kernel: Kernel) -> None:
        assert client.iopub.poll(PATIENCE_MS)  # the welcome: from now on nothing is missed
        for name in ("quiet", "other"):
            client.send(client.shell, "comm_msg", {"comm_id": name, "data": {}})
        client.send(client.shell, "execute_request", cell("1"))
        heard = client.heard(until="execute_request:idle")
        assert heard == [(kind, state) for kind in ("comm_msg", "execute_request") for state in ("busy", "idle")]
        assert kernel.comms == ["quiet", "other"]

    served(ask)


@pytest.mark.parametrize("last", ["execute_request", "interrupt_request"])
def test_questions_about_code_are_aborted_when_a_cell_or_stop_comes_after_them(served, last) -> None:
    def ask(client: Client, kernel: Kernel) -> None:
        client.send(client.control, "create_subshell_request")
        (name,) = (reply["subshell_id"] for reply in client.replies(client.control, 1).values())
        assert client.iopub.poll(PATIENCE_MS)  # the welcome
        sent = [client.send(client.shell, "complete_request")]
        client.heard(until="complete_request:busy")
        sent += [client.send(client.shell, "complete_request") for _ in range(2)]
        if last == "execute_request":
            sent.append(client.send(client.shell, last, cell("1")))
        client.send(client.shell, "execute_request", cell("read"), subshell_id=name)
        client.replies(client.shell, 1)
        client.send(client.control, "usage_request" if last == "execute_request" else last)
        found = client.replies(client.shell, len(sent))
        assert [found[one]["status"] for one in sent] == ["ok", "aborted", "aborted", "ok"][: len(sent)]
        client.send(client.shell, "complete_request")
        assert client.replies(client.shell, 1).popitem()[1]["status"] == "ok"

    served(ask)


@pytest.mark.parametrize("kinds", [("sandbox_request", "interrupt_request"), ("debug_request", "usage_request")])
def test_an_interrupt_waits_for_nothing_on_the_control_channel_and_nothing_for_a_debugger(served, kinds) -> None:
    def ask(client: Client, kernel: Kernel) -> None:
        sent = [client.send(client.control, kind) for kind in kinds]
        assert list(client.replies(client.control, 2)) == sent[::-1]

    served(ask)

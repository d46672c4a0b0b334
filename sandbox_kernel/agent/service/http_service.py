"""The HTTP server: ``POST /run_code``, ``GET /health``, ``GET /metrics``, and ``GET /v1/ping`` as SandboxFusion has it.

Each connection is one task, parsed by h11. Sizes and waiting times of requests are bounded. All but health and ping
need the bearer token.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import signal
import socket
from dataclasses import dataclass, field

import h11

from sandbox_kernel.agent.service.run_code import read_request
from sandbox_kernel.agent.service.run_queue import QueueFull, RunQueue
from sandbox_kernel.errors import InvalidRequest

#: The largest body of a request, in bytes.
MAX_BODY = 64 << 20
#: Seconds that a request may take to arrive, and that a connection may be idle.
REQUEST_S, IDLE_S = 30.0, 120.0
#: The most connections at a time.
MAX_CONNECTIONS = 1024
_CHUNK = 1 << 16


@dataclass(frozen=True)
class HttpAnswer:
    """What is sent back."""

    status: int
    body: bytes
    kind: str = "application/json"
    headers: tuple[tuple[str, str], ...] = field(default=())


def _json(status: int, value: object, *headers: tuple[str, str]) -> HttpAnswer:
    return HttpAnswer(status, json.dumps(value).encode(), headers=headers)


class HttpService:
    """Answers requests until it is stopped; then finishes those that it has taken.

    Args:
        queue: Runs the programs.
        token: What clients must send as ``Authorization: Bearer …``.

    """

    def __init__(self, queue: RunQueue, token: str) -> None:
        self._queue = queue
        self._token = hashlib.sha256(token.encode()).digest()
        self._connections: set[asyncio.Task[None]] = set()
        self._busy: set[asyncio.Task[None]] = set()
        self._stopped = asyncio.Event()

    async def serve(self, listener: socket.socket) -> None:
        """Serve until ``stop`` is called, or until SIGTERM or Ctrl-C; then drain."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            with contextlib.suppress(ValueError, RuntimeError):  # not on the main thread
                loop.add_signal_handler(number, self.stop)
        server = await asyncio.start_server(self._connected, sock=listener, backlog=1024)
        try:
            await self._stopped.wait()
        finally:
            self._queue.draining = True
            server.close()
            await self._queue.drain()
            while self._busy:
                await asyncio.wait(self._busy)
            for task in list(self._connections):
                task.cancel()

    def stop(self) -> None:
        """Begin to drain. Called on the loop."""
        self._stopped.set()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        if len(self._connections) >= MAX_CONNECTIONS:
            writer.close()
            return
        self._connections.add(task)
        try:
            connection = h11.Connection(h11.SERVER, max_incomplete_event_size=32 << 10)
            while await self._one(connection, reader, writer, task):
                connection.start_next_cycle()
        except (OSError, EOFError, TimeoutError, h11.RemoteProtocolError, h11.LocalProtocolError):
            pass  # the client is gone, too slow, or speaks no HTTP
        except asyncio.CancelledError:
            if not self._stopped.is_set():
                raise
        finally:
            self._connections.discard(task)
            writer.close()

    async def _one(
        self,
        connection: h11.Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        task: asyncio.Task[None],
    ) -> bool:
        """HttpAnswer one request. Returns whether the connection goes on."""
        async with asyncio.timeout(IDLE_S):
            request = await self._event(connection, reader)
        if not isinstance(request, h11.Request):
            return False
        self._busy.add(task)
        try:
            async with asyncio.timeout(REQUEST_S):
                body = await self._body(connection, reader, writer)
            answer = await self._answer(request, body)
            await self._send(connection, writer, answer)
        finally:
            self._busy.discard(task)
        return connection.our_state is h11.DONE and connection.their_state is h11.DONE and not self._stopped.is_set()

    async def _event(self, connection: h11.Connection, reader: asyncio.StreamReader) -> object:
        while (event := connection.next_event()) is h11.NEED_DATA:
            connection.receive_data(await reader.read(_CHUNK))
        return event

    async def _body(
        self, connection: h11.Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bytes | None:
        """Return the body of a request; None when it is too large."""
        body, size = [], 0
        if connection.they_are_waiting_for_100_continue:
            writer.write(connection.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
        while not isinstance(event := await self._event(connection, reader), h11.EndOfMessage):
            if not isinstance(event, h11.Data):
                raise EOFError
            size += len(event.data)
            if size > MAX_BODY:
                return None
            body.append(bytes(event.data))
        return b"".join(body)

    async def _send(self, connection: h11.Connection, writer: asyncio.StreamWriter, answer: HttpAnswer) -> None:
        headers = [("content-type", answer.kind), ("content-length", str(len(answer.body))), *answer.headers]
        if self._stopped.is_set() or connection.their_state is not h11.DONE:
            headers.append(("connection", "close"))
        response = h11.Response(status_code=answer.status, headers=headers)
        for event in (response, h11.Data(data=answer.body), h11.EndOfMessage()):
            writer.write(connection.send(event) or b"")
        await writer.drain()

    async def _answer(self, request: h11.Request, body: bytes | None) -> HttpAnswer:
        method, path = request.method.decode(), request.target.decode("ascii", "replace").partition("?")[0]
        allowed = {"/health": "GET", "/v1/ping": "GET", "/metrics": "GET", "/run_code": "POST"}
        if path not in allowed:
            return _json(404, {"detail": f"there is no {path[:100]}; there are: {', '.join(allowed)}"})
        if method != allowed[path]:
            return _json(405, {"detail": f"{path} takes {allowed[path]}"}, ("allow", allowed[path]))
        if path == "/health":
            draining = self._queue.draining
            return _json(503 if draining else 200, {"status": "draining" if draining else "ok"})
        if path == "/v1/ping":
            return _json(200, "pong")
        if not self._admits(request):
            challenge = ("www-authenticate", 'Bearer realm="sandbox-kernel"')
            return _json(401, {"detail": "send the token: Authorization: Bearer …"}, challenge)
        if path == "/metrics":
            return HttpAnswer(200, self._queue.metrics.text().encode(), "text/plain; version=0.0.4")
        return await self._run(body)

    async def _run(self, body: bytes | None) -> HttpAnswer:
        if body is None:
            return _json(413, {"detail": f"a request may have at most {MAX_BODY} bytes"})
        try:
            return _json(200, await self._queue.run(read_request(body)))
        except InvalidRequest as error:
            return _json(422, {"detail": str(error)})
        except QueueFull as error:
            if self._queue.draining:
                return _json(503, {"detail": "the server is shutting down"}, ("retry-after", "5"))
            return _json(429, {"detail": str(error)}, ("retry-after", str(error.retry_after_s)))

    def _admits(self, request: h11.Request) -> bool:
        given = [value for name, value in request.headers if name == b"authorization"]
        if len(given) != 1 or given[0][:7].lower() != b"bearer ":
            return False
        return hmac.compare_digest(hashlib.sha256(given[0][7:].strip()).digest(), self._token)

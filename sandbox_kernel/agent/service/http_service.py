"""The HTTP server: ``POST /run_code``, ``GET /health``, ``GET /metrics``, and ``GET /v1/ping`` as SandboxFusion has it.

Each connection is one task, parsed by h11. The size of a request and the time of it and its answer are bounded.
All but health and ping need the bearer token, which is looked at before the body is read. A client that goes away takes
its request with it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import re
import signal
import socket

import h11

from sandbox_kernel.agent.service.http_answer import HttpAnswer, json_answer
from sandbox_kernel.agent.service.request_bodies import (
    MAX_BODY,
    MAX_IGNORED,
    BodyRoom,
    BodyTooLarge,
    NoRoom,
    RequestRoom,
    announced,
    has_body,
    ignore_body,
    next_event,
    read_body,
    wait_for_end,
)
from sandbox_kernel.agent.service.run_code import read_request
from sandbox_kernel.agent.service.run_queue import QueueFull, RunQueue
from sandbox_kernel.errors import InvalidRequest

#: Seconds that a request may take to arrive, that a connection may be idle, that a refused client may go on sending.
REQUEST_S, IDLE_S, LINGER_S = 30.0, 120.0, 2.0
#: Seconds in which a client must have taken its answer.
ANSWER_S = 30.0
#: The most connections at a time. When one more comes, the one that has waited longest for a request is closed.
MAX_CONNECTIONS = 1024
#: A body above this size is read on another thread.
_LARGE = 1 << 18
#: The names of this machine in Host, and the types of bodies that programs send; the second by curl and urllib unasked.
_HOSTS = frozenset(("127.0.0.1", "localhost", "[::1]"))
_BODIES = frozenset(("application/json", "application/x-www-form-urlencoded"))
_ALLOWED = {"/health": "GET", "/v1/ping": "GET", "/metrics": "GET", "/run_code": "POST"}


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
        #: Connections that wait for a request, the one that waits longest first.
        self._idle: dict[asyncio.Task[None], None] = {}
        self._stopped = asyncio.Event()
        self._bodies = BodyRoom()

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
        if len(self._connections) >= MAX_CONNECTIONS and not self._close_an_idle_one():
            writer.close()
            return
        self._connections.add(task)
        writer.transport.set_write_buffer_limits(0)  # so that ``drain`` waits for all
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=32 << 10)
        try:
            try:
                while await self._one(connection, reader, writer, task):
                    connection.start_next_cycle()
            except h11.RemoteProtocolError as error:
                await self._send(connection, writer, json_answer(error.error_status_hint, {"detail": str(error)}))
                writer.write_eof()
                async with asyncio.timeout(LINGER_S):
                    await reader.read(MAX_IGNORED)
        except (OSError, EOFError, TimeoutError, h11.LocalProtocolError):
            pass  # the client is gone or too slow
        except asyncio.CancelledError:
            pass  # the server ends, or another connection needs the place
        finally:
            self._connections.discard(task)
            if writer.transport.get_write_buffer_size():
                writer.transport.abort()  # the client did not take its answer; closing would wait for it
            writer.close()

    def _close_an_idle_one(self) -> bool:
        """Close the connection that has waited longest for a request. Returns False when none waits."""
        task = next(iter(self._idle), None)
        if task is None:
            return False
        del self._idle[task]
        self._connections.discard(task)
        task.cancel()
        return True

    async def _one(
        self,
        connection: h11.Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        task: asyncio.Task[None],
    ) -> bool:
        """Answer one request. Returns whether the connection goes on."""
        self._idle[task] = None
        try:
            async with asyncio.timeout(IDLE_S):
                request = await next_event(connection, reader)
        finally:
            self._idle.pop(task, None)
        if not isinstance(request, h11.Request):
            return False
        self._busy.add(task)
        try:
            answer = self._at_once(request)
            if answer is not None:
                await self._send_early(connection, reader, writer, request, answer)
            else:
                with self._bodies.request() as room:
                    answer = await self._answer(request, connection, reader, writer, room)
                await self._send(connection, writer, answer)
        finally:
            self._busy.discard(task)
        return connection.our_state is h11.DONE and connection.their_state is h11.DONE and not self._stopped.is_set()

    async def _answer(
        self,
        request: h11.Request,
        connection: h11.Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        room: RequestRoom,
    ) -> HttpAnswer:
        try:
            async with asyncio.timeout(REQUEST_S):
                room.take(announced(request))
                if connection.they_are_waiting_for_100_continue:
                    writer.write(connection.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
                body = await read_body(connection, reader, room)
        except BodyTooLarge:
            return json_answer(413, {"detail": f"a request may have at most {MAX_BODY} bytes"})
        except NoRoom:
            return json_answer(
                429, {"detail": "the server holds too many large requests; try again"}, ("retry-after", "1")
            )
        return await self._run(body, connection, reader)

    async def _send_early(
        self,
        connection: h11.Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        request: h11.Request,
        answer: HttpAnswer,
    ) -> None:
        """Send an answer that does not wait for the body of its request."""
        if not has_body(request):
            await ignore_body(connection, reader)
            await self._send(connection, writer, answer)
            return
        await self._send(connection, writer, answer)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                await ignore_body(connection, reader)

    async def _send(self, connection: h11.Connection, writer: asyncio.StreamWriter, answer: HttpAnswer) -> None:
        headers = [("content-type", answer.kind), ("content-length", str(len(answer.body))), *answer.headers]
        if self._stopped.is_set() or connection.their_state is not h11.DONE:
            headers.append(("connection", "close"))
        response = h11.Response(status_code=answer.status, headers=headers)
        for event in (response, h11.Data(data=answer.body), h11.EndOfMessage()):
            writer.write(connection.send(event) or b"")
        async with asyncio.timeout(ANSWER_S):
            await writer.drain()

    def _at_once(self, request: h11.Request) -> HttpAnswer | None:
        """Return the answer to a request whose body is not needed; None for a program that may run."""
        if {b"content-length", b"transfer-encoding"} <= {name for name, _ in request.headers}:
            # A server in front of this one may take the other for the length, and then they read different requests.
            return json_answer(400, {"detail": "send Content-Length or Transfer-Encoding, not both"})
        method, path = request.method.decode(), request.target.decode("ascii", "replace").partition("?")[0]
        if refused := _refused(request):
            return refused
        if path not in _ALLOWED:
            return json_answer(404, {"detail": f"there is no {path[:100]}; there are: {', '.join(_ALLOWED)}"})
        if method != _ALLOWED[path]:
            return json_answer(405, {"detail": f"{path} takes {_ALLOWED[path]}"}, ("allow", _ALLOWED[path]))
        if path == "/health":
            draining = self._queue.draining
            return json_answer(503 if draining else 200, {"status": "draining" if draining else "ok"})
        if path == "/v1/ping":
            return json_answer(200, "pong")
        if not self._admits(request):
            challenge = ("www-authenticate", 'Bearer realm="sandbox-kernel"')
            return json_answer(401, {"detail": "send the token: Authorization: Bearer …"}, challenge)
        if path == "/metrics":
            return HttpAnswer(200, self._queue.metrics.text().encode(), "text/plain; version=0.0.4")
        return None

    async def _run(self, body: bytes, connection: h11.Connection, reader: asyncio.StreamReader) -> HttpAnswer:
        async def work() -> dict[str, object]:
            # Large bodies take a while to be read, and the loop serves others.
            asked = await asyncio.to_thread(read_request, body) if len(body) > _LARGE else read_request(body)
            return await self._queue.run(asked)

        running, gone = asyncio.ensure_future(work()), asyncio.ensure_future(wait_for_end(connection, reader))
        try:
            await asyncio.wait({running, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                raise EOFError
            return json_answer(200, await running)
        except InvalidRequest as error:
            return json_answer(422, {"detail": str(error)})
        except QueueFull as error:
            if self._queue.draining:
                return json_answer(503, {"detail": "the server is shutting down"}, ("retry-after", "5"))
            return json_answer(429, {"detail": str(error)}, ("retry-after", str(error.retry_after_s)))
        finally:
            running.cancel()
            gone.cancel()
            await asyncio.gather(running, gone, return_exceptions=True)

    def _admits(self, request: h11.Request) -> bool:
        given = [value for name, value in request.headers if name == b"authorization"]
        if len(given) != 1 or given[0][:7].lower() != b"bearer ":
            return False
        return hmac.compare_digest(hashlib.sha256(given[0][7:].strip()).digest(), self._token)


def _refused(request: h11.Request) -> HttpAnswer | None:
    """Return the answer to what a web page sent, or may have sent by giving its own name our address; else None."""
    headers = {name: value.decode("ascii", "replace").lower() for name, value in request.headers}
    if b"origin" in headers or headers.get(b"sec-fetch-site", "none") != "none":
        return json_answer(403, {"detail": "this server answers programs, and no web page"})
    host = headers.get(b"host", "localhost")
    if re.sub(r":\d*$", "", host) not in _HOSTS:
        return json_answer(421, {"detail": f"send Host: localhost, got {host[:100]!r}"})
    kind = headers.get(b"content-type", "application/json").partition(";")[0].strip()
    if kind not in _BODIES:
        return json_answer(415, {"detail": f"send Content-Type: application/json, got {kind[:100]!r}"})
    return None

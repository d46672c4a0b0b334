"""``sandbox-kernel serve``: ``POST /run_code``, ``GET /health``, ``/v1/ping`` and ``/metrics``, over HTTP.

Requests and answers are SandboxFusion's. All but health and ping need the bearer token, which is looked at before the
body is read. Sizes, times and the queue of waiting programs are bounded; a client that goes away ends its program.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import posixpath
import re
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from types import FrameType
from typing import Annotated

import uvicorn
from msgspec import Meta, Struct, field
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from sandbox_kernel.agent import http_server
from sandbox_kernel.agent.http_server import UNAUTHORIZED, has_token, server_config
from sandbox_kernel.agent.mcp.toolbox import BoxBackend
from sandbox_kernel.box.sandbox import Sandbox
from sandbox_kernel.errors import InvalidRequest, SandboxError
from sandbox_kernel.model import ExecRequest, ExecResult, Language, NoteKind, Status
from sandbox_kernel.model.notes import has_note
from sandbox_kernel.policy import SandboxPolicy
from sandbox_kernel.util.wire import BadMessage, decode, no_key_twice
from sandbox_kernel.workspace.changes import MAX_CHANGES
from sandbox_kernel.workspace.given_grants import GivenGrants
from sandbox_kernel.workspace.tree.paths import folders_above

#: Names of languages in SandboxFusion that are others here.
_NAMES = {"nodejs": "javascript", "bash": "command", "R": "r"}
#: The most files that one request may bring or fetch, and the most arguments.
MAX_FILES = 1000
_Seconds = Annotated[float, Meta(gt=0, le=3600)]
_Texts = Annotated[tuple[Annotated[str, Meta(pattern=r"^[^\ud800-\udfff]*\Z")], ...], Meta(max_length=MAX_FILES)]


class RunCode(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request, with SandboxFusion's names and default time limits. Contents of files are base64, null is no file."""

    code: str
    language: str
    stdin: str | None = None
    files: Annotated[dict[str, bytes | None], Meta(max_length=MAX_FILES)] | None = None
    fetch_files: _Texts = ()
    args: _Texts = ()
    compile_timeout: _Seconds = 10.0
    run_timeout: _Seconds = 10.0
    memory_limit_mb: int = field(default=-1, name="memory_limit_MB")

    @property
    def request(self) -> ExecRequest:
        """What to run. Raises ``InvalidRequest``."""
        language = Language.parse(_NAMES.get(self.language, self.language))
        compiles = language in (Language.RUST, Language.C, Language.CPP, Language.GO, Language.ZIG)
        return ExecRequest(
            language=language,
            code=self.code,
            timeout=self.run_timeout + self.compile_timeout if compiles else self.run_timeout,
            stdin=self.stdin,
            memory_limit_mb=self.memory_limit_mb if self.memory_limit_mb > 0 else None,
            files={name: data for name, data in (self.files or {}).items() if data is not None},
            args=list(self.args),
        )


def read_request(body: bytes) -> RunCode:
    """Check a request. Raises ``InvalidRequest`` with a sentence for the client."""
    try:
        asked = decode(body, RunCode, object_pairs_hook=no_key_twice)
    except BadMessage as error:
        raise InvalidRequest(f"the body is no request: {error}; send a JSON object with code and language") from None
    _ = asked.request
    return asked


def make_answer(asked: RunCode, result: ExecResult, files: Mapping[str, bytes]) -> dict[str, object]:
    """Return SandboxFusion's answer for a result. Files that were asked for and are not there are named in it."""
    left_out = [name for name in asked.fetch_files if name not in files]
    failed_compiling = result.status is Status.COMPILE_FAILED
    compiled: dict[str, object] | None = None
    if failed_compiling or result.compile_duration is not None:
        exit_code = (result.exit_code or 1) if failed_compiling else 0
        stderr = result.stderr if failed_compiling else ""
        compiled = _command("Finished", result.compile_duration or result.duration, exit_code, "", stderr)
    run: dict[str, object] | None = None
    if not failed_compiling:
        took = result.duration - (result.compile_duration or 0.0)
        late = result.status in (Status.TIMEOUT, Status.CPU_LIMIT) or took > asked.run_timeout
        ended = result.exit_code if result.exit_code is not None else 0 if result.ok else 1
        code = None if late else ended if result.signal is None else -result.signal
        run = _command("TimeLimitExceeded" if late else "Finished", took, code, result.stdout, result.stderr)
    return {
        "status": "Success" if result.ok and run is not None and run["status"] == "Finished" else "Failed",
        "message": f"not returned, because missing or too large: {', '.join(left_out)}"[:1000] if left_out else "",
        "compile_result": compiled,
        "run_result": run,
        "executor_pod_name": None,
        "files": {name: base64.b64encode(data).decode() for name, data in files.items()},
    }


def _command(status: str, seconds: float, code: int | None, stdout: str, stderr: str) -> dict[str, object]:
    return {"status": status, "execution_time": seconds, "return_code": code, "stdout": stdout, "stderr": stderr}


#: The largest body of a request, and all bodies together that are held at a time, in bytes.
MAX_BODY, MAX_HELD = 64 << 20, 256 << 20
#: The largest file, and all files together, that one answer returns, in bytes.
MAX_FETCHED_BYTES = 16 << 20
#: Seconds that a request may take to arrive, and that a refused client may go on sending.
REQUEST_S, LINGER_S = 30.0, 2.0
#: A body above this size is read on another thread.
_LARGE = 1 << 18
#: The names of this machine in Host, and the types of bodies that programs send; the second by curl and urllib unasked.
_HOSTS = frozenset(("127.0.0.1", "localhost", "[::1]"))
_BODIES = frozenset(("application/json", "application/x-www-form-urlencoded"))
_ALLOWED = {"/health": "GET", "/v1/ping": "GET", "/metrics": "GET", "/run_code": "POST"}
#: The bounds of the histogram of ``/metrics``, in seconds.
_BUCKETS_S = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0)


class RunService:
    """Answers requests until it is stopped; then finishes those that it has taken. Used on one event loop."""

    def __init__(self, queue: RunQueue, token: str) -> None:
        self._queue = queue
        self._token = token
        self._held = 0
        self._server = _Server(server_config(self, http_server.ANSWER_S), self.stop)
        self._stopping: asyncio.Task[None] | None = None

    async def serve(self, listener: socket.socket) -> None:
        """Serve until ``stop`` is called, or until SIGTERM or Ctrl-C; then drain."""
        await self._server.serve(sockets=[listener])

    def stop(self) -> None:
        """Take no more requests, and end when all that were taken are answered. Called on the loop."""
        self._queue.draining = True
        self._stopping = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        await self._queue.empty.wait()
        self._server.should_exit = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. Called by the HTTP server."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        answer = self._at_once(request)
        if answer is None:
            try:
                answer = await self._run(request, send)
            except (ClientDisconnect, TimeoutError):
                return  # the client is gone or too slow
        if answer is None:
            return
        if answer.status_code in (200, 422, 429, 503) and has_token(scope["headers"], self._token):
            await answer(scope, receive, send)
        else:
            await _refuse(answer, request, send)

    def _at_once(self, request: Request) -> Response | None:
        """Return the answer to a request whose body is not needed; None for a program that may run."""
        if {"content-length", "transfer-encoding"} <= set(request.headers):
            # A server in front of this one may take the other for the length, and then they read different requests.
            return _json(400, "send Content-Length or Transfer-Encoding, not both")
        if refused := _not_of_a_program(request):
            return refused
        path = request.scope["path"]
        if path not in _ALLOWED:
            return _json(404, f"there is no {path[:100]}; there are: {', '.join(_ALLOWED)}")
        if request.method != _ALLOWED[path]:
            return _json(405, f"{path} takes {_ALLOWED[path]}", allow=_ALLOWED[path])
        if path == "/health":
            draining = self._queue.draining
            return JSONResponse({"status": "draining" if draining else "ok"}, 503 if draining else 200)
        if path == "/v1/ping":
            return JSONResponse("pong")
        if not has_token(request.scope["headers"], self._token):
            name, value = (each.decode() for each in UNAUTHORIZED)
            return _json(401, "send the token: Authorization: Bearer …", **{name: value})
        if path == "/metrics":
            return PlainTextResponse(self._queue.metrics(), media_type="text/plain; version=0.0.4")
        if _announced(request) > MAX_BODY:
            return _json(413, f"a request may have at most {MAX_BODY} bytes")
        return None

    async def _run(self, request: Request, send: Send) -> Response | None:
        """Read and run a program; return why it was not run. ``ClientDisconnect``: the client went away meanwhile."""
        body = bytearray()
        held = _announced(request)
        if self._held + held > MAX_HELD:
            return _json(429, "the server holds too many large requests; try again", retry_after="1")
        self._held += held
        try:
            async with asyncio.timeout(REQUEST_S):
                async for part in request.stream():
                    body += part
                    more = max(0, len(body) - held)
                    if len(body) > MAX_BODY or self._held + more > MAX_HELD:
                        return _json(413, f"a request may have at most {MAX_BODY} bytes")
                    self._held, held = self._held + more, held + more
            await self._answer(request, bytes(body), send)
            return None
        except InvalidRequest as error:
            return _json(422, str(error))
        except QueueFull as error:
            if self._queue.draining:
                return _json(503, "the server is shutting down", retry_after="5")
            return _json(429, str(error), retry_after=str(error.retry_after_s))
        finally:
            self._held -= held

    async def _answer(self, request: Request, body: bytes, send: Send) -> None:
        # Large bodies take a while to be read, and the loop serves others.
        asked = await asyncio.to_thread(read_request, body) if len(body) > _LARGE else read_request(body)
        running = asyncio.ensure_future(self._queue.run(asked, lambda found: _deliver(found, send)))
        gone = asyncio.ensure_future(_gone(request))
        try:
            await asyncio.wait({running, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                raise ClientDisconnect
            await running
        finally:
            running.cancel()
            gone.cancel()
            await asyncio.gather(running, gone, return_exceptions=True)


class _Server(uvicorn.Server):
    """uvicorn that drains first: a signal begins it, a second one ends at once."""

    def __init__(self, config: uvicorn.Config, stop: Callable[[], None]) -> None:
        super().__init__(config)
        self._stop: Callable[[], None] | None = stop

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        stop, self._stop = self._stop, None
        if stop is None:
            super().handle_exit(sig, frame)
        else:
            asyncio.get_running_loop().call_soon_threadsafe(stop)


def _json(status: int, detail: str, **headers: str) -> Response:
    return JSONResponse({"detail": detail}, status, {name.replace("_", "-"): each for name, each in headers.items()})


def _announced(request: Request) -> int:
    return int(request.headers.get("content-length", "0"))


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def _deliver(found: Mapping[str, object], send: Send) -> None:
    """Send the answer of a program, and return when its client has taken it, or was cut off."""
    answer = JSONResponse(found)
    await send({"type": "http.response.start", "status": 200, "headers": answer.raw_headers})
    await send({"type": "http.response.body", "body": answer.body, "more_body": True})
    await send({"type": "http.response.body", "body": b""})  # waits while most of it is unread


async def _refuse(answer: Response, request: Request, send: Send) -> None:
    """Answer before the body has come, and read on for a moment, so that the client reads the answer."""
    headers = [*answer.raw_headers, (b"connection", b"close")]
    await send({"type": "http.response.start", "status": answer.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body, "more_body": True})
    with contextlib.suppress(TimeoutError, ClientDisconnect):
        async with asyncio.timeout(LINGER_S):
            async for _ in request.stream():
                pass
    await send({"type": "http.response.body", "body": b""})


def _not_of_a_program(request: Request) -> Response | None:
    """Return the answer to what a web page sent, or may have sent by giving its own name our address; else None."""
    headers = request.headers
    if "origin" in headers or headers.get("sec-fetch-site", "none").lower() != "none":
        return _json(403, "this server answers programs, and no web page")
    host = headers.get("host", "localhost").lower()
    if re.sub(r":\d*$", "", host) not in _HOSTS:
        return _json(421, f"send Host: localhost, got {host[:100]!r}")
    kind = headers.get("content-type", "application/json").lower().partition(";")[0].strip()
    if kind not in _BODIES:
        return _json(415, f"send Content-Type: application/json, got {kind[:100]!r}")
    return None


class QueueFull(Exception):
    """No request can be taken now. ``retry_after_s`` says when it is worth trying again."""

    def __init__(self, retry_after_s: int) -> None:
        super().__init__(f"the queue is full; try again in {retry_after_s} s")
        self.retry_after_s = retry_after_s


class RunQueue:
    """Runs each request in a sandbox of its own, ``workers`` at a time; ``waiting`` more may wait."""

    def __init__(self, policy: SandboxPolicy | None, workers: int, waiting: int) -> None:
        self.draining = False
        #: Requests that run or wait; ``empty`` is set while there are none.
        self.taken = 0
        self.empty = asyncio.Event()
        self.empty.set()
        self._policy, self._workers, self._room = policy, workers, workers + waiting
        #: The files that were granted when the service began; each request has a sandbox of its own.
        self._grants = GivenGrants(policy or SandboxPolicy())
        self._places = asyncio.Semaphore(workers)
        self._mean_s = 1.0
        #: What ``metrics`` tells: how programs ended, seconds each took, requests that were refused.
        self._ended: Counter[str] = Counter()
        self._buckets: Counter[float] = Counter()
        self._seconds, self._refused = 0.0, 0

    async def run(self, asked: RunCode, deliver: Callable[[dict[str, object]], Awaitable[None]]) -> None:
        """Run a request and deliver its answer. Its place is free when that was taken. Raises ``QueueFull``."""
        if self.draining or self.taken >= self._room:
            self._refused += 1
            raise QueueFull(max(1, round(self._mean_s * (self.taken / self._workers))))
        self.taken += 1
        self.empty.clear()
        try:
            async with self._places:
                try:
                    answer = await self._work(asked)
                except SandboxError as error:
                    nothing = dict.fromkeys(("compile_result", "run_result", "executor_pod_name"))
                    answer = {"status": "SandboxError", "message": str(error), **nothing, "files": {}}
                await deliver(answer)
        finally:
            self.taken -= 1
            if self.taken == 0:
                self.empty.set()

    async def _work(self, asked: RunCode) -> dict[str, object]:
        began, request, status = time.monotonic(), asked.request, "error"
        try:
            self._grants.now(root=True)
            with Sandbox(self._policy) as box:
                result = await BoxBackend(box).execute(request)
                status = str(result.status)
                self._mean_s += (time.monotonic() - began - self._mean_s) / 16
                found = await asyncio.to_thread(_fetched, box, asked, result) if asked.fetch_files else {}
                return make_answer(asked, result, found)
        except asyncio.CancelledError:
            status = "interrupted"
            raise
        finally:
            seconds = time.monotonic() - began
            self._ended[status] += 1
            self._seconds += seconds
            self._buckets.update(bound for bound in _BUCKETS_S if seconds <= bound)

    def metrics(self) -> str:
        """Return what was counted, in Prometheus' text format."""
        total, running = self._ended.total(), min(self.taken, self._workers)
        bounds = [*((f"{bound:g}", self._buckets[bound]) for bound in _BUCKETS_S), ("+Inf", total)]
        lines = [
            "# TYPE sandbox_runs_total counter",
            *(f'sandbox_runs_total{{status="{name}"}} {count}' for name, count in sorted(self._ended.items())),
            "# TYPE sandbox_run_seconds histogram",
            *(f'sandbox_run_seconds_bucket{{le="{bound}"}} {count}' for bound, count in bounds),
            f"sandbox_run_seconds_sum {self._seconds:.6f}",
            f"sandbox_run_seconds_count {total}",
            "# TYPE sandbox_running gauge",
            f"sandbox_running {running}",
            "# TYPE sandbox_waiting gauge",
            f"sandbox_waiting {self.taken - running}",
            "# TYPE sandbox_refused_total counter",
            f"sandbox_refused_total {self._refused}",
        ]
        return "\n".join(lines) + "\n"


def _fetched(box: Sandbox, asked: RunCode, result: ExecResult) -> dict[str, bytes]:
    """Return the files that were asked for, as the program left them; one that is missing or too large is left out."""
    unseen = len(result.changes) >= MAX_CHANGES or has_note(result.notes, NoteKind.UNSEEN_CHANGES)
    brought = {posixpath.normpath(name): data for name, data in (asked.files or {}).items() if data is not None}
    touched = {path for each in result.changes for path in (each.path, each.renamed_from)}
    found: dict[str, bytes] = {}
    for name in asked.fetch_files:
        path = posixpath.normpath(name)
        try:
            data = box.read_file(name)
        except (SandboxError, OSError):
            # The sandbox keeps what the program changed, but no links, nothing of a run that was ended, not too many.
            if unseen or path not in brought or not touched.isdisjoint((path, *folders_above(path))):
                continue
            data = brought[path]
        if sum(map(len, found.values())) + len(data) <= MAX_FETCHED_BYTES:
            found[name] = data
    return found

"""Real servers in processes of their own, and the SDK's client held open beside the tests."""

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

ROOT = Path(__file__).resolve().parents[3]
COMMAND = ["-m", "sandbox_kernel", "mcp"]
PATIENCE_S = 90


def environment(temporary: Path) -> dict[str, str]:
    path = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    return {**os.environ, "PYTHONPATH": path, "TMPDIR": str(temporary)}


class Held:
    """A client that stays connected on a thread's loop, so that many tests share one server."""

    def __init__(self, connect: Callable[[], Client]) -> None:
        self._connect = connect
        self._loop = asyncio.new_event_loop()
        self._ready: Future[Client] = Future()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._hold(),))
        self._thread.start()
        try:
            self.client = self._ready.result(PATIENCE_S)
        except BaseException:
            self.close()
            raise

    async def _hold(self) -> None:
        try:
            async with self._connect() as client:
                self._ready.set_result(client)
                await self._over.wait()
        except Exception as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)

    def do(self, act: Callable[[Client], Awaitable[Any]]) -> Any:
        """Await something with the client, on its loop."""

        async def go() -> Any:
            return await asyncio.wait_for(act(self.client), PATIENCE_S)

        return asyncio.run_coroutine_threadsafe(go(), self._loop).result(PATIENCE_S + 10)

    def call(self, name: str, **args: object) -> Any:
        """Call a tool."""
        return self.do(lambda client: client.call_tool(name, args))

    def answer(self, name: str, **args: object) -> dict[str, Any]:
        """Call a tool; its structured content."""
        return self.call(name, **args).structured_content

    def close(self) -> None:
        with suppress(RuntimeError):  # a loop that could not connect is over already
            self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        self._loop.close()


def over_stdio(temporary: Path, *options: str, mode: str = "auto") -> Held:
    server = StdioServerParameters(command=sys.executable, args=[*COMMAND, *options], env=environment(temporary))
    return Held(lambda: Client(stdio_client(server), mode=mode))


@dataclass(frozen=True)
class HttpServer:
    url: str
    token: str
    said: str
    process: subprocess.Popen[str]

    def connect(self, mode: str = "auto", token: str | None = None) -> Held:
        def client() -> Client:
            headers = {"Authorization": f"Bearer {self.token if token is None else token}"}
            http = httpx2.AsyncClient(headers=headers, timeout=PATIENCE_S, trust_env=False)
            return Client(streamable_http_client(self.url, http_client=http), mode=mode)

        return Held(client)


@contextmanager
def http_server(temporary: Path, *options: str, token: str | None = None) -> Iterator[HttpServer]:
    variables = environment(temporary) | ({"SANDBOX_KERNEL_MCP_TOKEN": token} if token is not None else {})
    command = [sys.executable, *COMMAND, "--http", *options]
    with subprocess.Popen(
        command, env=variables, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    ) as server:
        try:
            assert server.stderr is not None
            said = server.stderr.readline()
            url = said.removeprefix("MCP server: ").strip()
            assert url.startswith("http://"), said + server.stderr.read()
            if token is None:
                said += server.stderr.readline()
                token = said.splitlines()[1].removeprefix("Authorization: Bearer ")
            yield HttpServer(url, token, said, server)
        finally:
            server.terminate()
            assert server.wait(PATIENCE_S) == 128 + signal.SIGTERM  # not of the signal: the sandbox was destroyed


def wait_until_free(lock: Path) -> None:
    """Until no process holds a lock on this file: whoever held it is dead."""
    deadline = time.monotonic() + PATIENCE_S
    with lock.open() as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                assert time.monotonic() < deadline, "the program still runs"
                time.sleep(0.01)

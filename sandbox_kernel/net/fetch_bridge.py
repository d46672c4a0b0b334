"""The only way out of a wasm guest: the parent fetches for it, one request to a connection.

The runner inside connects to the listening socket of its jail, sends a request and gets an answer, each a length in
four bytes and JSON (``bridge``). The guest itself has no socket: redirects, headers and bodies are judged here, by the
rules of ``SafeClient``, before they leave or reach it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from dataclasses import replace
from typing import TYPE_CHECKING

from sandbox_kernel.errors import SandboxDestroyed
from sandbox_kernel.limits import MIB
from sandbox_kernel.net.bridge import MAX_REQUEST_JSON_BYTES, answer_async, encode_error
from sandbox_kernel.net.loop_thread import run_on_network_loop

if TYPE_CHECKING:
    from sandbox_kernel.model import Violation
    from sandbox_kernel.net.fetch_policy import FetchPolicy
    from sandbox_kernel.net.safe_client import SafeClient

#: A guest gets the whole response at once, as text and as base64, so it is kept small.
MAX_GUEST_BODY_BYTES = 8 * MIB
#: A guest waits for each of its fetches; a runner that asks for more at once is no honest one.
MAX_GUEST_FETCHES = 4
#: Time to write a request down; the jail is on the same machine.
_REQUEST_S = 10.0


def guest_rules(policy: FetchPolicy) -> FetchPolicy:
    """The policy of a sandbox, with what a guest can hold."""
    return replace(
        policy,
        max_response_body_bytes=min(policy.max_response_body_bytes, MAX_GUEST_BODY_BYTES),
        max_concurrent=min(policy.max_concurrent, MAX_GUEST_FETCHES),
    )


class FetchBridge:
    """Serves the fetches of one guest, as ``EgressProxy`` serves the connections of other sandboxes."""

    def __init__(self, client: SafeClient) -> None:
        self._client = client
        self._servers: list[asyncio.Server] = []
        self._connections: set[asyncio.Task[None]] = set()
        self._closed = False

    def start(self, listener: socket.socket) -> None:
        """Serve what connects to this listening socket, in the background. The bridge owns and closes it."""
        if self._closed:
            raise SandboxDestroyed("the fetch bridge was closed; make a new one for a new sandbox")
        run_on_network_loop(self._listen(listener))

    def close(self) -> None:
        """End every fetch that is under way; returns when they are gone. May be called twice."""
        if not self._closed:
            self._closed = True
            run_on_network_loop(self._shut())

    def __enter__(self) -> FetchBridge:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def violations(self) -> tuple[Violation, ...]:
        """What was refused so far, each once."""
        return self._client.violations

    def take_violations(self) -> tuple[Violation, ...]:
        """What was refused since the last time, each once; forgets it."""
        return self._client.take_violations()

    async def _listen(self, listener: socket.socket) -> None:
        self._servers.append(await asyncio.start_server(self._accept, sock=listener))

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            if len(self._connections) <= MAX_GUEST_FETCHES:
                await self._serve(reader, writer)
        except (OSError, EOFError, TimeoutError):
            pass  # the guest went away, or never said what it wants: nobody waits for an answer
        except asyncio.CancelledError:
            # By ``close``. Passed on, Python 3.11 would print a traceback for each connection.
            if not self._closed:
                raise
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_REQUEST_S):
            size = int.from_bytes(await reader.readexactly(4), "big")
            if size > MAX_REQUEST_JSON_BYTES:
                return
            request = await reader.readexactly(size)
        fetching = asyncio.ensure_future(answer_async(request, self._client))
        gone = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait((fetching, gone), return_when=asyncio.FIRST_COMPLETED)
            if not fetching.done():
                return
            response = fetching.result()
        finally:
            for waiting in (fetching, gone):
                waiting.cancel()
                with contextlib.suppress(asyncio.CancelledError, OSError):
                    await waiting
        if len(response) >= 1 << 32:
            response = encode_error("the response is too large for a guest")
        writer.write(len(response).to_bytes(4, "big") + response)
        await writer.drain()

    async def _shut(self) -> None:
        for server in self._servers:
            server.close()
        tasks = tuple(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

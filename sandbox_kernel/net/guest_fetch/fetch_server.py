"""The only network access of a wasm guest: the host fetches on its behalf, one request for each connection.

The embedder inside the jail connects to the listening socket of its jail, sends one request and reads one response.
Each message is a length in four bytes and then JSON (``fetch_json.py``). The guest itself has no socket: ``SafeClient``
checks redirects, headers and bodies on the host before they leave or reach the guest.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from sandbox_kernel.limits import MIB
from sandbox_kernel.net.guest_fetch.fetch_json import MAX_REQUEST_JSON_BYTES, answer_async, encode_error
from sandbox_kernel.net.proxy.jail_server import JailServer

if TYPE_CHECKING:
    from sandbox_kernel.model import Violation
    from sandbox_kernel.net.client.safe_client import SafeClient
    from sandbox_kernel.net.rules.fetch_policy import FetchPolicy

#: Largest response body for a guest: it holds the whole response in memory, as text and as base64.
MAX_GUEST_BODY_BYTES = 8 * MIB
#: Most connections at once. An honest embedder has one: a guest waits for each of its fetches.
MAX_GUEST_FETCHES = 4
#: Seconds that a request may take to arrive; the jail is on the same machine.
_REQUEST_S = 10.0


def guest_rules(policy: FetchPolicy) -> FetchPolicy:
    """Return the policy of a sandbox with its limits lowered to those of a guest."""
    return replace(
        policy,
        max_response_body_bytes=min(policy.max_response_body_bytes, MAX_GUEST_BODY_BYTES),
        max_concurrent=min(policy.max_concurrent, MAX_GUEST_FETCHES),
    )


class FetchBridge(JailServer):
    """Serves the fetches of one wasm guest. ``EgressProxy`` is its counterpart for native programs."""

    what = "fetch bridge"

    def __init__(self, client: SafeClient) -> None:
        super().__init__()
        self._client = client

    @property
    def violations(self) -> tuple[Violation, ...]:
        """See ``JailServer``."""
        return self._client.violations

    def take_violations(self) -> tuple[Violation, ...]:
        """See ``JailServer``."""
        return self._client.take_violations()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if len(self._connections) <= MAX_GUEST_FETCHES:
                await self._answer(reader, writer)
        except (OSError, EOFError, TimeoutError):
            pass  # the guest closed the connection or sent no request: there is no reader for a response
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
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

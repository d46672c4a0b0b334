"""Relays bytes between two sockets until both end, one fails, or the connection is idle for too long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from concurrent.futures import Executor
from dataclasses import dataclass, field

from sandbox_kernel.net.audit import AuditSink
from sandbox_kernel.net.fetch_policy import FetchPolicy, RateLimit, ViolationLog
from sandbox_kernel.net.resolve import Resolver
from sandbox_kernel.net.secret_headers import Vault

CHUNK = 64 * 1024
#: Seconds that a closing socket waits for a peer to read its last bytes.
_CLOSE_S = 2.0


async def close(writer: asyncio.StreamWriter) -> None:
    """Close a socket, at the latest after ``_CLOSE_S``, also when the peer does not read its last bytes."""
    try:
        async with asyncio.timeout(_CLOSE_S):
            writer.close()
            await writer.wait_closed()
    except (TimeoutError, OSError):
        writer.transport.abort()


async def say_and_linger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes) -> None:
    """Send a last reply, then read for a moment before the caller closes the socket."""
    # Closing a socket with unread bytes resets the connection, and the peer would lose the reply.
    try:
        async with asyncio.timeout(_CLOSE_S):
            writer.write(data)
            await writer.drain()
            writer.write_eof()
            for _ in range(64):
                if not await reader.read(CHUNK):
                    break
    except (TimeoutError, OSError):
        return


# Values that the parts of the egress proxy share: the rules of one proxy, and the two sockets of one connection.


@dataclass(frozen=True, kw_only=True)
class ProxyLimits:
    """Limits on what a hostile client may cost. ``FetchPolicy`` limits connections and requests a minute."""

    #: The head of a request: its largest size, and the time in which it must arrive.
    head_bytes: int = 32 * 1024
    head_timeout_s: float = 10.0
    idle_timeout_s: float = 120.0
    #: Ports on which a tunnel must carry TLS, and TLS or HTTP.
    tls_ports: frozenset[int] = frozenset((443,))
    http_ports: frozenset[int] = frozenset((80,))


@dataclass(frozen=True)
class ProxyRules:
    """The rules, counters and logs that all connections of one proxy share."""

    policy: FetchPolicy
    resolver: Resolver
    executor: Executor
    limits: ProxyLimits
    rate: RateLimit
    refusals: ViolationLog
    failures: ViolationLog
    audit: AuditSink
    vault: Vault = field(default_factory=Vault)


@dataclass
class Link:
    """One connection of a program to the proxy, and the connection to the server (``far``) once it is open."""

    rules: ProxyRules
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    #: Bytes that left the sandbox, and that came into it.
    bytes_out: int = 0
    bytes_in: int = 0
    far: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
    #: A reply was sent, so no other HTTP reply can follow; when it is refused then, ``last_word`` is sent instead.
    answered: bool = False
    last_word: bytes = b""
    #: Time of the last traffic. Both directions share it, so a long download is not idle.
    _last: float = field(default_factory=time.monotonic)

    @property
    def far_writer(self) -> asyncio.StreamWriter:
        """Writes to the server."""
        assert self.far is not None
        return self.far[1]

    async def send(self, data: bytes | None, *, far: bool = False) -> None:
        """Write to the program, or to the server, and wait until the peer has room for more."""
        if data:
            writer = self.far_writer if far else self.writer
            writer.write(data)
            await writer.drain()
            self._last = time.monotonic()
            self.bytes_out += len(data) if far else 0

    async def receive(self, *, far: bool = False) -> bytes:
        """Read available bytes of the program, or of the server; empty at the end of the stream."""
        reader = self.far[0] if far and self.far is not None else self.reader
        data = await reader.read(CHUNK)
        self._last = time.monotonic()
        self.bytes_in += len(data) if far else 0
        return data

    async def both(
        self,
        upload: Coroutine[object, object, None],
        download: Coroutine[object, object, None],
        *,
        ends_with_download: bool = False,
    ) -> None:
        """Run both directions until both are done or idle, or the download is (``ends_with_download``)."""
        tasks = (asyncio.create_task(upload), asyncio.create_task(download))
        pending: set[asyncio.Task[None]] = set(tasks)
        idle_s = self.rules.limits.idle_timeout_s
        try:
            while pending and (left_s := self._last + idle_s - time.monotonic()) > 0:
                done, pending = await asyncio.wait(pending, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                if ends_with_download and tasks[1].done():
                    return
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class ClientGone(Exception):
    """The program closed the connection, or left it idle, before it sent a request."""

"""The base of servers on the listening socket of one jail: accepts connections on the network thread until closed.

``EgressProxy`` defines how a connection is served. Connections are accepted at a limited rate and
wait in the kernel's queue of that jail otherwise, so that a program which connects in a loop does not keep the network
thread busy.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Self

from sandbox_kernel.errors import InvalidRequest, SandboxDestroyed
from sandbox_kernel.net.network_thread import run_on_network_loop

if TYPE_CHECKING:
    from sandbox_kernel.model import Note, Violation


_log = logging.getLogger(__name__)

#: Seconds to wait after ``accept`` failed, for example because the host has no descriptor left.
_AFTER_FAILURE_S = 0.5


class JailServer(ABC):
    """A server for one jail. Use it as a context manager, or call ``close``."""

    #: The name of the server in errors.
    what: str
    #: Buffer size of each connection in bytes.
    limit: int = 1 << 16
    #: Connections that are accepted in a second, and at once after a pause. Package managers open some dozens.
    per_second: float = 200.0
    burst: int = 400

    def __init__(self) -> None:
        self._listening: set[asyncio.Task[None]] = set()
        self._connections: set[asyncio.Task[None]] = set()
        #: Connections that are being ended while the server goes on.
        self._ended: set[asyncio.Task[None]] = set()
        self._closed = False
        self._mistaken = False

    def start(self, listener: socket.socket) -> None:
        """Serve connections to this listening socket in the background. The server owns the socket and closes it.

        May be called again with another socket, when a session has a new network namespace.
        """
        if self._closed:
            raise SandboxDestroyed(f"the {self.what} was closed; make a new one for a new sandbox")
        if listener.type != socket.SOCK_STREAM or not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            raise InvalidRequest(f"the {self.what} needs a listening stream socket, got {listener!r}")
        run_on_network_loop(self._listen(listener))

    def close(self) -> None:
        """Stop accepting, end every connection and wait until all have ended. May be called twice."""
        if not self._closed:
            self._closed = True
            run_on_network_loop(self._shut())

    def end_connections(self) -> None:
        """End every connection that is open now, and go on serving."""
        run_on_network_loop(self._end_connections())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    @abstractmethod
    def violations(self) -> tuple[Violation, ...]:
        """The requests that were refused so far, each once."""

    @abstractmethod
    def take_violations(self) -> tuple[Violation, ...]:
        """Return the requests that were refused since the last call, each once."""

    def take_failures(self) -> tuple[Note, ...]:
        """Return notes on requests since the last call that were allowed and failed; some clients hide the reason."""
        return ()

    @abstractmethod
    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it ends."""

    async def _listen(self, listener: socket.socket) -> None:
        task = asyncio.create_task(self._take(listener))
        self._listening.add(task)
        task.add_done_callback(self._listening.discard)

    async def _take(self, listener: socket.socket) -> None:
        """Accept connections until cancelled; closes the listener."""
        loop, pace = asyncio.get_running_loop(), Pace(self.per_second, self.burst)
        listener.setblocking(False)
        with listener:
            while True:
                await pace.turn()
                try:
                    connection, _ = await loop.sock_accept(listener)
                except OSError as error:
                    # No descriptor is free, or the peer has closed already.
                    _log.warning("the %s could not take a connection: %s", self.what, error)
                    await asyncio.sleep(_AFTER_FAILURE_S)
                    continue
                reader = asyncio.StreamReader(limit=self.limit)
                protocol = asyncio.StreamReaderProtocol(reader, self._accept)
                await loop.connect_accepted_socket(lambda made=protocol: made, connection)  # type: ignore[misc]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._serve(reader, writer)
        except asyncio.CancelledError:
            # Cancelled by ``close``. If raised, Python 3.11 would print a traceback for each connection.
            if not self._closed and task not in self._ended:
                raise
        except Exception:
            # A bug in this server. Logged once: a hostile program could cause it in a loop.
            writer.transport.abort()
            if not self._mistaken:
                self._mistaken = True
                _log.exception("the %s could not serve a connection; this is logged once", self.what)
        finally:
            self._connections.discard(task)

    async def _end_connections(self) -> None:
        tasks = tuple(self._connections)
        self._ended |= set(tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._ended -= set(tasks)

    async def _shut(self) -> None:
        tasks = (*self._listening, *self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


# Limits a rate by waiting: a burst is free, then a fixed number a second.


class Pace:
    """A token bucket. Used by one task at a time."""

    def __init__(
        self,
        per_second: float,
        burst: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._per_second, self._burst = per_second, burst
        self._clock, self._sleep = clock, sleep
        self._turns, self._counted = float(burst), clock()

    async def turn(self) -> None:
        """Wait until the rate allows the next turn."""
        self._refill()
        while self._turns < 1:
            await self._sleep((1 - self._turns) / self._per_second)
            self._refill()
        self._turns -= 1

    def _refill(self) -> None:
        now = self._clock()
        self._turns = min(self._burst, self._turns + (now - self._counted) * self._per_second)
        self._counted = now

"""What serves the listening socket of one jail: it takes connections on the network thread, and ends with the jail.

``egress_proxy`` and ``fetch_bridge`` say what a connection is. A program may connect without end: connections are taken
at a pace, and the others wait in the kernel's queue of that jail, so a flood does not keep the host's thread busy.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self

from sandbox_kernel.errors import InvalidRequest, SandboxDestroyed
from sandbox_kernel.net.network_thread import run_on_network_loop
from sandbox_kernel.net.proxy.pace import Pace

if TYPE_CHECKING:
    from sandbox_kernel.model import Note, Violation

_log = logging.getLogger(__name__)

#: How long nothing is taken when the host has no descriptor left.
_AFTER_FAILURE_S = 0.5


class JailServer(ABC):
    """Use it as a context manager, or call ``close``."""

    #: What it is called in errors, and how much of a line it reads at once.
    what: str
    limit: int = 1 << 16
    #: Connections that are taken a second, and at once after a pause. Package managers open some dozens.
    per_second: float = 200.0
    burst: int = 400

    def __init__(self) -> None:
        self._listening: set[asyncio.Task[None]] = set()
        self._connections: set[asyncio.Task[None]] = set()
        self._closed = False
        self._mistaken = False

    def start(self, listener: socket.socket) -> None:
        """Serve what connects to this listening socket from now on, in the background. We own and close it.

        May be called again with another socket, when a session's namespace was made anew.
        """
        if self._closed:
            raise SandboxDestroyed(f"the {self.what} was closed; make a new one for a new sandbox")
        if listener.type != socket.SOCK_STREAM or not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            raise InvalidRequest(f"the {self.what} needs a listening stream socket, got {listener!r}")
        run_on_network_loop(self._listen(listener))

    def close(self) -> None:
        """Stop accepting and end every connection; returns when they are gone. May be called twice."""
        if not self._closed:
            self._closed = True
            run_on_network_loop(self._shut())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    @abstractmethod
    def violations(self) -> tuple[Violation, ...]:
        """What was refused so far, each once."""

    @abstractmethod
    def take_violations(self) -> tuple[Violation, ...]:
        """What was refused since the last time, each once; forgets it."""

    def take_failures(self) -> tuple[Note, ...]:
        """What was allowed and not reached since the last time, as notes; for clients that hide why."""
        return ()

    @abstractmethod
    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, to its end."""

    async def _listen(self, listener: socket.socket) -> None:
        task = asyncio.create_task(self._take(listener))
        self._listening.add(task)
        task.add_done_callback(self._listening.discard)

    async def _take(self, listener: socket.socket) -> None:
        """Take connections until cancelled; closes the listener."""
        loop, pace = asyncio.get_running_loop(), Pace(self.per_second, self.burst)
        listener.setblocking(False)
        with listener:
            while True:
                await pace.turn()
                try:
                    connection, _ = await loop.sock_accept(listener)
                except OSError as error:
                    # No descriptor is free, or the peer is gone already.
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
            # By ``close``. Passed on, Python 3.11 would print a traceback for each connection.
            if not self._closed:
                raise
        except Exception:
            # A mistake of ours. Told once: whoever found out how to cause it can do so without end.
            writer.transport.abort()
            if not self._mistaken:
                self._mistaken = True
                _log.exception("the %s could not serve a connection; this is told once", self.what)
        finally:
            self._connections.discard(task)

    async def _shut(self) -> None:
        tasks = (*self._listening, *self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

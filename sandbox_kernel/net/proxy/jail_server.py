"""What serves the listening socket of one jail: it takes connections on the network thread, and ends with the jail.

``egress_proxy`` and ``fetch_bridge`` say what a connection is.
"""

from __future__ import annotations

import asyncio
import socket
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self

from sandbox_kernel.errors import InvalidRequest, SandboxDestroyed
from sandbox_kernel.net.network_thread import run_on_network_loop

if TYPE_CHECKING:
    from sandbox_kernel.model import Violation


class JailServer(ABC):
    """Use it as a context manager, or call ``close``."""

    #: What it is called in errors, and how much of a line it reads at once.
    what: str
    limit: int = 1 << 16

    def __init__(self) -> None:
        self._servers: list[asyncio.Server] = []
        self._connections: set[asyncio.Task[None]] = set()
        self._closed = False

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

    def take_failures(self) -> tuple[str, ...]:
        """What was allowed and not reached since the last time, as notes; for clients that hide why."""
        return ()

    @abstractmethod
    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, to its end."""

    async def _listen(self, listener: socket.socket) -> None:
        self._servers.append(await asyncio.start_server(self._accept, sock=listener, limit=self.limit))

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
        finally:
            self._connections.discard(task)

    async def _shut(self) -> None:
        for server in self._servers:
            server.close()
        tasks = tuple(self._connections)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

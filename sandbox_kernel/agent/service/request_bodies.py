"""Reads the bodies of requests, and bounds what all of them together hold in the server's memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator

import h11

#: The largest body of a request, and all bodies together that are held at a time, in bytes.
MAX_BODY, MAX_HELD = 64 << 20, 256 << 20
#: How much of the body of a refused request is read, so that its client reads the answer and not a broken connection.
MAX_IGNORED = 1 << 20
_CHUNK = 1 << 16


class BodyTooLarge(Exception):
    """The body of a request is larger than ``MAX_BODY``."""


class NoRoom(Exception):
    """The bodies that are held leave no room for this one."""


class BodyRoom:
    """What the bodies of all requests hold. Used on one event loop."""

    def __init__(self) -> None:
        self._held = 0

    @contextlib.contextmanager
    def request(self) -> Iterator[RequestRoom]:
        """Yield the room of one request; it is given back at the end of the block."""
        room = RequestRoom(self)
        try:
            yield room
        finally:
            self._held -= room.size

    def take(self, size: int) -> None:
        """Count bytes that will be held. Raises ``NoRoom``."""
        if self._held + size > MAX_HELD:
            raise NoRoom
        self._held += size


class RequestRoom:
    """What the body of one request holds."""

    def __init__(self, room: BodyRoom) -> None:
        self._room = room
        self.size = 0

    def take(self, size: int) -> None:
        """Count bytes before they are held. Raises ``BodyTooLarge`` or ``NoRoom``."""
        if self.size + size > MAX_BODY:
            raise BodyTooLarge
        self._room.take(size)
        self.size += size


def has_body(request: h11.Request) -> bool:
    """Whether a body follows the head of a request."""
    return announced(request) > 0 or any(name == b"transfer-encoding" for name, _ in request.headers)


def announced(request: h11.Request) -> int:
    """Return how long the body will be, as far as its request says so."""
    return max((int(value) for name, value in request.headers if name == b"content-length"), default=0)


async def next_event(connection: h11.Connection, reader: asyncio.StreamReader) -> object:
    """Return what the client sent next."""
    while (event := connection.next_event()) is h11.NEED_DATA:
        connection.receive_data(await reader.read(_CHUNK))
    return event


async def read_body(connection: h11.Connection, reader: asyncio.StreamReader, room: RequestRoom) -> bytes:
    """Return the body of a request. Raises ``BodyTooLarge`` or ``NoRoom``."""
    body = bytearray()
    async for part in _parts(connection, reader):
        if len(body) + len(part) > room.size:
            room.take(len(body) + len(part) - room.size)
        body += part
    return bytes(body)


async def ignore_body(connection: h11.Connection, reader: asyncio.StreamReader) -> None:
    """Read the rest of a request that is refused, and keep nothing; a long one is left."""
    size = 0
    async for part in _parts(connection, reader):
        size += len(part)
        if size > MAX_IGNORED:
            return


async def wait_for_end(connection: h11.Connection, reader: asyncio.StreamReader) -> None:
    """Return when the client closes its connection. What it sends before that is kept for the next request."""
    size = 0
    while data := await reader.read(_CHUNK):
        connection.receive_data(data)
        size += len(data)
        if size > _CHUNK:
            await asyncio.Event().wait()


async def _parts(connection: h11.Connection, reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while not isinstance(event := await next_event(connection, reader), h11.EndOfMessage):
        if not isinstance(event, h11.Data):
            raise EOFError
        yield bytes(event.data)

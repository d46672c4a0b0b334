"""Parses the server name in the first message of a TLS client. Pure: bytes in, ``ClientHello`` out.

The message may be spread over several records and several reads. Both are joined here, because splitting the name is a
known way to bypass filters. Anything that is not exactly a ClientHello raises ``ValueError``.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Largest ClientHello; one with post-quantum keys has about 2 KiB.
MAX_HELLO_BYTES = 32 * 1024

#: The fatal TLS alert ``unrecognized_name``; client libraries show it by that name.
ALERT_UNRECOGNISED_NAME = b"\x15\x03\x01\x00\x02\x02\x70"

_HANDSHAKE_RECORD = 22
_CLIENT_HELLO = 1
_SERVER_NAME = 0
_ENCRYPTED_CLIENT_HELLO = 0xFE0D


@dataclass(frozen=True)
class ClientHello:
    """The unencrypted part of a ClientHello. ``encrypted``: a second, encrypted hello may name another server."""

    server_name: str | None
    encrypted: bool


class _Cursor:
    """Reads length-prefixed fields. Raises ``ValueError`` instead of reading past the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise ValueError("a length in the TLS hello points past its end")
        self._at, piece = end, self._data[self._at : end]
        return piece

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), "big")

    def field(self, width: int) -> _Cursor:
        return _Cursor(self.take(self.number(width)))

    @property
    def rest(self) -> bytes:
        return self._data[self._at :]


class HelloReader:
    """Joins a hello from pieces of any size; looks at each byte once."""

    def __init__(self) -> None:
        self._header = bytearray()
        self._left = 0  # bytes of the current record that have not arrived
        self._message = bytearray()
        self._size = 0

    def feed(self, data: bytes) -> ClientHello | None:
        """Add bytes. Returns the hello when it is complete, else None; ignores bytes after it."""
        at = 0
        while at < len(data):
            if not self._left:
                head = data[at : at + 5 - len(self._header)]
                at += self._count(head)
                self._header += head
                self._left = self._record_length()
            piece = data[at : at + self._left]
            at += self._count(piece)
            self._left -= len(piece)
            self._message += piece
            if self._message[:1] and self._message[0] != _CLIENT_HELLO:
                raise ValueError("the first TLS message is not a ClientHello")
            end = 4 + int.from_bytes(self._message[1:4], "big")
            if len(self._message) >= max(4, end):
                return _read_body(bytes(self._message[4:end]))
        return None

    def _count(self, piece: bytes) -> int:
        self._size += len(piece)
        if self._size > MAX_HELLO_BYTES:
            raise ValueError(f"the TLS hello is longer than {MAX_HELLO_BYTES} bytes")
        return len(piece)

    def _record_length(self) -> int:
        """Return the length in the header of a record; 0 while the header is incomplete."""
        if self._header[0] != _HANDSHAKE_RECORD:
            raise ValueError("this is not TLS")
        if len(self._header) > 1 and self._header[1] != 3:
            raise ValueError("this is not a TLS version")
        if len(self._header) < 5:
            return 0
        length = int.from_bytes(self._header[3:5], "big")
        if not 1 <= length <= 1 << 14:
            raise ValueError("a TLS record has an impossible length")
        self._header.clear()
        return length


def _read_body(body: bytes) -> ClientHello:
    hello = _Cursor(body)
    hello.take(2 + 32)  # version, random
    hello.field(1)  # session
    hello.field(2)  # cipher suites
    hello.field(1)  # compression
    if not hello.rest:
        return ClientHello(None, False)
    extensions = hello.field(2)
    seen: dict[int, bytes] = {}
    while extensions.rest:
        kind = extensions.number(2)
        if kind in seen:
            raise ValueError("an extension of the TLS hello appears twice")
        seen[kind] = extensions.field(2).rest
    name = _read_server_name(seen[_SERVER_NAME]) if _SERVER_NAME in seen else None
    return ClientHello(name, _ENCRYPTED_CLIENT_HELLO in seen)


def _read_server_name(extension: bytes) -> str:
    outer = _Cursor(extension)
    names = outer.field(2)
    kind = names.number(1)
    name = names.field(2).rest
    if kind != 0 or names.rest or outer.rest or not name.isascii():
        raise ValueError("the TLS hello does not name exactly one server")
    return name.decode("ascii")

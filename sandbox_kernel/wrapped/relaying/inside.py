"""ZMTP 3.0, the protocol of ZeroMQ sockets, for the connections to a kernel in a jail. No input or output happens here.

libzmq is not used on this side for two reasons. It makes its connections itself, and the host cannot connect into the
network of a jail: it gets sockets that are connected. And it collects any number of parts of a message, of any size, in
the memory of this process. Here a message that is too large is skipped and counted. Everything that is read is hostile.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence

#: The longest message that is accepted, in bytes, and the most parts of one.
MAX_MESSAGE = 64 << 20
MAX_PARTS = 1024
#: The longest command of a handshake.
_MAX_COMMAND = 4096

_MORE, _LONG, _COMMAND = 1, 2, 4
_GREETING_SIZE = 64
GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
#: What a subscriber sends to get every message.
SUBSCRIBE_ALL = b"\x01"


class ZmtpError(Exception):
    """The peer does not speak the protocol. The connection is of no use any more."""


def ready(socket_type: bytes, identity: bytes = b"") -> bytes:
    """Encode the command that ends our part of the handshake."""
    properties = [(b"Socket-Type", socket_type)]
    if identity:
        properties.append((b"Identity", identity))
    body = b"\x05READY" + b"".join(
        bytes([len(name)]) + name + len(value).to_bytes(4, "big") + value for name, value in properties
    )
    return bytes([_COMMAND, len(body)]) + body


def encode(parts: Sequence[bytes]) -> bytes:
    """Encode one message."""
    out = []
    last = len(parts) - 1
    for number, part in enumerate(parts):
        flags = _MORE if number < last else 0
        size = len(part)
        out.append(bytes((flags, size)) if size < 256 else bytes((flags | _LONG,)) + size.to_bytes(8, "big"))
        out.append(part)
    return b"".join(out)


class ZmtpReader:
    """Splits the bytes of one connection into messages; ``dropped`` counts messages that were too large."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        #: Where the next frame begins in the buffer.
        self._at = 0
        self._greeted = False
        #: Whether the peer has ended its part of the handshake: its messages follow.
        self.ready = False
        self._parts: list[bytes] = []
        self._size = 0
        #: Bytes of the present frame that are skipped, and whether the rest of the message is too.
        self._skip = 0
        self._skipping = False
        self.dropped = 0

    def feed(self, data: bytes) -> list[list[bytes]]:
        """Add bytes and return the messages that are complete. Raises ``ZmtpError``."""
        if self._skip:
            taken = min(self._skip, len(data))
            self._skip -= taken
            data = data[taken:]
        messages: list[list[bytes]] = []
        self._buffer += data
        if not self._greeted:
            if len(self._buffer) < _GREETING_SIZE:
                return []
            if self._buffer[0] != 0xFF or self._buffer[10] < 3 or self._buffer[12:17] != b"NULL\0":
                raise ZmtpError("the kernel does not speak ZMTP 3 without encryption")
            self._greeted, self._at = True, _GREETING_SIZE
        while self._next(messages):
            pass
        del self._buffer[: self._at]
        self._at = 0
        return messages

    def _next(self, messages: list[list[bytes]]) -> bool:
        """Take one frame out of the buffer; returns False when it holds no complete frame."""
        buffer, at = self._buffer, self._at
        if len(buffer) < at + 2:
            return False
        flags = buffer[at]
        if flags & ~(_MORE | _LONG | _COMMAND):
            raise ZmtpError(f"the kernel sent a frame with unknown flags {flags:#x}")
        begin = at + (9 if flags & _LONG else 2)
        if len(buffer) < begin:
            return False
        size = int.from_bytes(buffer[at + 1 : begin], "big")
        if flags & _COMMAND:
            return self._command(begin, size)
        if not self.ready:
            raise ZmtpError("the kernel sent a message before its handshake")
        if self._skipping or self._size + size > MAX_MESSAGE or len(self._parts) >= MAX_PARTS:
            # The rest of a message that is too large is left out.
            self._parts, self._size = [], 0
            self._skipping = bool(flags & _MORE)
            if not self._skipping:
                self.dropped += 1
            here = min(size, len(buffer) - begin)
            self._at, self._skip = begin + here, size - here
            return not self._skip
        end = begin + size
        if len(buffer) < end:
            return False
        self._at = end
        self._parts.append(bytes(memoryview(buffer)[begin:end]))
        self._size += size
        if not flags & _MORE:
            messages.append(self._parts)
            self._parts, self._size = [], 0
        return True

    def _command(self, begin: int, size: int) -> bool:
        if size > _MAX_COMMAND:
            raise ZmtpError(f"the kernel sent a command of {size} bytes")
        if len(self._buffer) < begin + size:
            return False
        body = bytes(self._buffer[begin : begin + size])
        self._at = begin + size
        if body.startswith(b"\x05READY"):
            self.ready = True
        elif not self.ready:
            raise ZmtpError("the kernel refused the handshake")
        return True


# One connection to a port of the kernel: a connected socket, the protocol on it, and what waits to be sent.

#: Our own name towards the kernel, on all sockets: it sends a prompt to the peer that sent the cell on another one.
IDENTITY = b"sandbox-relay"
_CHUNK = 1 << 20
#: What is read at once may be tens of thousands of frames: front ends are heard in between.
_READ = 1 << 16
#: Beyond these bytes nothing more waits for a kernel that does not read its control channel.
_MOST_WAITING = 1 << 20


class InnerConnection:
    """A ZeroMQ peer of one of the kernel's sockets. It never blocks."""

    def __init__(self, channel: str, sock: socket.socket) -> None:
        self.channel = channel
        self._socket = sock
        self.reader = ZmtpReader()
        #: What waits to be sent.
        self.waiting = bytearray(GREETING)
        kind = b"SUB" if channel == "iopub" else b"DEALER"
        self.waiting += ready(kind, IDENTITY if kind == b"DEALER" else b"")
        #: What is sent when the kernel has ended its part of the handshake: before that, it accepts no message.
        self._then = encode([SUBSCRIBE_ALL]) if channel == "iopub" else b""
        self.closed = False
        self.flush()

    def fileno(self) -> int:
        """Return the descriptor, for a poller."""
        return self._socket.fileno()

    @property
    def is_full(self) -> bool:
        """Whether something waits to be sent, or nothing may be sent yet: nothing is taken from the front end."""
        return bool(self.waiting) or not self.reader.ready

    def send(self, parts: Sequence[bytes]) -> None:
        """Send a message, now or when the kernel reads; one of too many that it does not read is dropped."""
        data = encode(parts)
        if self.channel == "control" and len(self.waiting) + len(self._then) > _MOST_WAITING:
            return
        if not self.reader.ready:
            self._then += data
            return
        if self.waiting:
            self.waiting += data
            return
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.closed = True
            return
        if sent < len(data):
            self.waiting += memoryview(data)[sent:]

    def flush(self) -> None:
        """Send what waits, as far as the kernel reads."""
        try:
            while self.waiting:
                sent = self._socket.send(memoryview(self.waiting)[:_CHUNK])
                del self.waiting[:sent]
        except BlockingIOError:
            return
        except OSError:
            self.closed = True
            self.waiting.clear()

    def receive(self) -> list[list[bytes]]:
        """Read once and return the complete messages. Raises ``ZmtpError``; sets ``closed`` at the end."""
        try:
            data = self._socket.recv(_READ)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self.closed = True
            return []
        messages = self.reader.feed(data)
        if self._then and self.reader.ready:
            self.waiting += self._then
            self._then = b""
            self.flush()
        return messages

    def close(self) -> None:
        """Close the socket. May be called twice."""
        self.closed = True
        self._socket.close()

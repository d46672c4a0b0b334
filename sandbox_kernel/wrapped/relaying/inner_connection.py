"""One connection to a port of the kernel: a connected socket, the protocol on it, and what waits to be sent."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from sandbox_kernel.wrapped.relaying import zmtp
from sandbox_kernel.wrapped.relaying.zmtp import ZmtpReader

#: Our own name towards the kernel. It sends a prompt to the peer that sent the cell, on another socket: both must have
#: the same name.
IDENTITY = b"sandbox-relay"
_CHUNK = 1 << 20


class InnerConnection:
    """A ZeroMQ peer of one of the kernel's sockets. It never blocks."""

    def __init__(self, channel: str, sock: socket.socket) -> None:
        self.channel = channel
        self._socket = sock
        self._reader = ZmtpReader()
        self._waiting = bytearray(zmtp.GREETING)
        kind = b"SUB" if channel == "iopub" else b"DEALER"
        self._waiting += zmtp.ready(kind, IDENTITY if kind == b"DEALER" else b"")
        #: What is sent when the kernel has ended its part of the handshake: before that, it accepts no message.
        self._then = zmtp.encode([zmtp.SUBSCRIBE_ALL]) if channel == "iopub" else b""
        self.closed = False
        self.flush()

    def fileno(self) -> int:
        """Return the descriptor, for a poller."""
        return self._socket.fileno()

    @property
    def state(self) -> tuple[bool, bool, bool]:
        """Return what decides which events matter: whether it is closed, full, and wants to write."""
        waits = bool(self._waiting)
        return self.closed, waits or not self._reader.ready, waits

    @property
    def is_full(self) -> bool:
        """Whether something waits to be sent, or nothing may be sent yet: nothing is taken from the front end."""
        return bool(self._waiting) or not self._reader.ready

    @property
    def wants_to_write(self) -> bool:
        """Whether something waits to be sent."""
        return bool(self._waiting)

    @property
    def dropped(self) -> int:
        """How many messages of the kernel were too large."""
        return self._reader.dropped

    def send(self, parts: Sequence[bytes]) -> None:
        """Send a message, now or when the kernel reads."""
        data = zmtp.encode(parts)
        if self._waiting:
            self._waiting += data
            return
        try:
            sent = self._socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self.closed = True
            return
        if sent < len(data):
            self._waiting += memoryview(data)[sent:]

    def flush(self) -> None:
        """Send what waits, as far as the kernel reads."""
        try:
            while self._waiting:
                sent = self._socket.send(memoryview(self._waiting)[:_CHUNK])
                del self._waiting[:sent]
        except BlockingIOError:
            return
        except OSError:
            self.closed = True
            self._waiting.clear()

    def receive(self) -> list[list[bytes]]:
        """Read once and return the complete messages. Raises ``ZmtpError``; sets ``closed`` at the end."""
        try:
            data = self._socket.recv(_CHUNK)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self.closed = True
            return []
        messages = self._reader.feed(data)
        if self._then and self._reader.ready:
            self._waiting += self._then
            self._then = b""
            self.flush()
        return messages

    def close(self) -> None:
        """Close the socket. May be called twice."""
        self.closed = True
        self._socket.close()

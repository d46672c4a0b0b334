"""Two framings of JSON messages on sockets: that of the Debug Adapter Protocol, and that of the host's channel."""

from __future__ import annotations

import json
import socket
import struct
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

#: References taken before the first cell, because a cell may replace these functions.
_dumps, _loads = json.dumps, json.loads

#: The largest message in bytes. The host accepts no larger one; of the tracer's a larger one is replaced by an error.
MAX_MESSAGE = 4 << 20


class HostStream:
    """Messages to and from the host: four bytes of length, then JSON."""

    def __init__(self, fd: int) -> None:
        self.socket = socket.socket(fileno=fd)
        self.socket.settimeout(None)  # the program may have set a default for all sockets
        self._buffer = b""
        self._lock = threading.Lock()

    def send(self, message: Dict[str, Any]) -> bool:
        """Send one message; False when it is too large."""
        data = _dumps(message, default=str).encode()
        if len(data) > MAX_MESSAGE:
            return False
        with self._lock:
            self.socket.sendall(struct.pack(">I", len(data)) + data)
        return True

    def read(self) -> List[Dict[str, Any]] | None:
        """Return the messages that are complete after one read; None at the end of the stream."""
        part = self.socket.recv(1 << 18)
        if not part:
            return None
        self._buffer += part
        found: List[Dict[str, Any]] = []
        while len(self._buffer) >= 4:
            (size,) = struct.unpack(">I", self._buffer[:4])
            if len(self._buffer) < 4 + size:
                break
            found.append(_loads(self._buffer[4 : 4 + size]))
            self._buffer = self._buffer[4 + size :]
        return found


class DapStream:
    """Messages to and from pydevd: HTTP-like headers, then JSON."""

    def __init__(self, own: socket.socket) -> None:
        self.socket = own
        self._buffer = bytearray()

    def send(self, message: Dict[str, Any]) -> None:
        """Send one message."""
        data = _dumps(message).encode()
        self.socket.sendall(b"Content-Length: %d\r\n\r\n" % len(data) + data)

    def read(self) -> List[Dict[str, Any]] | None:
        """Return the messages that are complete after one read; None at the end of the stream."""
        part = self.socket.recv(1 << 18)
        if not part:
            return None
        self._buffer += part
        found: List[Dict[str, Any]] = []
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            size = int(bytes(self._buffer[:end]).lower().partition(b"content-length:")[2].split()[0])
            if len(self._buffer) < end + 4 + size:
                break
            found.append(_loads(bytes(self._buffer[end + 4 : end + 4 + size])))
            del self._buffer[: end + 4 + size]
        return found

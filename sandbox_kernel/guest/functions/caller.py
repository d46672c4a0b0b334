"""Calls host functions: makes a pair of sockets, sends one through the hatch, and talks over the other.

A connection belongs to one thread of one process. After a fork (a checkpoint of a session is one) or a rollback it is
opened anew, so the messages of two processes never mix. Standard library only, Python 3.8 or later.
"""

from __future__ import annotations

import array
import json
import os
import socket
import struct
import threading

from .values import decode, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator


class HostError(Exception):
    """A host function raised an exception, or the call was refused. ``type`` is the name of the host's exception."""

    def __init__(self, type: str, message: str) -> None:  # noqa: A002 - the name that programs read
        super().__init__(type, message)
        self.type = type
        self.message = message

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


class _Line:
    """One connection to the host."""

    def __init__(self, hatch: int) -> None:
        self.pid = os.getpid()
        self.held = bytearray()
        self.socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        knock = socket.socket(fileno=os.dup(hatch))
        try:
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [theirs.fileno()]))]
            knock.sendmsg([b"\0"], rights)
        finally:
            knock.close()
            theirs.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(struct.pack(">I", len(data)) + data)

    def receive(self) -> Dict[str, Any] | None:
        """Return the answer; None when the host has closed the connection."""
        header = self._exactly(4)
        if header is None:
            return None
        data = self._exactly(struct.unpack(">I", header)[0])
        return None if data is None else json.loads(data)

    def _exactly(self, size: int) -> bytes | None:
        held = self.held
        while len(held) < size:
            try:
                part = self.socket.recv(max(65536, min(size - len(held), 1 << 20)))
            except ConnectionError:
                return None
            if not part:
                return None
            held += part
        found = bytes(held[:size])
        del held[:size]
        return found


class Caller:
    """Calls functions of the host through one hatch."""

    def __init__(self, hatch: int) -> None:
        self.hatch = hatch
        self._lines = threading.local()

    def call(self, name: str, args: object, kwargs: object) -> Any:
        """Call a function and return its result; an iterator for a function that streams."""
        answer = self.ask({"call": name, "args": encode(args), "kwargs": encode(kwargs)})
        if "stream" in answer:
            return self._items(answer["stream"])
        return decode(answer["value"])

    def ask(self, message: Dict[str, Any]) -> Dict[str, Any]:
        """Send a message and return the answer; raises ``HostError`` when it is one."""
        data = json.dumps(message, separators=(",", ":")).encode("utf-8", "replace")
        line = getattr(self._lines, "line", None)
        if line is None or line.pid != os.getpid():
            line = self._lines.line = _Line(self.hatch)
        done = False
        try:
            answer = self._exchange(line, data)
            done = True
        finally:
            if not done:
                # After an interrupt nobody knows what is still on the way.
                self._lines.line = None
                line.socket.close()
        if "error" in answer:
            raise HostError(answer["error"]["type"], answer["error"]["message"])
        return answer

    def _exchange(self, line: _Line, data: bytes) -> Dict[str, Any]:
        try:
            line.send(data)
        except ConnectionError:
            # The host has closed this connection between two cells, or it tells why it refuses.
            answer = line.receive()
            if answer is None:
                self._lines.line = line = _Line(self.hatch)
                try:
                    line.send(data)
                except ConnectionError:
                    pass  # closed at once; the reason may be there to be read
                answer = line.receive()
        else:
            answer = line.receive()
        if answer is None:
            raise HostError("ConnectionLost", "the host closed the connection; a limit of its functions is reached")
        return answer

    def _items(self, stream: int) -> Iterator[Any]:
        ended = False
        try:
            while True:
                answer = self.ask({"next": stream})
                if "end" in answer:
                    ended = True
                    return
                yield decode(answer["value"])
        except HostError:
            ended = True
            raise
        finally:
            if not ended:
                try:
                    self.ask({"drop": stream})
                except (HostError, OSError):
                    pass

"""Calls host functions: makes a pair of sockets, sends one through the hatch, and talks over the other.

A connection belongs to one thread of one process. After a fork (a checkpoint of a session is one) or a rollback it is
opened anew, so the messages of two processes never mix. Standard library only, Python 3.8 or later.
"""

from __future__ import annotations

import array
import os
import socket
import struct
import threading

from .calling import Calls, HostError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable

#: How often a waiting call looks whether its program was interrupted, in seconds.
_SLICE_S = 0.05


class CallStopped(Exception):
    """The program was interrupted while it waited for an answer."""


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

    def receive(self, stopped: Callable[[], bool] | None) -> bytes | None:
        """Return the answer; None when the host has closed the connection."""
        if stopped is not None:
            self.socket.settimeout(_SLICE_S)
        header = self._exactly(4, stopped)
        answer = None if header is None else self._exactly(struct.unpack(">I", header)[0], stopped)
        if stopped is not None:
            self.socket.settimeout(None)
        return answer

    def _exactly(self, size: int, stopped: Callable[[], bool] | None) -> bytes | None:
        held = self.held
        while len(held) < size:
            try:
                part = self.socket.recv(max(65536, min(size - len(held), 1 << 20)))
            except ConnectionError:
                return None
            except socket.timeout:  # noqa: UP041 - another name than TimeoutError before Python 3.10
                if stopped is not None and stopped():
                    raise CallStopped from None
                continue
            if not part:
                return None
            held += part
        found = bytes(held[:size])
        del held[:size]
        return found


class Caller(Calls):
    """Calls functions of the host through one hatch.

    ``stopped`` is asked while a call waits, where an interrupt is not an exception; None where it is one.
    """

    def __init__(self, hatch: int, stopped: Callable[[], bool] | None = None) -> None:
        self.hatch = hatch
        self.stopped = stopped
        self._lines = threading.local()

    def exchange(self, data: bytes) -> bytes:
        """See ``Calls``."""
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
        return answer

    def _exchange(self, line: _Line, data: bytes) -> bytes:
        try:
            line.send(data)
        except ConnectionError:
            # The host has closed this connection between two cells, or it tells why it refuses.
            answer = line.receive(self.stopped)
            if answer is None:
                self._lines.line = line = _Line(self.hatch)
                try:
                    line.send(data)
                except ConnectionError:
                    pass  # closed at once; the reason may be there to be read
                answer = line.receive(self.stopped)
        else:
            answer = line.receive(self.stopped)
        if answer is None:
            raise HostError("ConnectionLost", "the host closed the connection; a limit of its functions is reached")
        return answer

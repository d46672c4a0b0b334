"""Calls host functions: makes a pair of sockets, sends one through the call socket, and talks over the other.

A connection carries one call at a time and belongs to one process. After a fork (a checkpoint of a session is one) or a
rollback it is opened anew, so the messages of two processes never mix. A thread that calls while ``MOST`` others call
waits for one of them. Standard library only, Python 3.8 or later.

The command ``host`` starts an interpreter for each call. So this file imports the C modules of which ``socket`` and
``queue`` are made; they are loaded in a fraction of the time.
"""

from __future__ import annotations

import os
import sys
from _queue import SimpleQueue
from _socket import AF_UNIX, SCM_RIGHTS, SOCK_STREAM, SOL_SOCKET, socket, socketpair, timeout

from ..gate.wire import frame, frame_end
from .calling import Calls, HostError, make_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List

#: The most connections of one process. The host serves a few more (``MAX_CONNECTIONS``), for other processes inside.
MOST = 12
#: How often a waiting call looks whether its program was interrupted, in seconds.
_SLICE_S = 0.05


class CallStopped(Exception):
    """The program was interrupted while it waited for an answer."""


class _Line:
    """One connection to the host."""

    def __init__(self, call_socket: int) -> None:
        self.held = bytearray()
        self.socket, theirs = socketpair(AF_UNIX, SOCK_STREAM)
        knock = socket(fileno=os.dup(call_socket))
        for each in (self.socket, theirs, knock):
            each.settimeout(None)  # the program may have set a default for all sockets
        try:
            knock.sendmsg([b"\0"], [(SOL_SOCKET, SCM_RIGHTS, theirs.fileno().to_bytes(4, sys.byteorder))])
        finally:
            knock.close()
            theirs.close()

    def send(self, data: bytes) -> bool:
        """Return False when the host has closed the connection; the reason may be there to be read."""
        try:
            self.socket.sendall(frame(data))
        except ConnectionError:
            return False
        return True

    def receive(self, stopped: Callable[[], bool] | None) -> bytes | None:
        """Return the answer; None when the host has closed the connection."""
        held = self.held
        if stopped is not None:
            self.socket.settimeout(_SLICE_S)
        while not (end := frame_end(held)):
            try:
                part = self.socket.recv(max(65536, min(len(held), 1 << 20)))
            except ConnectionError:
                return None
            except timeout:  # another name than TimeoutError before Python 3.10
                if stopped is not None and stopped():
                    raise CallStopped from None
                continue
            if not part:
                return None
            held += part
        if stopped is not None:
            self.socket.settimeout(None)
        answer = bytes(held[4:end])
        del held[:end]
        return answer


class _Lines:
    """The connections of one process that are open and not in use, and the right to use one, ``MOST`` times."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.idle: List[_Line] = []
        self.rights: SimpleQueue[None] = SimpleQueue()
        for _ in range(MOST):
            self.rights.put(None)


class Caller(Calls):
    """Calls host functions through one call socket; ``stopped`` is asked meanwhile where no exception interrupts."""

    def __init__(self, call_socket: int, stopped: Callable[[], bool] | None = None) -> None:
        super().__init__(self._exchange)
        self.call_socket = call_socket
        self.stopped = stopped
        self._lines = _Lines()

    def _exchange(self, data: bytes) -> bytes:
        lines = self._lines
        if lines.pid != os.getpid():
            lines = self._lines = _Lines()
        lines.rights.get()
        try:
            answer = self._over_line(lines, data)
        finally:
            lines.rights.put(None)
        if answer is None:
            raise HostError("ConnectionLost", "the host closed the connection; a limit of its functions is reached")
        return answer

    def _over_line(self, lines: _Lines, data: bytes) -> bytes | None:
        try:
            line = lines.idle.pop()
        except IndexError:
            line = _Line(self.call_socket)
        answer = None
        try:
            sent = line.send(data)
            answer = line.receive(self.stopped)
            if answer is None and not sent:
                # The host has closed this connection between two cells.
                line.socket.close()
                line = _Line(self.call_socket)
                line.send(data)
                answer = line.receive(self.stopped)
        finally:
            if answer is not None:
                lines.idle.append(line)
            else:
                # After an interrupt nobody knows what is still on the way.
                line.socket.close()
        return answer


def install(call_socket: int, listing: List[List[str]]) -> None:
    """Make ``import host`` work in this interpreter."""
    sys.modules["host"] = make_module(Caller(call_socket), listing)

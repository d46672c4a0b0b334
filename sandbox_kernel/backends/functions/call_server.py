"""Serves the calls of one run or session: the host's side of the hatch through which programs call host functions.

The *hatch* is a socket that every process inside inherits. A program that wants to call makes a pair of connected
sockets and sends one of them through the hatch; the host serves it on a thread of its own, one call after the other
(``call_connection.py``). So processes and threads inside never mix their messages, and no address, path or network is
needed: a connected pair is allowed behind every kind of wall.

Everything that comes through the hatch is hostile. It must be one connected stream socket; there are at most
``MAX_CONNECTIONS`` at a time; and a program that knocks in a loop is served slowly.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import stat
import struct
import threading
import time

from sandbox_kernel.backends.functions.call_connection import OUTSIDE, CallBudget, CallConnection, refuse
from sandbox_kernel.backends.functions.host_function import HostFunctions
from sandbox_kernel.model.result import Call

#: The most connections at a time; each has a thread here.
MAX_CONNECTIONS = 16
#: The most functions of earlier cells that still run, unheard, while a later cell may call.
MAX_LEFT = 64
#: Connections of one run or cell that are taken at once. After these, each waits a little.
_BURST, _PAUSE_S = 64, 0.002
#: How often running calls are checked against their time.
_TICK_S = 0.05


class CallServer:
    """Answers calls between ``begin`` and ``finish``, and refuses them otherwise. ``close`` ends it."""

    def __init__(self, functions: HostFunctions) -> None:
        self.functions = functions
        self._hatch, self._inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._wake, self._woken = socket.socketpair()
        self._lock = threading.Lock()
        self._connections: set[CallConnection] = set()
        #: Connections of earlier cells whose functions have not ended yet.
        self._left: set[CallConnection] = set()
        self._budget: CallBudget | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._taken = 0
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="sandbox-functions", daemon=True)
        self._thread.start()

    @property
    def hatch(self) -> int:
        """The descriptor for the jail. Another program has it only if it was sent one."""
        return self._inside.fileno()

    def begin(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Answer calls from now on, with a new budget. Coroutine functions run on ``loop`` when there is one."""
        with self._lock:
            self._budget, self._loop, self._taken = CallBudget(self.functions.limits), loop, 0
        self._wake_up()

    def finish(self) -> tuple[Call, ...]:
        """End every connection and running call, and return the record of all calls since ``begin``."""
        with self._lock:
            budget, self._budget = self._budget, None
            connections = list(self._connections)
            self._left |= self._connections
            self._connections.clear()
        for connection in connections:
            connection.cancel()
        return budget.close() if budget is not None else ()

    def close(self) -> None:
        """Stop serving. May be called twice, and does not wait for functions that still run."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self.finish()
        self._wake_up()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        for end in (self._hatch, self._inside, self._wake, self._woken):
            end.close()

    def _wake_up(self) -> None:
        with contextlib.suppress(OSError):
            self._wake.send(b"\0", socket.MSG_DONTWAIT)

    def _serve(self) -> None:
        waiting = select.poll()
        waiting.register(self._hatch, select.POLLIN)
        waiting.register(self._woken, select.POLLIN)
        while not self._closed:
            ready = {fd for fd, _ in waiting.poll(_TICK_S * 1000 if self._budget is not None else None)}
            if self._woken.fileno() in ready:
                self._woken.recv(4096)
            if self._hatch.fileno() in ready and not self._closed:
                self._take()
            for connection in list(self._connections):
                connection.look_at_time()

    def _take(self) -> None:
        """Take what came through the hatch: one connected stream socket begins a connection, all else is closed.

        A message of no bytes is a message too, and not the end: we hold the inner end ourselves.
        """
        try:
            _, extra, _, _ = self._hatch.recvmsg(64, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC)
        except OSError:
            extra = []
        handed = [
            fd
            for level, kind, raw in extra
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
            for (fd,) in struct.iter_unpack("i", raw[: len(raw) - len(raw) % 4])
        ]
        caller = _connected(handed)
        why, connection = "", None
        with self._lock:
            self._taken += 1
            slow = self._taken > _BURST
            if self._budget is None:
                why = OUTSIDE
            elif len(self._connections) >= MAX_CONNECTIONS:
                why = f"the limit of {MAX_CONNECTIONS} calls of host functions at the same time is reached"
            elif len(self._left) >= MAX_LEFT:
                why = f"{len(self._left)} host functions that earlier cells called have not ended yet"
            elif caller is not None:
                connection = CallConnection(caller, self.functions, self._budget, self._loop, self._ended)
                self._connections.add(connection)
        if connection is not None:
            connection.start()
        elif caller is not None:
            refuse(caller, why)
        if slow:
            time.sleep(_PAUSE_S)

    def _ended(self, connection: CallConnection) -> None:
        with self._lock:
            self._connections.discard(connection)
            self._left.discard(connection)


def _connected(handed: list[int]) -> socket.socket | None:
    """Return the one connected unix stream socket among these descriptors; closes everything else."""
    if len(handed) == 1 and stat.S_ISSOCK(os.fstat(handed[0]).st_mode):
        with contextlib.suppress(OSError):
            found = socket.socket(fileno=handed[0])
            usual = (found.family, found.type) == (socket.AF_UNIX, socket.SOCK_STREAM)
            if usual and not found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                return found
            found.close()
            return None
    for fd in handed:
        with contextlib.suppress(OSError):
            os.close(fd)
    return None

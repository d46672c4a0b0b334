"""The worker's end of the channel to the host: frames of JSON, whole or not at all.

The user's code runs in this same process and may be interrupted anywhere, so a frame is sent by one system call that
no signal can cut in two, and an answer that is awaited *during* a cell is looked at before it is taken.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import struct
import threading

from .signals import EVERY_SIGNAL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict


#: Larger frames are refused by the host, which ends the worker.
MAX_FRAME = 16 << 20
#: Strings, opening brackets and commas of one frame; the host counts them too.
MAX_PARTS = 320_000


def parts(value: Any) -> int:
    """How many strings, opening brackets and commas a value has as JSON, or a few more."""
    if isinstance(value, dict):
        return 1 + sum(2 + parts(item) for item in value.values())
    if isinstance(value, (list, tuple)):
        return 1 + sum(1 + parts(item) for item in value)
    return 1


class HostChannel:
    """One socket to the host; several threads of a cell may send."""

    def __init__(self, fd: int) -> None:
        os.set_inheritable(fd, False)
        self._socket = socket.socket(fileno=fd)
        self._buffer = b""
        self.lock = threading.Lock()

    def send(self, message: Dict[str, Any]) -> bool:
        """Send one message; False when it is too large to be sent, in bytes or in parts."""
        # A lone surrogate is text in Python; the host makes it readable.
        data = json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass")
        if len(data) > MAX_FRAME or (len(data) > MAX_PARTS and parts(message) > MAX_PARTS):
            return False
        # Looked at before it is changed: an interrupt may strike in the very call that changes it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, EVERY_SIGNAL)
            with self.lock:
                self._socket.sendall(struct.pack(">I", len(data)) + data)
        except OSError:
            # The cell closed our descriptor, or the host is gone: a worker that nobody hears must not go on.
            os._exit(125)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return True

    def receive(self) -> Dict[str, Any]:
        """The next message, between cells."""
        while True:
            if len(self._buffer) >= 4:
                (size,) = struct.unpack(">I", self._buffer[:4])
                if len(self._buffer) >= 4 + size:
                    data, self._buffer = self._buffer[4 : 4 + size], self._buffer[4 + size :]
                    message: Dict[str, Any] = json.loads(data)
                    return message
            try:
                part = self._socket.recv(1 << 20)
            except OSError:
                os._exit(125)
            if not part:
                os._exit(0)
            self._buffer += part

    def waiting(self) -> bool:
        """Whether the host has already sent more."""
        return bool(self._buffer) or bool(select.select([self._socket], [], [], 0)[0])

    def await_answer(self) -> Dict[str, Any]:
        """A small answer during a cell, where an interrupt may come at any moment.

        What an interrupt leaves unread is a whole frame, which ``receive`` finds later and its reader ignores.
        """
        while True:
            # Waiting is what may be interrupted; the taking below is not worth interrupting.
            select.select([self._socket], [], [])
            seen = self._socket.recv(1 << 17, socket.MSG_PEEK)
            if not seen:
                os._exit(0)
            if len(seen) >= 4:
                (size,) = struct.unpack(">I", seen[:4])
                if len(seen) >= 4 + size:
                    self._socket.recv(4 + size)
                    message: Dict[str, Any] = json.loads(seen[4 : 4 + size])
                    return message

    def drain(self) -> None:
        """Forget what was meant for a worker that is dead; called by the checkpoint that takes over."""
        self._buffer = b""
        self.lock = threading.Lock()
        self._socket.setblocking(False)
        try:
            while self._socket.recv(1 << 20):
                pass
        except OSError:
            pass
        self._socket.setblocking(True)

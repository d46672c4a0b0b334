"""The worker's end of the channel to the host: JSON messages, each sent and received as a whole.

The user's code runs in this same process and may be interrupted anywhere. So all signals are blocked while a frame is
sent, and an answer that is awaited *during* a cell is taken from the socket only when it is complete.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import threading

from ..gate.wire import frame, frame_end
from . import sleeping_fork
from .signals import EVERY_SIGNAL, SIG_BLOCK, SIG_SETMASK, set_mask

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict


#: The largest frame in bytes; the host ends a worker that sends a larger one.
MAX_FRAME = 16 << 20
_DESCRIPTOR = struct.Struct("i")
#: The most strings, opening brackets and commas in one frame; the host counts them too.
MAX_PARTS = 320_000
#: How much is read at once. Python asks the system for memory, and gives it back, for each read of much more.
_CHUNK = 1 << 16


def parts(value: Any) -> int:
    """Return an upper bound of the strings, opening brackets and commas that a value has as JSON."""
    if isinstance(value, dict):
        return 1 + sum(2 + parts(item) for item in value.values())
    return 1 + sum(1 + parts(item) for item in value) if isinstance(value, (list, tuple)) else 1


#: References taken before the first cell, because a cell may replace these functions.
_dumps, _loads, _select = json.dumps, json.loads, select.select


#: Makes strict JSON of a message: raises ``ValueError`` for NaN and the infinities.
_strict = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=str).encode


def as_json(message: Dict[str, Any]) -> bytes:
    """Return a message as the host takes it: NaN and the infinities become null, a lone surrogate a question mark."""
    try:
        text = _strict(message)
    except ValueError:
        text = _strict(_loads(_dumps(message, default=str), parse_constant=lambda name: None))
    return text.encode("utf-8", "replace")


class HostChannel:
    """One socket to the host; several threads of a cell may send."""

    def __init__(self, fd: int) -> None:
        os.set_inheritable(fd, False)
        self._socket = socket.socket(fileno=fd)
        #: Grows in place: bytes would be copied whole with each part, which took seconds for an uploaded file.
        self._buffer = bytearray()
        self._given: int | None = None
        self.lock = threading.Lock()

    def send(self, message: Dict[str, Any]) -> bool:
        """Send one message; False when it is too large to be sent, in bytes or in parts."""
        data = as_json(message)
        if len(data) > MAX_FRAME or (len(data) > MAX_PARTS and parts(message) > MAX_PARTS):
            return False
        # Read the mask before changing it: an interrupt may be raised by the very call that changes it.
        before = set_mask(SIG_BLOCK, [])
        try:
            set_mask(SIG_BLOCK, EVERY_SIGNAL)
            with self.lock:
                self._socket.sendall(frame(data))
        except OSError:
            # The cell closed our descriptor, or the host is gone. Without a host the worker has to end.
            os._exit(125)
        finally:
            set_mask(SIG_SETMASK, before)
        return True

    def tell(self, data: bytes) -> bool:
        """Send a small message from a checkpoint that is not set right, in place of the killed worker's if possible."""
        return sleeping_fork.tell(self._socket.fileno(), frame(data))

    def receive(self) -> Dict[str, Any]:
        """Wait for the next message; used between cells."""
        while True:
            end = frame_end(self._buffer)
            if end:
                taken = self._buffer[4:end]
                del self._buffer[:end]
                message: Dict[str, Any] = _loads(taken)
                return message
            try:
                part, extra, _, _ = self._socket.recvmsg(_CHUNK, socket.CMSG_SPACE(_DESCRIPTOR.size))
            except OSError:
                os._exit(125)
            if not part:
                os._exit(0)
            for level, kind, data in extra:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS and len(data) >= _DESCRIPTOR.size:
                    self._given = _DESCRIPTOR.unpack(data[: _DESCRIPTOR.size])[0]
                    os.set_inheritable(self._given, False)
            self._buffer += part

    def take_descriptor(self) -> int | None:
        """Return the descriptor that came with the last message; the caller closes it. None when none came."""
        given, self._given = self._given, None
        return given

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._socket.fileno()

    def waiting(self, seconds: float = 0) -> bool:
        """Whether the host has already sent another message, or sends one within so many seconds."""
        return bool(self._buffer) or bool(_select([self._socket], [], [], seconds)[0])

    def await_answer(self) -> Dict[str, Any]:
        """Wait for a small answer during a cell; after an interrupt it stays in the socket whole, to be ignored."""
        while True:
            # An interrupt matters only in this wait; the reads below return at once.
            _select([self._socket], [], [])
            seen = self._socket.recv(1 << 17, socket.MSG_PEEK)
            if not seen:
                os._exit(0)
            end = frame_end(seen)
            if end:
                self._socket.recv(end)
                message: Dict[str, Any] = _loads(seen[4:end])
                return message

    def take_over(self) -> None:
        """Forget what the worker that was killed had read, and its lock; called by the checkpoint that takes over."""
        self._buffer = bytearray()
        self.lock = threading.Lock()

    def drain(self) -> None:
        """Discard messages for the worker that was killed; called by the checkpoint that takes over."""
        self._socket.setblocking(False)
        with contextlib.suppress(OSError):
            while self._socket.recv(1 << 20):
                pass
        self._socket.setblocking(True)

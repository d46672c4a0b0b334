"""The host's end of the socket to a debugger inside a session. A thread reads it; callers wait for replies.

The session never blocks the host: a reply is awaited for a bounded time, a message that the session does not take is
given up, and a session that floods is read more slowly.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping

from sandbox_kernel.errors import SessionError
from sandbox_kernel.jail.streams import readable
from sandbox_kernel.session.debugging.debug_messages import (
    GOING_ON,
    MAX_MESSAGE,
    DebugEvent,
    DebugReply,
    read_message,
)
from sandbox_kernel.session.debugging.pause_clock import PauseClock

_HEADER = struct.Struct(">I")
#: How long a request waits for room in the socket.
SEND_S = 5.0
#: How many messages and bytes are read at once, and in a second after that.
_MESSAGES, _BYTES = 500, 16 << 20
_MESSAGES_A_SECOND, _BYTES_A_SECOND = 100, 4 << 20

OnEvent = Callable[[DebugEvent], None]


class DebuggerGone(SessionError):
    """Raised when the session, and the debugger in it, has ended or was rolled back."""


class DebugLink:
    """One attached debugger. ``request`` may be called from any thread; ``on_event`` is called on the link's thread."""

    def __init__(self, sock: socket.socket, pause: PauseClock, on_event: OnEvent) -> None:
        self._socket = sock
        self._pause = pause
        self._on_event = on_event
        self._lock = threading.Condition()
        self._number = 0
        self._replies: dict[int, DebugReply | None] = {}
        self._closed = threading.Event()
        threading.Thread(target=self._read, name="sandbox-debug-link", daemon=True).start()

    @property
    def alive(self) -> bool:
        """Whether the debugger can still answer."""
        return not self._closed.is_set()

    def request(self, command: str, arguments: Mapping[str, object], timeout_s: float) -> DebugReply:
        """Send a request and wait for its reply; raises ``SessionError`` when none comes in time."""
        with self._lock:
            self._number += 1
            number = self._number
            self._replies[number] = None
            message = {"type": "request", "seq": number, "command": command, "arguments": dict(arguments)}
            try:
                self._send(json.dumps(message).encode())
                if command in GOING_ON:
                    self._pause.go_on()
                came = self._lock.wait_for(lambda: self._replies[number] is not None or not self.alive, timeout_s)
                reply = self._replies[number]
            finally:
                del self._replies[number]
        if reply is not None:
            return reply
        if came:
            raise DebuggerGone("the session was ended or rolled back, and the debugger with it")
        raise SessionError(f"the session did not answer {command!r} within {timeout_s:g} s")

    def close(self) -> None:
        """End the debugger; what stands goes on. May be called twice and from any thread."""
        self._closed.set()
        self._pause.go_on()
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def _send(self, data: bytes) -> None:
        view, end = memoryview(_HEADER.pack(len(data)) + data), time.monotonic() + SEND_S
        poll = select.poll()
        try:
            poll.register(self._socket, select.POLLOUT)
            while view:
                if not poll.poll(max(0.0, end - time.monotonic()) * 1000):
                    raise SessionError("the debugger of the session takes no more requests")
                view = view[self._socket.send(view, socket.MSG_DONTWAIT) :]
        except (OSError, ValueError):
            raise DebuggerGone("the session was ended or rolled back, and the debugger with it") from None

    def _read(self) -> None:
        buffer, budget = bytearray(), _Budget()
        try:
            while self.alive:
                if not readable(self._socket.fileno(), 1.0):
                    continue
                part = self._socket.recv(1 << 18, socket.MSG_DONTWAIT)
                if not part:
                    return
                buffer += part
                while len(buffer) >= _HEADER.size:
                    (size,) = _HEADER.unpack(buffer[: _HEADER.size])
                    if size > MAX_MESSAGE:
                        return
                    if len(buffer) < _HEADER.size + size:
                        break
                    raw = bytes(buffer[_HEADER.size : _HEADER.size + size])
                    del buffer[: _HEADER.size + size]
                    self._closed.wait(budget.spend(size))
                    self._take(read_message(raw))
        except (OSError, SessionError):
            return
        finally:
            self.close()
            with self._lock:
                self._socket.close()
                self._lock.notify_all()

    def _take(self, message: DebugReply | DebugEvent | None) -> None:
        if isinstance(message, DebugEvent):
            if message.name == "stopped":
                self._pause.stand()
            elif message.name == "continued":
                self._pause.go_on()
            self._on_event(message)
        elif message is not None:
            with self._lock:
                if message.number in self._replies:
                    self._replies[message.number] = message
                    self._lock.notify_all()


class _Budget:
    """How fast a session's messages are read."""

    def __init__(self) -> None:
        self._messages, self._bytes, self._at = float(_MESSAGES), float(_BYTES), time.monotonic()

    def spend(self, size: int) -> float:
        """Count one message; returns how many seconds to wait before it is taken."""
        now = time.monotonic()
        passed, self._at = now - self._at, now
        self._messages = min(_MESSAGES, self._messages + passed * _MESSAGES_A_SECOND) - 1
        self._bytes = min(_BYTES, self._bytes + passed * _BYTES_A_SECOND) - size
        return max(0.0, -self._messages / _MESSAGES_A_SECOND, -self._bytes / _BYTES_A_SECOND)

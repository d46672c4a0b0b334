"""The host's end of the socket to a debugger inside a session: checked messages, and the clock of a cell that stands.

Called by ``Session.attach_debugger`` for ``notebook/protocol/debugger.py``. The debugger runs inside the session, so a
reply can be forged: the page shows it as text, and nothing in it is executed, opened or used as a path on the host. The
session never blocks the host: every wait is bounded, and a session that floods is read more slowly.
"""

from __future__ import annotations

import contextlib
import json
import select
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from sandbox_kernel.errors import InvalidRequest, SessionError
from sandbox_kernel.jail.streams import readable
from sandbox_kernel.util.values import dataclass
from sandbox_kernel.util.wire import BadMessage, Frames, check, decode_strict, finite, frame

#: How a page computes the path of a cell; the same as in ``guest/python/cell_names.py``.
CELL_FOLDER, CELL_SUFFIX, HASH_SEED = "/tmp/ipykernel_1/", ".py", 0xC70F6907
#: The largest request of a page, and the largest message of a session, in bytes.
MAX_REQUEST, MAX_MESSAGE = 2 << 20, 4 << 20
#: The largest event: a page gets it without having asked.
MAX_EVENT = 64 << 10
#: The most threads that stand at one time.
MAX_THREADS = 1000
#: The requests of the Debug Adapter Protocol, and of Jupyter, that a session is asked.
COMMANDS = frozenset(
    [
        *("initialize", "attach", "disconnect", "configurationDone", "dumpCell", "source", "modules", "threads"),
        *("setBreakpoints", "setExceptionBreakpoints", "setFunctionBreakpoints", "stackTrace", "scopes", "variables"),
        *("continue", "next", "stepIn", "stepOut", "pause", "goto", "gotoTargets", "stepInTargets"),
        *("evaluate", "setExpression", "setVariable", "completions", "exceptionInfo"),
        *("inspectVariables", "richInspectVariables", "copyToGlobals"),
    ]
)
#: Requests after which a program that stood goes on.
GOING_ON = frozenset(["continue", "next", "stepIn", "stepOut", "goto", "disconnect"])
#: The events that a page gets.
EVENTS = frozenset(["initialized", "stopped", "continued", "thread", "breakpoint", "module", "process"])
#: How long a cell may stand at breakpoints, all together.
MAX_PAUSE_S = 1800.0
#: How long a request waits for room in the socket.
SEND_S = 5.0
#: How many messages and bytes are read at once, and in a second after that.
_MESSAGES, _BYTES = 500, 16 << 20
_MESSAGES_A_SECOND, _BYTES_A_SECOND = 100, 4 << 20
_GONE = "the session was ended or rolled back, and the debugger with it"


@dataclass(frozen=True)
class DebugRequest:
    """A request of a page."""

    command: str
    seq: int
    arguments: dict[str, Any] | None = None

    def reply(self, *, success: bool, body: Mapping[str, object] | None = None, message: str = "") -> dict[str, object]:
        """Return the reply of the protocol to this request."""
        said: dict[str, object] = {"type": "response", "seq": self.seq, "request_seq": self.seq}
        said.update(command=self.command, success=success, body=dict(body or {}))
        return {**said, "message": message} if message else said


@dataclass(frozen=True)
class DebugReply:
    """The reply of a session."""

    number: int
    success: bool
    body: Mapping[str, object]
    message: str


@dataclass(frozen=True)
class DebugEvent:
    """An event of a session. ``stopped``: for an event of that name, the threads that stand now."""

    name: str
    body: Mapping[str, object]
    stopped: tuple[int, ...] = ()


class _Message(msgspec.Struct, frozen=True):
    """A reply or an event, as it comes from a session."""

    type: str = "response"
    event: str = ""
    body: dict[str, Any] | None = None
    request_seq: int | None = None
    success: bool = False
    message: str | None = None


_DECODER = msgspec.json.Decoder(_Message, float_hook=finite)


def read_request(content: object) -> DebugRequest:
    """Check a page's request; raises ``InvalidRequest``."""
    try:
        found = check(content, DebugRequest)
    except BadMessage as error:
        raise InvalidRequest(f"a debug_request has a command, a number (seq) and arguments: {error}") from None
    if len(json.dumps(found.arguments, default=str)) > MAX_REQUEST:
        raise InvalidRequest(f"the arguments of {found.command!r:.60} are larger than {MAX_REQUEST >> 20} MB")
    return found


def read_message(raw: bytes) -> DebugReply | DebugEvent | None:
    """Check one message of a session; None for an event that no page gets. Raises ``SessionError``."""
    try:
        found = decode_strict(raw, _DECODER)
    except BadMessage as error:
        raise SessionError(f"the debugger sent a message of another form: {error}") from None
    body = found.body or {}
    if found.type == "event":
        if found.event not in EVENTS or len(raw) > MAX_EVENT:
            return None
        listed = body.pop("sandboxStopped", None)
        threads = listed if isinstance(listed, list) else [body.get("threadId")]
        known = [number for number in threads[:MAX_THREADS] if isinstance(number, int) and 0 <= number < 1 << 53]
        return DebugEvent(found.event, body, tuple(known))
    if found.request_seq is None:
        raise SessionError("the debugger sent a reply without a number")
    return DebugReply(found.request_seq, found.success, body, (found.message or "")[:2000])


class PauseClock:
    """The time that a cell stands at breakpoints. It is the user's, and does not count for the cell's time limit.

    The session says when it stands, and may lie: after ``limit_s`` the cell's clock goes on. All other limits hold
    meanwhile. Thread-safe: the link's thread stops it, the cell's loop reads it.
    """

    def __init__(self, limit_s: float = MAX_PAUSE_S) -> None:
        self._limit_s = limit_s
        self._lock = threading.Lock()
        self._since: float | None = None
        self._before = 0.0

    def begin_cell(self) -> None:
        """A cell begins: it has not stood yet."""
        with self._lock:
            self._since, self._before = None, 0.0

    def stand(self) -> None:
        """The cell stands at a breakpoint from now on."""
        with self._lock:
            if self._since is None:
                self._since = time.monotonic()

    def go_on(self) -> None:
        """The cell goes on."""
        with self._lock:
            if self._since is not None:
                self._before += time.monotonic() - self._since
                self._since = None

    def seconds(self) -> float:
        """Return how long the cell has stood, at most the limit."""
        with self._lock:
            now = 0.0 if self._since is None else time.monotonic() - self._since
            return min(self._limit_s, self._before + now)


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
            raise DebuggerGone(_GONE)
        raise SessionError(f"the session did not answer {command!r} within {timeout_s:g} s")

    def close(self) -> None:
        """End the debugger; what stands goes on. May be called twice and from any thread."""
        self._closed.set()
        self._pause.go_on()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def _send(self, data: bytes) -> None:
        view, end = memoryview(frame(data)), time.monotonic() + SEND_S
        poll = select.poll()
        try:
            poll.register(self._socket, select.POLLOUT)
            while view:
                if not poll.poll(max(0.0, end - time.monotonic()) * 1000):
                    raise SessionError("the debugger of the session takes no more requests")
                view = view[self._socket.send(view, socket.MSG_DONTWAIT) :]
        except (OSError, ValueError):
            raise DebuggerGone(_GONE) from None

    def _read(self) -> None:
        frames = Frames(MAX_MESSAGE)
        # What may be read now; it grows again with time.
        messages_left, bytes_left, at = float(_MESSAGES), float(_BYTES), time.monotonic()
        try:
            while self.alive:
                if not readable(self._socket.fileno(), 1.0):
                    continue
                part = self._socket.recv(1 << 18, socket.MSG_DONTWAIT)
                if not part:
                    return
                for raw in frames.feed(part):
                    passed, at = time.monotonic() - at, time.monotonic()
                    messages_left = min(_MESSAGES, messages_left + passed * _MESSAGES_A_SECOND) - 1
                    bytes_left = min(_BYTES, bytes_left + passed * _BYTES_A_SECOND) - len(raw)
                    late_s = max(-messages_left / _MESSAGES_A_SECOND, -bytes_left / _BYTES_A_SECOND)
                    self._closed.wait(max(0.0, late_s))
                    self._take(read_message(raw))
        except (OSError, BadMessage, SessionError):
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

"""Serves the calls of host functions of one run or session: the host's end of its *call socket*.

Every process inside inherits the other end. A program that wants to call makes a pair of connected sockets and sends
one of them through the call socket; the host serves it on a thread of its own, one call after the other. So processes
and threads inside never mix their messages, and no address, path or network is needed: a connected pair is allowed
behind every kind of wall.

Everything that comes through the call socket is hostile. It must be one connected stream socket; there are at most
``MAX_CONNECTIONS`` at a time; and a program that knocks in a loop is served slowly.

Messages are a length in four bytes, then JSON, then bytes (``call_values.py``). The program sends ``call`` with its
arguments (``CallMessage``), or ``next`` and ``drop`` with the number of a stream, for a function that returned an
iterator. The host answers each with ``value``, ``stream``, ``end`` or ``error``. Nothing of the host but the type and
the message of an exception goes inside: no traceback, no path.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
import secrets
import select
import socket
import stat
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from io import BytesIO
from typing import Any

from sandbox_kernel.backends.functions.call_values import CallMessage, bind_message, encode, load, shortened
from sandbox_kernel.backends.functions.host_function import HostFunctions
from sandbox_kernel.jail.gate_messages import receive_with_files
from sandbox_kernel.limits import FunctionLimits
from sandbox_kernel.model.result import Call, CallOutcome
from sandbox_kernel.util.loop_thread import FUNCTIONS
from sandbox_kernel.util.values import dataclass
from sandbox_kernel.util.wire import BadMessage, Frames, encodable, frame

#: The longest message of an exception that goes inside, and the longest name of an unknown function in the record.
_MAX_MESSAGE, _MAX_NAME = 4000, 64
#: How much is read at once. What is read is within the budget or is dropped with its connection.
_READ_AHEAD = 4096
#: What each message costs at least, so that streams of tiny items are bounded too.
LEAST_BYTES = 64
#: The most unfinished streams of one connection.
MAX_STREAMS = 16
#: What the record says of a call that was still running, and what a program is told that calls when none may.
ENDED = "the run or cell ended"
OUTSIDE = "host functions can be called only while their run or cell runs"
_NO_STREAM = "there is no such stream: it has ended, or another thread reads it, or its thread or cell is over"


class BudgetSpent(Exception):
    """A limit of the functions is reached. The message says which."""


@dataclass(eq=False)
class OpenCall:
    """A call that runs, or whose function returned an iterator, which is read item by item."""

    number: int
    #: Its record so far.
    call: Call
    #: The connection that called.
    owner: CallConnection
    items: Iterator[object] | AsyncIterator[object] | None = None
    future: Future[object] | None = None
    #: Whether the program has its answer: the function ended, or its time did.
    answered: bool = False
    #: Whether the program takes bytes only as base64.
    base64: bool = False


class CallBudget:
    """Counts calls, bytes and time of one run or cell, until ``close``. Every call that may run is in the record.

    It also has the unfinished streams: a program has a connection for each thread, and may read a stream over another
    one than it called with. A stream that is being read is taken out meanwhile. Its number is random, so that an
    iterator that outlived its cell never reads the stream of another.
    """

    def __init__(self, limits: FunctionLimits) -> None:
        self.limits = limits
        self.time_text = f"the time limit of {limits.seconds:g} s for host functions is reached"
        self._lock = threading.Lock()
        self._calls = self._bytes = 0
        self._seconds = 0.0
        #: When the functions that run now began (``time.monotonic``), by the number of the call.
        self._began: dict[int, float] = {}
        #: What is known of each call, by its number; and the unfinished streams by theirs. Single steps need no lock.
        self.records: dict[int, Call] = {}
        self.streams: dict[int, OpenCall] = {}
        self._closed = False

    def take_call(self) -> int:
        """Count a call and return its number. Raises ``BudgetSpent`` when there were too many."""
        with self._lock:
            if self._calls >= self.limits.calls:
                raise BudgetSpent(f"the limit of {self.limits.calls} calls of host functions is reached")
            self._calls += 1
            return self._calls

    def take_bytes(self, size: int) -> None:
        """Count a message, before it is read. Raises ``BudgetSpent`` when it does not fit any more."""
        with self._lock:
            if self._bytes + size > self.limits.bytes:
                raise BudgetSpent(f"the limit of {self.limits.bytes} bytes for host functions is reached")
            self._bytes += max(size, LEAST_BYTES)

    def begin(self, number: int, call: Call) -> None:
        """Write a call down as cancelled, which it is until it ends, and count its time. Raises ``BudgetSpent``."""
        with self._lock:
            if self._closed:
                raise BudgetSpent(OUTSIDE)
            if self.time_is_up():
                raise BudgetSpent(self.time_text)
            self._began[number] = time.monotonic()
            self.records[number] = replace(call, outcome=CallOutcome.CANCELLED, error=ENDED)

    def end(self, number: int) -> float:
        """Count the time of a function that has ended or is not waited for any more; returns its seconds."""
        with self._lock:
            took = time.monotonic() - self._began.pop(number, time.monotonic())
            self._seconds += took
            return took

    def time_is_up(self) -> bool:
        """Whether the functions have used up their time, those that run now included."""
        now = time.monotonic()
        return self._seconds + sum(now - began for began in list(self._began.values())) >= self.limits.seconds

    def streams_of(self, owner: CallConnection) -> list[int]:
        """Return the numbers of a connection's unfinished streams."""
        return [number for number, stream in list(self.streams.items()) if stream.owner is owner]

    def close(self) -> tuple[Call, ...]:
        """Let no more functions run, and return all calls in the order in which they came."""
        with self._lock:
            self._closed = True
            return tuple(self.records[number] for number in sorted(self.records))


@dataclass(eq=False)
class CallConnection:
    """Serves one connection on its own thread. ``cancel`` and ``check_time`` are called on other threads."""

    sock: socket.socket
    functions: HostFunctions
    budget: CallBudget
    loop: asyncio.AbstractEventLoop | None
    on_end: Callable[[CallConnection], None]

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._running: OpenCall | None = None
        self._cancelled = False
        #: Whether it has ended: its streams go with it, also one that another connection reads just now.
        self.over = False
        #: The budget bounds the size of a message, and of all together.
        self._frames = Frames(self.budget.limits.bytes, self.budget.take_bytes)

    def cancel(self) -> None:
        """End the connection. A coroutine function that runs is cancelled; another one ends by itself, unheard."""
        with self._lock:
            self._cancelled = True
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self._give_up(CallOutcome.CANCELLED, ENDED)

    def check_time(self) -> None:
        """Answer for a function whose time is used up; called a few times a second."""
        running = self._running
        if running is None or running.answered or not self.budget.time_is_up():
            return
        if self._give_up(CallOutcome.TIMEOUT, self.budget.time_text):
            with contextlib.suppress(OSError):
                self._write_last(_error("TimeoutError", self.budget.time_text), socket.MSG_DONTWAIT)
                self.sock.shutdown(socket.SHUT_WR)

    def _give_up(self, outcome: CallOutcome, why: str) -> bool:
        """Write down the running call as ended by us, if it was not answered yet."""
        with self._lock:
            running = self._running
            if running is None or running.answered:
                return False
            running.answered = True
            duration = running.call.duration + self.budget.end(running.number)
            self.budget.records[running.number] = replace(running.call, outcome=outcome, duration=duration, error=why)
        if running.future is not None:
            running.future.cancel()
        return True

    def serve(self) -> None:
        """Answer messages until the end of the connection."""
        try:
            while not self._cancelled and self._one():
                pass
        except OSError:
            pass  # the program closed the connection, or broke it
        finally:
            self.over = True
            for number in self.budget.streams_of(self):
                self.budget.streams.pop(number, None)
            self.sock.close()
            self.on_end(self)

    def _one(self) -> bool:
        """Answer one message. Returns whether another may follow."""
        try:
            data = self._frames.next()
            while data is None:
                # A whole small message at once: each system call is a good part of the cost of a call.
                part = self.sock.recv(max(_READ_AHEAD, min(self._frames.missing, 1 << 20)))
                if not part:
                    return False
                data = self._frames.next(part)
            message, raw = load(data)
            return self._streamed(message) if message.call is None else self._called(message.call, message, raw)
        except BudgetSpent as error:
            for number in self.budget.streams_of(self):
                if stream := self.budget.streams.pop(number, None):
                    cut = replace(stream.call, outcome=CallOutcome.ERROR, error=str(error))
                    self.budget.records[stream.number] = cut
            self._write_last(_error("LimitReached", str(error)))
        except BadMessage as error:
            self._write_last(_error("ValueError", f"the message cannot be read: {error}"))
        return False

    def _called(self, asked: str, message: CallMessage, raw: BytesIO) -> bool:
        number = self.budget.take_call()
        function = self.functions.functions.get(asked)
        # The name of a function that does not exist is one short line: it is shown to people.
        name = function.name if function is not None else repr(asked[:_MAX_NAME])[1:-1][:_MAX_NAME]
        call = Call(name=name, outcome=CallOutcome.REFUSED)
        try:
            if function is None:
                raise NameError(f"there is no host function '{name}'; there are: {', '.join(self.functions.functions)}")
            bound = bind_message(function, message, raw)
        except Exception as error:
            # Whatever the arguments are: they are the program's.
            kind, text = "ValueError" if isinstance(error, BadMessage) else type(error).__name__, _text(error)
            self.budget.records[number] = replace(call, error=f"{kind}: {text}"[:_MAX_MESSAGE])
            self._write(_error(kind, text))
            return True
        call = replace(call, arguments={key: shortened(item) for key, item in bound.arguments.items()})
        opened = OpenCall(number, call, self, base64=message.base64)
        return self._run(opened, lambda: function.call(*bound.args, **bound.kwargs))

    def _streamed(self, message: CallMessage) -> bool:
        """Send the next item of a stream, or drop the stream."""
        if message.drop is not None:
            self.budget.streams.pop(message.drop, None)
            self._write({"end": True})
            return True
        stream = None if message.next is None else self.budget.streams.pop(message.next, None)
        if stream is None:
            self._write(_error("ValueError", _NO_STREAM))
            return True
        items: Any = stream.items
        stream.future, stream.answered, stream.base64 = None, False, message.base64
        return self._run(stream, lambda: (anext if isinstance(items, AsyncIterator) else next)(items), message.next)

    def _run(self, running: OpenCall, work: Callable[[], object], stream: int | None = None) -> bool:
        """Call a function, or get the next item of a stream, which has a number, and send the answer.

        Returns False when the program got another answer meanwhile, so that this connection must end. Raises
        ``BudgetSpent`` when the function may not run.
        """
        number, call = running.number, running.call
        with self._lock:
            if self._cancelled:
                return False
            try:
                self.budget.begin(number, call)
            except BudgetSpent as spent:
                outcome = call.outcome if stream is None else CallOutcome.ERROR
                self.budget.records[number] = replace(call, outcome=outcome, error=str(spent))
                raise
            self._running = running
        outcome, error, ended = CallOutcome.OK, "", True
        try:
            result = self._awaited(work(), running)
            opens = stream is None and isinstance(result, Iterator | AsyncIterator)
            if opens and len(self.budget.streams_of(self)) >= MAX_STREAMS:
                raise BudgetSpent(f"the limit of {MAX_STREAMS} unfinished streams is reached; read them to their end")
            if opens:
                running.items, stream = result, secrets.randbits(48)  # type: ignore[assignment]
            # Encoded here, so that a result that cannot be sent is the function's error.
            raw: list[bytes] | None = None if running.base64 else []
            sent = _dump({"stream": stream} if opens else {"value": encode(result, raw)}, raw)
            self.budget.take_bytes(len(sent))
            ended = stream is None
        except (StopIteration, StopAsyncIteration) as stop:
            sent = _dump({"end": True})
            if stream is None:
                outcome, error = CallOutcome.ERROR, f"{type(stop).__name__} raised"
                sent = _dump(_error("RuntimeError", error))
        except BudgetSpent as spent:
            outcome, error = CallOutcome.ERROR, str(spent)
            sent = _dump(_error("LimitReached", error))
        except BaseException as failure:
            # Whatever it is: this is a thread of our own, and the function was called.
            kind, text = type(failure).__name__, _text(failure)
            if isinstance(failure, BadMessage):
                kind, text = "TypeError", f"the result of {call.name}() cannot be sent: {failure}"
            outcome, error = CallOutcome.ERROR, f"{kind}: {text}" if text else kind
            sent = _dump(_error(kind, text))
        with self._lock:
            self._running = None
            if running.answered or self._cancelled:
                return False
            running.answered = True
            took = self.budget.end(number)
            running.call = replace(call, outcome=outcome, duration=call.duration + took, error=error)
            self.budget.records[number] = running.call
            if stream is not None and not ended:
                self.budget.streams[stream] = running
                if running.owner.over:
                    self.budget.streams.pop(stream, None)
        self.sock.sendall(frame(sent))
        return True

    def _awaited(self, result: object, running: OpenCall) -> object:
        """Return a result; one that must be awaited is awaited on the caller's loop, or on ours."""
        if not inspect.isawaitable(result):
            return result

        async def awaited() -> object:
            return await result

        future = asyncio.run_coroutine_threadsafe(awaited(), self.loop or FUNCTIONS.loop)
        running.future = future
        if running.answered or self._cancelled:
            future.cancel()
        return future.result()

    def _write_last(self, message: dict[str, object], flags: int = 0) -> None:
        """Send the last answer of this connection. Closed for reading first: the program's next call is not lost here,
        but fails to be sent, and goes over a new connection.
        """
        self.sock.shutdown(socket.SHUT_RD)
        self._write(message, flags)

    def _write(self, message: dict[str, object], flags: int = 0) -> None:
        self.sock.sendall(frame(_dump(message)), flags)


def _dump(message: dict[str, object], raw: list[bytes] | None = None) -> bytes:
    text = json.dumps(message, separators=(",", ":")).encode()
    return b"".join((text, b"\n", *raw)) if raw else text


def _error(kind: str, message: str) -> dict[str, object]:
    return {"error": {"type": kind, "message": message}}


def _text(error: BaseException) -> str:
    try:
        return encodable(str(error)[:_MAX_MESSAGE])
    except Exception:
        return ""


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
        self._call_socket, self._inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
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
    def call_socket(self) -> int:
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
        for end in (self._call_socket, self._inside, self._wake, self._woken):
            end.close()

    def _wake_up(self) -> None:
        with contextlib.suppress(OSError):
            self._wake.send(b"\0", socket.MSG_DONTWAIT)

    def _serve(self) -> None:
        waiting = select.poll()
        waiting.register(self._call_socket, select.POLLIN | select.POLLRDHUP)
        waiting.register(self._woken, select.POLLIN)
        while not self._closed:
            ready = dict(waiting.poll(_TICK_S * 1000 if self._budget is not None else None))
            if ready.get(self._call_socket.fileno(), 0) & select.POLLRDHUP:
                waiting.unregister(self._call_socket)  # a program has shut it down: nobody inside can call any more
                del ready[self._call_socket.fileno()]
            if self._woken.fileno() in ready:
                self._woken.recv(4096)
            if self._call_socket.fileno() in ready and not self._closed:
                self._take()
            for connection in list(self._connections):
                connection.check_time()

    def _take(self) -> None:
        """Take what came through the call socket: one connected stream socket begins a connection, all else is closed.

        A message of no bytes is a message too, and not the end: we hold the inner end ourselves.
        """
        try:
            _, handed = receive_with_files(self._call_socket, 64, 2)
        except OSError:
            handed = []
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
            threading.Thread(target=connection.serve, name="sandbox-function-call", daemon=True).start()
        elif caller is not None:
            with caller, contextlib.suppress(OSError):
                caller.shutdown(socket.SHUT_RD)
                caller.send(frame(_dump(_error("LimitReached", why))), socket.MSG_DONTWAIT)
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

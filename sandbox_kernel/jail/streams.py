"""Captures the output of a child: keeps head and tail, decodes as it arrives, uses bounded memory.

Reading never stops, so that the program is never blocked by its output. Text is passed on as it arrives until the head
is full. Later text is kept in a ring of fixed size and passed on at the end, with one notice in between. What is passed
on is exactly what the result contains.
"""

from __future__ import annotations

import codecs
import os
import select
import selectors
import threading
from collections import deque
from collections.abc import Callable
from typing import ParamSpec

#: How much is read at once, and the size of the pipes, so that much output needs few system calls.
CHUNK = 1 << 20

#: The part of the limit that is for the end of the output; the beginning has the rest.
TAIL_SHARE = 0.25
Given = ParamSpec("Given")

NOTICE = "\n... ({elided} bytes truncated: output exceeded the limit of {cap} bytes) ...\n"


class ListenerFailed(Exception):
    """A callback of the caller raised, or the caller was interrupted. Wrapped, as it is no error of this package."""

    def __init__(self, reason: BaseException) -> None:
        super().__init__(str(reason))
        self.reason = reason


def guarded(listener: Callable[Given, object] | None) -> Callable[Given, None] | None:
    """Return a callback that raises ``ListenerFailed`` for what ``listener`` raises; ``KeyboardInterrupt`` passes."""
    if listener is None:
        return None

    def call(*given: Given.args, **named: Given.kwargs) -> None:
        try:
            listener(*given, **named)
        except (KeyboardInterrupt, ListenerFailed):
            raise
        except BaseException as error:
            raise ListenerFailed(error) from None

    return call


class Capture:
    """One stream of one run. ``feed`` it bytes, then ``finish``; ``text`` is what was kept."""

    def __init__(self, cap: int, emit: Callable[[str], None] | None = None) -> None:
        self.cap = cap
        self.total = 0
        #: Whether more was printed than is kept.
        self.truncated = False
        self._tail_room = int(cap * TAIL_SHARE)
        self._head_room = cap - self._tail_room
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._parts: list[str] = []
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._tail_total = 0
        self._emit = emit

    @property
    def text(self) -> str:
        """What was kept so far."""
        return "".join(self._parts)

    def feed(self, data: bytes) -> None:
        """Add bytes that were read from the child."""
        self.total += len(data)
        self.truncated = self.total > self.cap
        if self._head_room:
            head, data = data[: self._head_room], data[self._head_room :]
            self._head_room -= len(head)
            self._pass_on(self._decoder.decode(head))
        if data:
            self._keep_tail(data)

    def finish(self) -> None:
        """End the stream: pass the tail on, with a notice if something in between is missing."""
        tail = b"".join(self._tail)
        self._tail.clear()
        if not self.truncated:
            self._pass_on(self._decoder.decode(tail, final=True))
            return
        # Head and tail are cut between characters: a character that was cut in two is dropped.
        pending = len(self._decoder.getstate()[0])
        self._decoder.reset()
        start = 0
        while start < min(3, len(tail)) and tail[start] & 0xC0 == 0x80:
            start += 1
        elided = self._tail_total - (len(tail) - start) + pending
        self._pass_on(NOTICE.format(elided=elided, cap=self.cap))
        self._pass_on(tail[start:].decode("utf-8", "replace"))

    def _keep_tail(self, data: bytes) -> None:
        self._tail_total += len(data)
        room = self._tail_room
        self._tail.append(data[-room:] if room else b"")
        self._tail_size += len(self._tail[-1])
        while self._tail_size > room:
            first = self._tail.popleft()
            surplus = self._tail_size - room
            if len(first) > surplus:
                self._tail.appendleft(first[surplus:])
                self._tail_size -= surplus
            else:
                self._tail_size -= len(first)

    def _pass_on(self, text: str) -> None:
        if text:
            self._parts.append(text)
            if self._emit is not None:
                self._emit(text)


class Feeder:
    """Standard input of one run, written to the pipe ``fd`` as fast as the child reads it. The child need not read it.

    First ``data`` is written. Then ``source`` is read, a descriptor of the caller: data that arrives there later
    reaches a program that runs already. An input that is ``held`` stays open for more from ``add``.
    """

    def __init__(self, fd: int, data: bytes | None, source: int | None = None, *, held: bool = False) -> None:
        self.fd = fd
        self.source = source
        self._held = held
        self._rest = memoryview(data or b"")
        os.set_blocking(fd, False)
        self.open = True
        if not self._rest and source is None and not held:
            self.close()

    @property
    def idle(self) -> bool:
        """Whether it is held open and everything that was added has been written."""
        return self.open and self._held and not self._rest

    def add(self, data: bytes) -> None:
        """Add input while it is held open. Call ``attend`` to have it written."""
        self._rest = memoryview(bytes(self._rest) + data)

    def attend(self, selector: selectors.BaseSelector) -> None:
        """Register with the loop's selector: to write when the child reads, or to read when the source has more."""

        def source_has_more(fd: int) -> None:
            selector.unregister(fd)
            self._read_some()
            self.attend(selector)

        def child_takes(fd: int) -> None:
            self.write_some()
            if not (self.open and self._rest):
                selector.unregister(fd)
                self.attend(selector)

        while self.open and not self._rest and not self._held:
            assert self.source is not None
            try:
                selector.register(self.source, selectors.EVENT_READ, source_has_more)
                return
            except PermissionError:
                # Files and /dev/null cannot be waited for, but can always be read.
                self._read_some()
        if self.open and self._rest:
            selector.register(self.fd, selectors.EVENT_WRITE, child_takes)

    def _read_some(self) -> None:
        """Read from the source, blocking if necessary. The end of the source is the end of input."""
        assert self.source is not None
        try:
            self._rest = memoryview(os.read(self.source, CHUNK))
        except BlockingIOError:
            return
        except OSError:
            self._rest = self._rest[:0]
        if not self._rest:
            self.close()

    def write_some(self) -> None:
        """Write what fits. There is nothing left to do when the child closed its end."""
        try:
            self._rest = self._rest[os.write(self.fd, self._rest[:CHUNK]) :]
        except BlockingIOError:
            return
        except OSError:
            self._rest, self.source, self._held = self._rest[:0], None, False
        if not self._rest and self.source is None and not self._held:
            self.close()

    def close(self) -> None:
        """End the input. May be called twice."""
        if self.open:
            self.open = False
            os.close(self.fd)


class Stop:
    """The stop signal of a run: a flag that any thread can set and a selector can wait for."""

    def __init__(self) -> None:
        self._lock, self._fd = threading.Lock(), -1
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.raised = False

    def fileno(self) -> int:
        """Return the descriptor for ``selectors``."""
        return self._fd

    def set(self) -> None:
        """Set it. May be called twice, from any thread, and after the run is over."""
        with self._lock:
            self.raised = True
            if self._fd >= 0:
                os.eventfd_write(self._fd, 1)

    def close(self) -> None:
        """Close the descriptor. May be called twice."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
            self._fd = -1

    __del__ = close


def readable(fd: int, timeout_s: float) -> bool:
    """Whether the descriptor becomes readable, or reaches its end, within this time."""
    # ``select`` accepts only the first thousand descriptors, and a host may have more.
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(max(0.0, timeout_s) * 1000))

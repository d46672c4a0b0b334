"""Captures the output of a child: keeps head and tail, decodes as it arrives, uses bounded memory.

Reading never stops, so that the program is never blocked by its output. Text is passed on as it arrives until the head
is full. Later text is kept in a ring of fixed size and passed on at the end, with one notice in between. What is passed
on is exactly what the result contains.
"""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Callable

#: How much is read at once, and the size of the pipes, so that much output needs few system calls.
CHUNK = 1 << 20

NOTICE = "\n... ({elided} bytes truncated: output exceeded the limit of {cap} bytes) ...\n"

Emit = Callable[[str], None]


class Capture:
    """One stream of one run. ``feed`` it bytes, then ``finish``; ``text`` is what was kept."""

    def __init__(self, cap: int, emit: Emit | None = None) -> None:
        self.cap = cap
        self.total = 0
        self._tail_room = cap // 4
        self._head_room = cap - self._tail_room
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._parts: list[str] = []
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._tail_total = 0
        self._emit = emit

    @property
    def truncated(self) -> bool:
        """Whether more was printed than is kept."""
        return self.total > self.cap

    @property
    def text(self) -> str:
        """What was kept so far."""
        return "".join(self._parts)

    def feed(self, data: bytes) -> None:
        """Add bytes that were read from the child."""
        self.total += len(data)
        if self._head_room:
            head, data = data[: self._head_room], data[self._head_room :]
            self._head_room -= len(head)
            self._pass_on(self._decoder.decode(head))
        if data:
            self._keep_tail(data)

    def finish(self) -> str:
        """End the stream: pass the tail on, with a notice if something in between is missing."""
        tail = b"".join(self._tail)
        self._tail.clear()
        if not self.truncated:
            self._pass_on(self._decoder.decode(tail, final=True))
            return self.text
        # Head and tail are cut between characters: a character that was cut in two is dropped.
        pending = len(self._decoder.getstate()[0])
        self._decoder.reset()
        start = 0
        while start < min(3, len(tail)) and tail[start] & 0xC0 == 0x80:
            start += 1
        elided = self._tail_total - (len(tail) - start) + pending
        self._pass_on(NOTICE.format(elided=elided, cap=self.cap))
        self._pass_on(tail[start:].decode("utf-8", "replace"))
        return self.text

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

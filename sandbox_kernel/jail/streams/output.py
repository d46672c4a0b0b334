"""Output of a child: kept head and tail, decoded as it comes, bounded whatever is printed.

Draining never stops, so the program ends by itself. Text is handed on as it arrives until the head is full; what comes
later is kept in a ring of fixed size, and handed on at the end with one notice between. What was handed on is exactly
what the result holds.
"""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Callable

#: How much is read at once; a pipe is made this large too, so that a flood needs few system calls.
CHUNK = 1 << 20

NOTICE = "\n... ({elided} bytes truncated: output exceeded the limit of {cap} bytes) ...\n"

Emit = Callable[[str], None]


class Capture:
    """One stream of one run. ``feed`` bytes, then ``finish``; ``text`` is what is kept."""

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
        """Whether more was printed than is kept; exactly the cap is not."""
        return self.total > self.cap

    @property
    def text(self) -> str:
        """What is kept so far."""
        return "".join(self._parts)

    def feed(self, data: bytes) -> None:
        """Take what was read from the child."""
        self.total += len(data)
        if self._head_room:
            head, data = data[: self._head_room], data[self._head_room :]
            self._head_room -= len(head)
            self._pass_on(self._decoder.decode(head))
        if data:
            self._keep_tail(data)

    def finish(self) -> str:
        """No more comes: hand on the tail, with a notice if something between is missing."""
        tail = b"".join(self._tail)
        self._tail.clear()
        if not self.truncated:
            self._pass_on(self._decoder.decode(tail, final=True))
            return self.text
        # The head ends, and the tail begins, at a character: what was cut in two is dropped, not shown as garbage.
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

"""The unfinished streams of one run or cell: functions that returned an iterator. Thread-safe.

A stream may be read over another connection than the one that opened it, because a program has one for each thread.
Its number is random, so that an iterator that outlived its cell never reads the stream of another.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

from sandbox_kernel.backends.functions.call_budget import BudgetSpent
from sandbox_kernel.model.result import Call

#: The most unfinished streams of one connection.
MAX_STREAMS = 16


@dataclass(frozen=True, kw_only=True)
class CallStream:
    """A function that returned an iterator, the record of its call, and the connection that opened it."""

    number: int
    call: Call
    items: Iterator[object] | AsyncIterator[object]
    owner: object


class CallStreams:
    """All unfinished streams. One that is being read is taken out meanwhile."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._streams: dict[int, CallStream] = {}

    def add(self, stream: CallStream) -> int:
        """Keep a new stream and return the number by which the program reads it. Raises ``BudgetSpent``."""
        with self._lock:
            if sum(each.owner is stream.owner for each in self._streams.values()) >= MAX_STREAMS:
                raise BudgetSpent(f"the limit of {MAX_STREAMS} unfinished streams is reached; read them to their end")
            name = secrets.randbits(48)
            self._streams[name] = stream
            return name

    def take(self, name: object) -> CallStream | None:
        """Take a stream out; None when there is none of this number, or when it is being read."""
        with self._lock:
            return self._streams.pop(name, None) if isinstance(name, int) else None

    def put_back(self, name: int, stream: CallStream) -> None:
        """Keep a stream that was taken and has not ended."""
        with self._lock:
            self._streams[name] = stream

    def take_all(self, owner: object) -> list[CallStream]:
        """Take out all streams that a connection opened."""
        with self._lock:
            names = [name for name, stream in self._streams.items() if stream.owner is owner]
            return [self._streams.pop(name) for name in names]

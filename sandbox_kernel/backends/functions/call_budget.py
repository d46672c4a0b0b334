"""The budget of host functions for one run or cell, and the record of its calls. Thread-safe."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

from sandbox_kernel.limits import FunctionLimits
from sandbox_kernel.model.result import Call, CallOutcome

#: What each message costs at least, so that streams of tiny items are bounded too.
LEAST_BYTES = 64
#: What the record says of a call that was still running, and what a program is told that calls when none may.
ENDED = "the run or cell ended"
OUTSIDE = "host functions can be called only while their run or cell runs"


class BudgetSpent(Exception):
    """A limit of the functions is reached. The message says which."""


class CallBudget:
    """Counts calls, bytes and time of one run or cell, until ``close``. Every call that may run is in the record."""

    def __init__(self, limits: FunctionLimits) -> None:
        self.limits = limits
        self._lock = threading.Lock()
        self._calls = 0
        self._bytes = 0
        self._seconds = 0.0
        #: When the functions that run now began (``time.monotonic``), by the number of the call.
        self._began: dict[int, float] = {}
        self._records: dict[int, Call] = {}
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
        """Write down a call as cancelled, which it is until its end, and count its time from now on.

        Raises ``BudgetSpent`` when there is no time left, or when the run or cell has ended.
        """
        with self._lock:
            if self._closed:
                raise BudgetSpent(OUTSIDE)
            if self._spent() >= self.limits.seconds:
                raise BudgetSpent(self.time_text)
            self._began[number] = time.monotonic()
            self._records[number] = replace(call, outcome=CallOutcome.CANCELLED, error=ENDED)

    def end(self, number: int) -> float:
        """Count the time of a function that has ended or is not waited for any more; returns its seconds."""
        with self._lock:
            took = time.monotonic() - self._began.pop(number, time.monotonic())
            self._seconds += took
            return took

    def time_is_up(self) -> bool:
        """Whether the functions have used up their time, those that run now included."""
        with self._lock:
            return self._spent() >= self.limits.seconds

    def _spent(self) -> float:
        now = time.monotonic()
        return self._seconds + sum(now - began for began in self._began.values())

    @property
    def time_text(self) -> str:
        """The message for a program whose time for functions is used up."""
        return f"the time limit of {self.limits.seconds:g} s for host functions is reached"

    def note(self, number: int, call: Call) -> None:
        """Write down a call, or replace what was written about it."""
        with self._lock:
            self._records[number] = call

    def close(self) -> tuple[Call, ...]:
        """Let no more functions run, and return all calls in the order in which they came."""
        with self._lock:
            self._closed = True
            return tuple(self._records[number] for number in sorted(self._records))

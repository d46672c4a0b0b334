"""The budget of host functions for one run or cell, and the record of its calls. Thread-safe."""

from __future__ import annotations

import threading
import time

from sandbox_kernel.limits import FunctionLimits
from sandbox_kernel.model.call import Call

#: What each message costs at least, so that streams of tiny items are bounded too.
LEAST_BYTES = 64


class BudgetSpent(Exception):
    """A limit of the functions is reached. The message says which."""


class CallBudget:
    """Counts calls, bytes and time of one run or cell."""

    def __init__(self, limits: FunctionLimits) -> None:
        self.limits = limits
        self._lock = threading.Lock()
        self._calls = 0
        self._bytes = 0
        self._seconds = 0.0
        self._records: dict[int, Call] = {}

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

    def deadline(self) -> float:
        """Return until when (``time.monotonic``) a call that begins now may run. Raises ``BudgetSpent`` for no time."""
        left = self.limits.seconds - self._seconds
        if left <= 0:
            raise BudgetSpent(self.time_text)
        return time.monotonic() + left

    @property
    def time_text(self) -> str:
        """The message for a program whose time for functions is used up."""
        return f"the time limit of {self.limits.seconds:g} s for host functions is reached"

    def take_time(self, seconds: float) -> None:
        """Count the time that a function took."""
        with self._lock:
            self._seconds += seconds

    def note(self, number: int, call: Call) -> None:
        """Write down a call, or replace what was written about it."""
        with self._lock:
            self._records[number] = call

    def records(self) -> tuple[Call, ...]:
        """Return all calls in the order in which they came."""
        with self._lock:
            return tuple(self._records[number] for number in sorted(self._records))

"""Limits requests at the same time, and requests a minute to one domain. A request over a limit is refused at once."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sandbox_kernel.net.rules.fetch_policy import FetchPolicy
from sandbox_kernel.net.rules.refusal import FetchRefused, refused

WINDOW_S = 60.0
#: Most domains that are counted at once. A program that uses more within a minute is refused.
MAX_KEYS = 4096


class RateLimit:
    """The counters of one client or proxy. Safe to use from any thread."""

    def __init__(self, policy: FetchPolicy, clock: Callable[[], float] = time.monotonic) -> None:
        self._policy = policy
        self._clock = clock
        self._lock = threading.Lock()
        self._running = 0
        self._windows: dict[str, deque[float]] = {}

    @contextmanager
    def slot(self, subject: str) -> Iterator[None]:
        """Hold one of the ``max_concurrent`` places. Raises ``FetchRefused`` when all are taken."""
        with self._lock:
            if self._running >= self._policy.max_concurrent:
                raise _over(subject, f"{self._running} are already under way", "max_concurrent")
            self._running += 1
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1

    def count(self, key: str, subject: str) -> None:
        """Count one request against the minute of ``key``, an allow-list entry or a host. Raises ``FetchRefused``."""
        most = self._policy.max_requests_per_minute
        with self._lock:
            now = self._clock()
            window = self._windows.get(key)
            if window is None:
                window = self._new_window(key, subject, now)
            while window and window[0] <= now - WINDOW_S:
                window.popleft()
            if len(window) >= most:
                raise _over(
                    subject, f"{most} requests to {key} within a minute are the most", "max_requests_per_minute"
                )
            window.append(now)

    def _new_window(self, key: str, subject: str, now: float) -> deque[float]:
        if len(self._windows) >= MAX_KEYS:
            for old, window in list(self._windows.items()):
                if not window or window[-1] <= now - WINDOW_S:
                    del self._windows[old]
        if len(self._windows) >= MAX_KEYS:
            raise _over(subject, f"{MAX_KEYS} different hosts within a minute are the most", "max_requests_per_minute")
        return self._windows.setdefault(key, deque())


def _over(subject: str, reason: str, name: str) -> FetchRefused:
    return refused("rate_limit_exceeded", subject, reason, f"wait, or raise FetchPolicy({name}=…)")

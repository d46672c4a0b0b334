"""Limits a rate by waiting: a burst is free, then a fixed number a second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable


class Pace:
    """A token bucket. Used by one task at a time."""

    def __init__(
        self,
        per_second: float,
        burst: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._per_second, self._burst = per_second, burst
        self._clock, self._sleep = clock, sleep
        self._turns, self._counted = float(burst), clock()

    async def turn(self) -> None:
        """Wait until the rate allows the next turn."""
        self._refill()
        while self._turns < 1:
            await self._sleep((1 - self._turns) / self._per_second)
            self._refill()
        self._turns -= 1

    def _refill(self) -> None:
        now = self._clock()
        self._turns = min(self._burst, self._turns + (now - self._counted) * self._per_second)
        self._counted = now

"""Sends the output of a running call to the client as progress messages, at a limited rate and size."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable

#: Sends one progress message: seconds so far, the limit if there is one, the latest output.
Tell = Callable[[float, float | None, str | None], Awaitable[None]]

#: Shortest and longest time between two messages, in seconds.
SHORTEST_S, LONGEST_S = 0.1, 5.0
#: Most characters of output in one message.
MOST_CHARACTERS = 1000


class CallProgress:
    """Collects the output of a run and sends progress messages until cancelled. Keeps the latest output only."""

    def __init__(self, limit_s: float | None = None) -> None:
        self._limit_s = limit_s
        self._began = time.monotonic()
        self._last = 0.0
        self._latest = ""
        self._has_output = asyncio.Event()

    def add(self, stream: str, text: str) -> None:
        """Add a piece of output. Called on the event loop."""
        self._latest = (self._latest + text)[-MOST_CHARACTERS:]
        self._has_output.set()

    async def keep_telling(self, tell: Tell) -> None:
        """Send messages until cancelled: when there is output, and at least every ``LONGEST_S``."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._has_output.wait(), LONGEST_S)
            await self.tell_once(tell)
            await asyncio.sleep(SHORTEST_S)

    async def tell_once(self, tell: Tell) -> None:
        """Send the output since the last message."""
        self._has_output.clear()
        latest, self._latest = self._latest, ""
        # The protocol requires that progress grows with each message.
        self._last = max(self._last + 0.001, round(time.monotonic() - self._began, 3))
        await tell(self._last, self._limit_s, printable(latest) or None)

    @property
    def has_news(self) -> bool:
        """Whether there is output that was not sent."""
        return bool(self._latest)


def printable(text: str) -> str:
    """Return text for a status line; control characters are replaced."""
    return "".join(char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}" for char in text)

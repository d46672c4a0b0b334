"""Output of a run, told to a client while it comes: a few words now and then, never more than the client asked for."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable

#: (seconds so far, the limit if there is one, what was printed last)
Tell = Callable[[float, float | None, str | None], Awaitable[None]]

#: A client hears at most this often, and at least this often.
SHORTEST_S, LONGEST_S = 0.1, 5.0
#: What is kept of the output between two messages.
MOST_CHARACTERS = 1000


class CallProgress:
    """Collects what a run prints and tells it until cancelled. Bounded however much is printed."""

    def __init__(self, limit_s: float | None = None) -> None:
        self._limit_s = limit_s
        self._began = time.monotonic()
        self._last = 0.0
        self._latest = ""
        self._news = asyncio.Event()

    def add(self, stream: str, text: str) -> None:
        """Take a piece of output; called on the event loop."""
        self._latest = (self._latest + text)[-MOST_CHARACTERS:]
        self._news.set()

    async def keep_telling(self, tell: Tell) -> None:
        """Tell what is new, and a sign of life when nothing is; ends by being cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), LONGEST_S)
            await self.tell_once(tell)
            await asyncio.sleep(SHORTEST_S)

    async def tell_once(self, tell: Tell) -> None:
        """Tell what has come since the last time."""
        self._news.clear()
        latest, self._latest = self._latest, ""
        # Progress must grow from message to message.
        self._last = max(self._last + 0.001, round(time.monotonic() - self._began, 3))
        await tell(self._last, self._limit_s, printable(latest) or None)

    @property
    def has_news(self) -> bool:
        """Whether something was printed that nobody has been told."""
        return bool(self._latest)


def printable(text: str) -> str:
    """Output for a status line: escape sequences and other control characters are shown, not obeyed."""
    return "".join(char if char.isprintable() or char in "\n\t" else "\N{REPLACEMENT CHARACTER}" for char in text)

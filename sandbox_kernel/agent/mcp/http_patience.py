"""HTTP connections of strangers are cut short: every local user can open them, and each takes one of our descriptors.

The HTTP server itself waits for a request for ever. Here a connection that has not made one in time is closed, and so
is the one that has waited longest when too many wait. A request without the token is answered and its connection closed
(``mcp_http.py``), so only who has the token can keep one.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import H11Protocol

#: How long a connection may take for the head of its first request, and how many may be that far at once.
PATIENCE_S = 10.0
MOST_WAITING = 64


def impatient_protocol() -> type[H11Protocol]:
    """The HTTP of one server; uvicorn, which is an optional part, is imported here."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    waiting: dict[Impatient, asyncio.TimerHandle] = {}

    class Impatient(H11Protocol):
        """Closes what does not come to the point."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            waiting[self] = self.loop.call_later(PATIENCE_S, transport.abort)
            if len(waiting) > MOST_WAITING:
                longest = next(iter(waiting))
                longest.transport.abort()
                longest._no_longer_waits()

        def connection_lost(self, exc: Exception | None) -> None:
            self._no_longer_waits()
            super().connection_lost(exc)

        def handle_events(self) -> None:
            super().handle_events()
            if self.cycle is not None:
                self._no_longer_waits()

        def _no_longer_waits(self) -> None:
            timer = waiting.pop(self, None)
            if timer is not None:
                timer.cancel()

    return Impatient

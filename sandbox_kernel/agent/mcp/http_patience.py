"""Closes idle HTTP connections: every local user can open them, and each takes one of our descriptors.

The HTTP server itself waits for a request without a limit. Here a connection without a request is closed after
``PATIENCE_S``, and the oldest one when there are more than ``MOST_WAITING``. A request without the token is answered
and its connection closed (``mcp_http.py``), so only clients with the token can keep a connection.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uvicorn.protocols.http.h11_impl import H11Protocol

#: Seconds until the head of the first request must arrive, and most connections that wait for one.
PATIENCE_S = 10.0
MOST_WAITING = 64


def impatient_protocol() -> type[H11Protocol]:
    """Return the protocol class for one HTTP server. Imports uvicorn, which is an optional dependency."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    waiting: dict[Impatient, asyncio.TimerHandle] = {}

    class Impatient(H11Protocol):
        """HTTP/1.1 that closes connections without a request."""

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

"""What our HTTP servers (``serve``, ``mcp --http``) share: loopback only, a bearer token, and bounds for connections.

Every user and web page of this machine can connect to loopback, so programs run only for clients with the token. Where
uvicorn waits without a limit, we close connections: without a request, idle ones, those that take no answer.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import os
import secrets
import socket
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox_kernel.errors import BackendUnavailable, InvalidRequest, install_line

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp
    from uvicorn.protocols.http.h11_impl import H11Protocol

_SHORTEST_TOKEN = 16
#: Seconds until the head of the first request must arrive, and most connections that wait for one.
PATIENCE_S = 10.0
MOST_WAITING = 64
#: The most connections at a time; one more is answered with 503.
MAX_CONNECTIONS = 1024
#: Seconds until an idle connection is closed, and in which a client must have taken its answer.
IDLE_S, ANSWER_S = 30, 30
#: Bytes of a next request that are kept while the one before is answered.
_MOST_EARLY = 64 << 10
UNAUTHORIZED = (b"www-authenticate", b'Bearer realm="sandbox-kernel"')


def need_http() -> None:
    """Raise ``BackendUnavailable`` with the line that installs it when uvicorn is missing."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        raise BackendUnavailable(f"serve needs starlette and uvicorn: {install_line('serve')}") from None


def read_token(file: str | None, variable: str) -> tuple[str, bool]:
    """Return the token, from a file, else the environment variable, else a new one; and whether it is new."""
    # There is no command line option for it: other users of the machine can see command lines.
    token = Path(file).read_text().strip() if file is not None else os.environ.get(variable, "").strip()
    if not token and file is None:
        return secrets.token_urlsafe(32), True
    if len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        source = f"the token in {file}" if file is not None else f"the token in ${variable}"
        raise InvalidRequest(f"{source} must be at least {_SHORTEST_TOKEN} visible ASCII characters")
    return token, False


def has_token(headers: Iterable[tuple[bytes, bytes]], token: str) -> bool:
    """Whether the headers of a request carry the token, once."""
    given = [value for name, value in headers if name == b"authorization"]
    if len(given) != 1 or given[0][:7].lower() != b"bearer ":
        return False
    # Digests have a fixed length, so the comparison does not reveal the length of the token.
    sent, ours = (hashlib.sha256(each).digest() for each in (given[0][7:].strip(), token.encode()))
    return hmac.compare_digest(sent, ours)


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket on 127.0.0.1 or ::1, the addresses that servers answer to. Raises for another."""
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        raise InvalidRequest(f"--host {host!r} is not an address; for example 127.0.0.1 or ::1") from None
    if str(address) not in ("127.0.0.1", "::1"):
        raise InvalidRequest(
            f"--host {host!r} is not the loopback address; the server is for this machine only: use 127.0.0.1 or ::1, "
            "and a tunnel (ssh -L) from elsewhere"
        )
    if not 0 <= port <= 65535:
        raise InvalidRequest(f"--port {port} is not a port; give 1 to 65535, or 0 for a free one")
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    return socket.create_server((str(address), port), family=family)


def announce(what: str, listener: socket.socket, path: str, token: str, *, made: bool) -> None:
    """Print where a server answers, and its token if it is a new one."""
    address, port = listener.getsockname()[:2]
    place = f"[{address}]" if ":" in address else address
    sys.stderr.write(f"{what}: http://{place}:{port}{path}\n")
    if made:
        sys.stderr.write(f"Authorization: Bearer {token}\n")
    sys.stderr.flush()


def server_config(app: ASGIApp, shutdown_s: int) -> uvicorn.Config:
    """Return how an application is served; ``shutdown_s`` bounds the wait for connections at the end."""
    import uvicorn

    return uvicorn.Config(
        app,
        http=_impatient_protocol(),
        ws="none",
        log_level="critical",
        access_log=False,
        server_header=False,
        limit_concurrency=MAX_CONNECTIONS,
        h11_max_incomplete_event_size=32 << 10,
        timeout_keep_alive=IDLE_S,
        timeout_graceful_shutdown=shutdown_s,
    )


def _impatient_protocol() -> type[H11Protocol]:
    from uvicorn.protocols.http.h11_impl import H11Protocol

    waiting: dict[Impatient, asyncio.TimerHandle] = {}

    class Impatient(H11Protocol):
        """HTTP/1.1 that closes connections that ask for nothing, or do not take what they asked for."""

        _idle: asyncio.TimerHandle | None = None
        _stuck: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            waiting[self] = self.loop.call_later(PATIENCE_S, transport.abort)
            if len(waiting) > MOST_WAITING:
                longest = next(iter(waiting))
                longest.transport.abort()
                longest._no_longer_waits()

        def connection_lost(self, exc: Exception | None) -> None:
            self._no_longer_waits()
            self.resume_writing()
            super().connection_lost(exc)

        def handle_events(self) -> None:
            super().handle_events()
            if self.cycle is not None and not self.cycle.response_complete:
                self._no_longer_waits()
            # uvicorn stops to read when the next request comes early, and would not see that the client goes away.
            if len(self.conn.trailing_data[0]) < _MOST_EARLY:
                self.flow.resume_reading()

        def on_response_complete(self) -> None:
            # uvicorn's own timer begins anew with each byte of a next request that never comes whole.
            self._idle = self.loop.call_later(IDLE_S, self.transport.abort)
            super().on_response_complete()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._stuck = self.loop.call_later(ANSWER_S, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            if self._stuck is not None:
                self._stuck.cancel()

        def _no_longer_waits(self) -> None:
            for timer in (waiting.pop(self, None), self._idle):
                if timer is not None:
                    timer.cancel()

    return Impatient

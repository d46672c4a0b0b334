"""The MCP server over streamable HTTP: on loopback only, and only for clients with the token.

Each request must carry the bearer token (``http_server.py``). The SDK also checks Host and Origin, against web pages
that use DNS rebinding.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from sandbox_kernel.agent.http_server import UNAUTHORIZED, announce, has_token, listen, read_token, server_config
from sandbox_kernel.agent.mcp.mcp_server import make_server, need_sdk
from sandbox_kernel.agent.mcp.toolbox import Toolbox
from sandbox_kernel.box.sandbox import Sandbox
from sandbox_kernel.policy import SandboxPolicy

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from sandbox_kernel.net.secret_headers import Secret

PATH = "/mcp"
TOKEN_VARIABLE = "SANDBOX_KERNEL_MCP_TOKEN"  # noqa: S105
_SHUTDOWN_S = 3
#: The most clients with a session at a time (one more is answered with 503); seconds until an idle one is forgotten.
MOST_SESSIONS, SESSION_IDLE_S = 64, 1800.0


class BearerOnly:
    """Passes on requests with the token and answers all others with 401."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request. Called by the HTTP server."""
        if scope["type"] == "lifespan" or (scope["type"] == "http" and has_token(scope["headers"], self._token)):
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            # Without "close" a client without the token could keep the connection open.
            headers = [UNAUTHORIZED, (b"content-length", b"0"), (b"connection", b"close")]
            await send({"type": "http.response.start", "status": 401, "headers": headers})
            await send({"type": "http.response.body", "body": b""})


def make_app(toolbox: Toolbox, token: str, version: str = "") -> ASGIApp:
    """Return the server as an ASGI application."""
    app = make_server(toolbox, version).streamable_http_app(
        streamable_http_path=PATH, max_sessions=MOST_SESSIONS, session_idle_timeout=SESSION_IDLE_S
    )
    return BearerOnly(app, token)


def serve_http(
    policy: SandboxPolicy | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token_file: str | None = None,
    version: str = "",
    audit: str | None = None,
    allow_private_for: Iterable[str] = (),
    secrets: Iterable[Secret] = (),
    here: str | None = None,
    may_apply: bool = False,
) -> None:
    """Serve until interrupted. Prints the address, and a new token, to standard error."""
    need_sdk()
    import uvicorn

    token, made = read_token(token_file, TOKEN_VARIABLE)
    private = tuple(allow_private_for)
    with (
        listen(host, port) as server,
        Sandbox(policy, audit=audit, allow_private_for=private, secrets=secrets, here=here) as box,
    ):
        announce("MCP server", server, PATH, token, made=made)
        app = make_app(Toolbox(box, may_apply=may_apply), token, version)
        asyncio.run(uvicorn.Server(server_config(app, _SHUTDOWN_S)).serve(sockets=[server]))

"""Where servers of ours listen, and the token that their clients must have. For this machine only."""

from __future__ import annotations

import ipaddress
import os
import secrets
import socket
from pathlib import Path

from sandbox_kernel.errors import InvalidRequest

_SHORTEST_TOKEN = 16


def read_token(file: str | None, variable: str) -> tuple[str, bool]:
    """Return the token, from a file, else the environment variable, else a new one; and whether it is new.

    There is no command line option for it: other users of the machine can see command lines.
    """
    token = Path(file).read_text().strip() if file is not None else os.environ.get(variable, "").strip()
    if not token and file is None:
        return secrets.token_urlsafe(32), True
    if len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        source = f"the token in {file}" if file is not None else f"the token in ${variable}"
        raise InvalidRequest(f"{source} must be at least {_SHORTEST_TOKEN} visible ASCII characters")
    return token, False


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

"""Remembers host names that a program looked up in vain, so that the host can say how to allow them.

A program that catches the error says nothing itself. Only failed lookups cost anything. Used by sessions, and by the
gate for a program that runs once.
"""

from __future__ import annotations

import _socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, List

_MOST_NAMES, _LONGEST = 5, 253
_found: List[str] = []


def remember(told: Callable[[str], None] | None = None) -> None:
    """Remember failed lookups from now on, or pass each name on to ``told``.

    Modules that Python's own ``socket`` serves all come through here.
    """
    look_up: Any = _socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, *args: Any, **more: Any) -> Any:
        try:
            return look_up(host, port, *args, **more)
        except OSError:
            name = host.decode("ascii", "replace") if isinstance(host, bytes) else host
            if isinstance(name, str) and len(name) <= _LONGEST and len(_found) < _MOST_NAMES:
                unusual = isinstance(port, int) and port not in (0, 80, 443)
                (told or _found.append)(f"{name}:{port}" if unusual else name)
            raise

    _socket.getaddrinfo = getaddrinfo


def take() -> List[str]:
    """Return the names since the last call, each with its port if that is an unusual one."""
    found = list(dict.fromkeys(_found))
    _found.clear()
    return found

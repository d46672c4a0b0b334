"""Functions of ``os`` and ``socket`` that are replaced before a program runs. Used by sessions, and by the gate.

``remember_names``: host names that a program looked up in vain, so that the host can say how to allow them; a program
that catches the error says nothing itself. ``change_by_descriptor``: modes and times of files where the walls refuse to
change them by their path. Standard library only, Python 3.8 or later, and nothing that is slow to import.
"""

from __future__ import annotations

import _socket
import errno
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, List

_MOST_NAMES, _LONGEST = 5, 253
_found: List[str] = []
_PLAIN = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def remember_names(told: Callable[[str], None] | None = None) -> None:
    """Remember lookups that fail in Python's ``socket`` from now on, or pass each name on to ``told``."""
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


def take_names() -> List[str]:
    """Return the names since the last call, each with its port if that is an unusual one."""
    found = list(dict.fromkeys(_found))
    _found.clear()
    return found


def change_by_descriptor() -> None:
    """Let ``os.chmod`` and ``os.utime`` open the file where they are refused; called once at the start.

    Behind Landlock, without a user of its own, a program could change modes of every file of the user by its path, so
    the filter refuses that; a file that it can open it may change. ``shutil.copy`` and others name paths.
    """
    try:
        os.chmod("", 0)
    except OSError as error:
        if error.errno != errno.EPERM:
            return

    def by_descriptor(real: Any) -> Any:
        def change(path: Any, *args: Any, dir_fd: Any = None, follow_symlinks: bool = True, **more: Any) -> None:
            try:
                real(path, *args, dir_fd=dir_fd, follow_symlinks=follow_symlinks, **more)
            except PermissionError:
                if isinstance(path, int):
                    raise
                fd = _opened(path, dir_fd, follow_symlinks)
                try:
                    real(fd, *args, **more)
                finally:
                    os.close(fd)

        for able in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
            if real in able:
                able.add(change)
        change.__name__ = real.__name__
        return change

    os.chmod, os.utime = by_descriptor(os.chmod), by_descriptor(os.utime)


def _opened(path: Any, dir_fd: Any, follow_symlinks: bool) -> int:
    """Open a file for reading, or for writing where only that is allowed; raises the error of the refusal else."""
    flags = _PLAIN if follow_symlinks else _PLAIN | os.O_NOFOLLOW
    for way in (os.O_RDONLY, os.O_WRONLY):
        try:
            return os.open(path, flags | way, dir_fd=dir_fd)
        except OSError:
            continue
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), path)

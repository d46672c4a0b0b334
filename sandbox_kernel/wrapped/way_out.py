"""Brings the relay a connection to each of the kernel's five channels, out of the jail.

Behind bubblewrap the jail has a network of its own, which the host cannot enter: a program of ours inside
(``guest/scripts/run_kernel.py``) connects to the kernel's ports and passes the open sockets. Behind Landlock there is no
such network. The kernel listens on unix sockets in the jail's private folder, the program inside says which are there,
and the host connects.
"""

from __future__ import annotations

import os
import socket
import stat
from abc import ABC, abstractmethod

from sandbox_kernel.errors import EnforcerFailed, EnforcerUnavailable
from sandbox_kernel.jail.core.handed_over import receive_with_files
from sandbox_kernel.jail.core.jail import Jail
from sandbox_kernel.jail.core.walls import LANDLOCK, Places

#: The channels in the order of their ports, and the names of the ports in a connection file.
CHANNELS = ("shell", "iopub", "stdin", "control", "hb")
#: Ports in the jail's own network, below those that the kernel gives out by itself; also the ends of socket names.
PORTS = (5001, 5002, 5003, 5004, 5005)
#: The host's answers to an offered unix socket, as in ``guest/scripts/run_kernel.py``.
_YES, _NO = b"y", b"n"
_SOCKET_NAME = "kernel"
#: The longest path of a unix socket, without its closing zero.
_LONGEST = 107


class WayOut(ABC):
    """One jail's connections. ``fileno`` is readable when ``take`` should be called."""

    def __init__(self, jail: Jail) -> None:
        self._channel = jail.channel.dup()
        self._channel.setblocking(False)

    def fileno(self) -> int:
        """Return the descriptor, for a poller."""
        return self._channel.fileno()

    def take(self) -> tuple[str, socket.socket] | None:
        """Return a channel's name and a socket connected to it; None when there is none now.

        Raises:
            EOFError: the jail ended.
            EnforcerFailed: something else came.

        """
        try:
            data, descriptors = receive_with_files(self._channel, 1, 4)
        except BlockingIOError:
            return None
        if not data and not descriptors:
            raise EOFError
        if len(data) == 1 and data[0] < len(CHANNELS):
            sock, taken = self._connection(data[0], descriptors)
            if taken:
                if sock is not None:
                    sock.setblocking(False)
                return None if sock is None else (CHANNELS[data[0]], sock)
        for fd in descriptors:
            os.close(fd)
        raise EnforcerFailed(
            "gate", "the jail handed over something else than a connection to its kernel; it was ended"
        )

    def close(self) -> None:
        """Close what this holds open; connections that were taken stay. May be called twice."""
        self._channel.close()

    @abstractmethod
    def _connection(self, number: int, descriptors: list[int]) -> tuple[socket.socket | None, bool]:
        """Return the connection, if there is one now, and whether what came was in order. Takes descriptors out."""


class PassedSockets(WayOut):
    """TCP sockets that were connected inside."""

    def _connection(self, number: int, descriptors: list[int]) -> tuple[socket.socket | None, bool]:
        """See ``WayOut``."""
        if len(descriptors) != 1 or not stat.S_ISSOCK(os.fstat(descriptors[0]).st_mode):
            return None, False
        sock = socket.socket(fileno=descriptors.pop())
        if sock.family == socket.AF_INET and sock.type == socket.SOCK_STREAM:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock, True
        sock.close()
        return None, False


class OfferedPaths(WayOut):
    """Unix sockets in the jail's folder for temporary files. The folder's content is hostile: no link is followed."""

    def __init__(self, jail: Jail) -> None:
        super().__init__(jail)
        self._owner = jail.uid if jail.uid is not None else os.geteuid()
        self._folder = os.open(jail.places.tmp, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def _connection(self, number: int, descriptors: list[int]) -> tuple[socket.socket | None, bool]:
        """See ``WayOut``. Tells the jail whether it worked: a socket may be there before it listens."""
        if descriptors:
            return None, False
        sock = self._connect(f"{_SOCKET_NAME}-{PORTS[number]}")
        self._channel.send(_NO if sock is None else _YES, socket.MSG_DONTWAIT)
        return sock, True

    def close(self) -> None:
        """See ``WayOut``."""
        super().close()
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1

    def _connect(self, name: str) -> socket.socket | None:
        try:
            fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._folder)
        except OSError:
            return None
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            info = os.fstat(fd)
            # A second name could be that of a socket of the host's.
            if stat.S_ISSOCK(info.st_mode) and info.st_nlink == 1 and info.st_uid == self._owner:
                sock.setblocking(False)
                sock.connect(f"/proc/self/fd/{fd}")
                return sock
        except OSError:
            pass
        finally:
            os.close(fd)
        sock.close()
        return None


def make_way_out(jail: Jail) -> WayOut:
    """Return the way out of a jail, by its enforcer."""
    return OfferedPaths(jail) if jail.walls.enforcer == LANDLOCK else PassedSockets(jail)


def connection_facts(enforcer: str, places: Places, key: str) -> dict[str, object]:
    """Return the content of the kernel's own connection file."""
    transport, ip = ("ipc", socket_prefix(places)) if enforcer == LANDLOCK else ("tcp", "127.0.0.1")
    return {
        "transport": transport,
        "ip": ip,
        "signature_scheme": "hmac-sha256",
        "key": key,
        "kernel_name": "",
        **{f"{channel}_port": port for channel, port in zip(CHANNELS, PORTS, strict=True)},
    }


def socket_prefix(places: Places) -> str:
    """Return the path of the kernel's unix sockets up to their number, as Jupyter's protocol names them."""
    prefix = f"{places.tmp}/{_SOCKET_NAME}"
    if len(os.fsencode(prefix)) + 5 > _LONGEST:
        raise EnforcerUnavailable(
            LANDLOCK, f"a kernel's sockets in {places.tmp!r} would have too long names; set TMPDIR to a shorter path"
        )
    return prefix

"""Counts what a checkpoint cannot hold: what lies outside of the process, or what a fork shares with all states.

Measured when the checkpoint is made, and told at its node. A socket and the file of an open database are the same ones
in every state; a child process goes on by itself. Threads are counted by ``Marks``.

Written with plain system calls: each object that is touched between two checkpoints costs a page of memory in each.
"""

from __future__ import annotations

import _socket
import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List

_SO_DOMAIN = 39
_NETWORK = (_socket.AF_INET, _socket.AF_INET6)
_SQLITE = b"SQLite format 3\0"


class Count:
    """Network sockets and open database files, as ``see`` meets them, and child processes that are no checkpoints."""

    def __init__(self, checkpoints: List[int]) -> None:
        self.sockets = self.databases = self.children = 0
        for thread in os.listdir("/proc/self/task"):
            try:
                fd = os.open(f"/proc/self/task/{thread}/children", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                continue
            try:
                for pid in os.read(fd, 1 << 16).split():
                    self.children += int(pid) not in checkpoints
            finally:
                os.close(fd)

    def see(self, fd: int, mode: int) -> None:
        """Count an open file; raises ``OSError`` for one that was closed meanwhile or cannot be read."""
        if stat.S_ISSOCK(mode):
            self.sockets += _is_network(fd)
        elif stat.S_ISREG(mode):
            try:
                self.databases += os.pread(fd, len(_SQLITE), 0) == _SQLITE
            except OSError:
                pass  # open for writing only

    def told(self) -> Dict[str, int]:
        """Return the counts for the host."""
        return {"sockets": self.sockets, "databases": self.databases, "children": self.children}


def _is_network(fd: int) -> bool:
    # With a default timeout of the program, the new object would let no call on this socket wait any more.
    timeout = _socket.getdefaulttimeout()
    if timeout is not None:
        _socket.setdefaulttimeout(None)
    try:
        sock = _socket.socket(fileno=fd)
        try:
            return sock.getsockopt(_socket.SOL_SOCKET, _SO_DOMAIN) in _NETWORK
        finally:
            sock.detach()
    finally:
        if timeout is not None:
            _socket.setdefaulttimeout(timeout)

"""Counts what a checkpoint cannot hold: what lies outside of the process, or what a fork shares with all states.

Measured when the checkpoint is made, and told at its node. A socket and the file of an open database are the same ones
in every state; a child process goes on by itself. Threads are counted by ``Marks``.
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


def count_beside(checkpoints: List[int]) -> Dict[str, int]:
    """Return the number of network sockets, open database files and child processes that are no checkpoints."""
    found = {"sockets": 0, "databases": 0, "children": 0}
    for name in os.listdir("/proc/self/fd"):
        try:
            mode = os.fstat(int(name)).st_mode
            if stat.S_ISSOCK(mode):
                found["sockets"] += _is_network(int(name))
            elif stat.S_ISREG(mode):
                found["databases"] += os.pread(int(name), len(_SQLITE), 0) == _SQLITE
        except OSError:
            continue  # closed meanwhile, or open for writing only
    for thread in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{thread}/children") as file:
                found["children"] += sum(int(pid) not in checkpoints for pid in file.read().split())
        except OSError:
            continue
    return found


def _is_network(fd: int) -> bool:
    sock = _socket.socket(fileno=fd)
    try:
        return sock.getsockopt(_socket.SOL_SOCKET, _SO_DOMAIN) in _NETWORK
    finally:
        sock.detach()

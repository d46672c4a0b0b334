"""Receives open files from the gate. Expected files are kept, all others are closed."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import struct
from collections.abc import Sequence

from sandbox_kernel.errors import EnforcerFailed

#: How many files a step may hand over, and how large each may be.
MAX_KEPT, MAX_KEPT_BYTES = 4, 32 << 20
_UNCHANGEABLE = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


def receive_with_files(sock: socket.socket, size: int, files: int) -> tuple[bytes, list[int]]:
    """Receive a message and at most ``files`` descriptors from the gate. They are closed in children of the host."""
    # ``socket.recv_fds`` does not pass its flags on.
    data, extra, _, _ = sock.recvmsg(size, socket.CMSG_LEN(files * 4), socket.MSG_CMSG_CLOEXEC)
    handed = [raw for level, kind, raw in extra if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)]
    return data, [fd for raw in handed for (fd,) in struct.iter_unpack("i", raw[: len(raw) - len(raw) % 4])]


def receive_listener(sock: socket.socket) -> socket.socket:
    """Receive the listening socket of the jail's network from the gate. Raises ``EnforcerFailed`` for anything else."""
    _, descriptors = receive_with_files(sock, 1, 4)
    if len(descriptors) == 1 and stat.S_ISSOCK(os.fstat(descriptors[0]).st_mode):
        listener = socket.socket(fileno=descriptors.pop())
        if listener.family == socket.AF_INET and listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return listener
        listener.close()
    for fd in descriptors:
        os.close(fd)
    raise EnforcerFailed("gate", "the jail handed over no listening socket; the network cannot be allowed")


def read_kept(descriptors: Sequence[int], most_bytes: int) -> tuple[bytes, ...]:
    """Return the contents of the files that the gate handed over, or nothing if one is not acceptable. Closes them.

    Only sealed memory files are accepted, so the program cannot change a file after it was handed over.
    """
    contents = []
    for fd in descriptors:
        try:
            if _is_sealed(fd) and os.fstat(fd).st_size <= most_bytes:
                os.lseek(fd, 0, os.SEEK_SET)
                with open(fd, "rb", closefd=False) as file:
                    contents.append(file.read(most_bytes))
        finally:
            os.close(fd)
    return tuple(contents) if len(contents) == len(descriptors) else ()


def _is_sealed(fd: int) -> bool:
    """Whether the file can never be changed again. Only memory files can be sealed."""
    try:
        return fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _UNCHANGEABLE == _UNCHANGEABLE
    except OSError:
        return False

"""Bytes as an open file that nobody can change any more: many jails can map it at once, and none of them copies it."""

from __future__ import annotations

import fcntl
import os
import weakref

_ALL_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


class SealedMemory:
    """A sealed memory file; it is closed with its last reference, so whoever sends its number holds one."""

    def __init__(self, data: bytes) -> None:
        self._fd = os.memfd_create("sealed", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self._finalizer = weakref.finalize(self, os.close, self._fd)
        self._size = len(data)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._fd, rest) :]
        fcntl.fcntl(self._fd, fcntl.F_ADD_SEALS, _ALL_SEALS)

    def fileno(self) -> int:
        """The number to hand over."""
        return self._fd

    def __len__(self) -> int:
        """Its size in bytes."""
        return self._size

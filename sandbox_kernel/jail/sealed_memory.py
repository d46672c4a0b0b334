"""Bytes as a memory file that cannot be changed any more. Many jails can map it at once without a copy."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import time
import weakref
from collections.abc import Callable

from sandbox_kernel.util.linux_calls import ALL_SEALS, F_ADD_SEALS, memfd_create

_PART = 1 << 20
#: How long memory that is in use is tried to be sealed, in seconds.
_BUSY_S, _PAUSE_S = 1.0, 0.02


class SealedMemory:
    """A sealed memory file, closed with its last reference. Without data, ``append`` fills it and ``seal`` seals it."""

    def __init__(self, data: bytes = b"") -> None:
        self._fd = memfd_create("sealed", sealable=True)
        self._finalizer = weakref.finalize(self, os.close, self._fd)
        self._size = len(data)
        if data:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._fd, rest) :]
            self.seal()

    @classmethod
    def of_file(cls, source: int, offset: int, size: int) -> SealedMemory:
        """Copy a part of an open file, and keep holes as holes. Raises ``EOFError`` when the file is too short."""
        made = cls()
        made._size = size
        os.ftruncate(made._fd, size)
        at, end = offset, offset + size
        if os.fstat(source).st_size < end:
            raise EOFError(f"it has no {size} bytes from {offset} on")
        while at < end:
            try:
                at = os.lseek(source, at, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                break  # only a hole is left
            stop = min(end, os.lseek(source, at, os.SEEK_HOLE))
            os.lseek(made._fd, at - offset, os.SEEK_SET)
            while at < stop:
                sent = os.sendfile(made._fd, source, at, stop - at)
                if not sent:
                    raise EOFError(f"it ended {end - at} bytes too early")
                at += sent
        made.seal()
        return made

    @classmethod
    def filled(cls, fill: Callable[[int], None]) -> SealedMemory:
        """Let a stranger write the content: ``fill`` hands out the descriptor, and returns when it was written.

        Raises ``OSError`` when it cannot be sealed: the stranger has mapped it, or sealed it itself.
        """
        made = cls()
        fill(made._fd)
        made.seal()
        made._size = os.fstat(made._fd).st_size
        return made

    def append(self, data: memoryview) -> None:
        """Add bytes at the end."""
        while data:
            written = os.pwrite(self._fd, data, self._size)
            self._size += written
            data = data[written:]

    def seal(self) -> None:
        """Let nobody change it any more. Tried for a while: the system, too, may use it. ``OSError``: it is mapped."""
        end = time.monotonic() + _BUSY_S
        while True:
            try:
                fcntl.fcntl(self._fd, F_ADD_SEALS, ALL_SEALS)
            except OSError as error:
                if error.errno != errno.EBUSY or time.monotonic() > end:
                    raise
                time.sleep(_PAUSE_S)
            else:
                return

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._fd

    def sha256(self) -> str:
        """Return the checksum of the whole content.

        It is read and not mapped: reading a hole through a mapping fills it, and most of the file may be holes.
        """
        found, part, at = hashlib.sha256(), bytearray(_PART), 0
        while at < self._size and (got := os.preadv(self._fd, [part], at)):
            found.update(memoryview(part)[:got])
            at += got
        return found.hexdigest()

    def __len__(self) -> int:
        """Return the size in bytes."""
        return self._size

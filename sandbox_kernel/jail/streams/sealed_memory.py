"""Bytes as an open file that nobody can change any more: many jails can map it at once, and none of them copies it."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import weakref

_PART = 1 << 20
_ALL_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


def _next_data(source: int, at: int) -> int:
    """Where something is written, from here on; beyond every end when nothing is."""
    try:
        return os.lseek(source, at, os.SEEK_DATA)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return 1 << 62


class SealedMemory:
    """A sealed memory file; it is closed with its last reference, so whoever sends its number holds one."""

    def __init__(self, data: bytes = b"") -> None:
        self._fd = os.memfd_create("sealed", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self._finalizer = weakref.finalize(self, os.close, self._fd)
        self._size = len(data)
        if data:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._fd, rest) :]
            self._seal()

    @classmethod
    def of_file(cls, source: int, offset: int, size: int) -> SealedMemory:
        """A part of an open file as it is now; ``EOFError`` when it ends before. Its holes stay holes."""
        made = cls()
        made._size = size
        os.ftruncate(made._fd, size)
        at, end = offset, offset + size
        if os.fstat(source).st_size < end:
            raise EOFError(f"it has no {size} bytes from {offset} on")
        while at < end and (at := _next_data(source, at)) < end:
            stop = min(end, os.lseek(source, at, os.SEEK_HOLE))
            os.lseek(made._fd, at - offset, os.SEEK_SET)
            while at < stop:
                sent = os.sendfile(made._fd, source, at, stop - at)
                if not sent:
                    raise EOFError(f"it ended {end - at} bytes too early")
                at += sent
        made._seal()
        return made

    def _seal(self) -> None:
        fcntl.fcntl(self._fd, fcntl.F_ADD_SEALS, _ALL_SEALS)

    def fileno(self) -> int:
        """The number to hand over."""
        return self._fd

    def sha256(self) -> str:
        """The checksum of all of it.

        It is read and not mapped: looking at a hole through a mapping fills it, and holes may be all there is.
        """
        found, part, at = hashlib.sha256(), bytearray(_PART), 0
        while at < self._size and (got := os.preadv(self._fd, [part], at)):
            found.update(memoryview(part)[:got])
            at += got
        return found.hexdigest()

    def __len__(self) -> int:
        """Its size in bytes."""
        return self._size

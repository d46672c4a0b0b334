"""Reads and writes a guest's memory for the WASI calls in plain Python, and lists their error numbers."""

from __future__ import annotations

import ctypes
import errno
import struct
from collections.abc import Callable

import wasmtime

MOST_VECTORS = 1024
BAD_DESCRIPTOR, FAULT, INVALID, IO, NO_CALL, NOT_PERMITTED, NOT_SEEKABLE = 8, 21, 28, 29, 52, 63, 70
NUMBERS = {
    errno.EACCES: 2, errno.EAGAIN: 6, errno.EBADF: BAD_DESCRIPTOR, errno.EBUSY: 10, errno.EEXIST: 20,
    errno.EFAULT: FAULT, errno.EFBIG: 22, errno.EINTR: 27, errno.EINVAL: INVALID, errno.EISDIR: 31,
    errno.ELOOP: 32, errno.EMFILE: 33, errno.ENAMETOOLONG: 37, errno.ENOENT: 44, errno.ENOSPC: 51,
    errno.ENOTDIR: 54, errno.ENOTEMPTY: 55, errno.EPERM: NOT_PERMITTED, errno.EROFS: 69, errno.ESPIPE: NOT_SEEKABLE,
    errno.EXDEV: 75, errno.EDQUOT: 51,
}  # fmt: skip


class WasiRefusal(Exception):
    """Raised to answer a call with an error number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class GuestMemory:
    """Reads and writes one guest's memory within its bounds; ``memory`` is set when the guest is instantiated."""

    memory: wasmtime.Memory
    store: wasmtime.Store
    #: Where the memory begins, and how large it was when it was last asked. It stays there and only grows.
    _begin, _size = 0, 0

    def _base(self, start: int, size: int) -> int:
        start &= 0xFFFFFFFF
        if size < 0 or (start + size > self._size and start + size > self._grown()):
            raise WasiRefusal(FAULT)
        return self._begin + start

    def _grown(self) -> int:
        self._begin = ctypes.addressof(self.memory.data_ptr(self.store).contents)
        self._size = self.memory.data_len(self.store)
        return self._size

    def _get(self, start: int, size: int) -> bytes:
        return ctypes.string_at(self._base(start, size), size)

    def _put(self, start: int, data: bytes) -> None:
        ctypes.memmove(self._base(start, len(data)), data, len(data))

    def _put_number(self, start: int, value: int, size: int = 4) -> None:
        self._put(start, (value & ((1 << 8 * size) - 1)).to_bytes(size, "little"))

    def _vectors(self, start: int, count: int) -> list[tuple[int, int]]:
        if not 0 <= count <= MOST_VECTORS:
            raise WasiRefusal(INVALID)
        return list(struct.iter_unpack("<II", self._get(start, 8 * count)))

    def _gathered(self, vectors: int, count: int) -> bytes:
        return b"".join(self._get(start, size) for start, size in self._vectors(vectors, count))

    def _scattered(self, vectors: int, count: int, read: Callable[[int], bytes]) -> int:
        total = 0
        for start, size in self._vectors(vectors, count):
            data = read(size)
            self._put(start, data)
            total += len(data)
            if len(data) < size:
                break
        return total

"""Writes the linear memory of a guest to a file and maps it back: between two calls it is the guest's whole state."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
from typing import Protocol

import wasmtime

from ..binary.inspect_module import PAGE_BYTES

_MAP_FIXED = 0x10
_NOTHING = bytes(PAGE_BYTES)
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p


class HasMemory(Protocol):
    """A guest between two calls."""

    @property
    def memory(self) -> wasmtime.Memory:
        """Its linear memory."""
        ...

    @property
    def store(self) -> wasmtime.Store:
        """The store that it is in."""
        ...


def memory_base(guest: HasMemory) -> int:
    """Return the address of the memory's first byte; it stays where it is when the memory grows."""
    return ctypes.addressof(guest.memory.data_ptr(guest.store).contents)


def memory_view(guest: HasMemory) -> memoryview:
    """Return the memory as bytes, without a copy; valid only until the memory grows."""
    size = guest.memory.data_len(guest.store)
    return memoryview((ctypes.c_ubyte * size).from_address(memory_base(guest))).cast("B")


def write_memory(guest: HasMemory, path: str) -> dict[str, object]:
    """Write the memory to a new file; returns its ``size``, or the ``problem``."""
    view = memory_view(guest)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        return {"problem": error.strerror}
    try:
        os.ftruncate(descriptor, len(view))
        for start in range(0, len(view), PAGE_BYTES):
            # Copied, because comparing views is slow (byte by byte). Pages that were never used stay holes in the file.
            part = bytes(view[start : start + PAGE_BYTES])
            if part != _NOTHING and os.pwrite(descriptor, part, start) < len(part):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        os.unlink(path)
        return {"problem": error.strerror}
    finally:
        os.close(descriptor)
    return {"size": len(view)}


def map_memory(guest: HasMemory, descriptor: int) -> None:
    """Map an open file, which must not change any more, as the memory of a new instance; closes the file.

    The mapping is private: pages are the file's until the guest writes to them. Mapping reads no page, so the size of
    an image costs nothing. The mapping lies inside the engine's own and is removed with it.
    """
    size = os.fstat(descriptor).st_size
    missing = size - guest.memory.data_len(guest.store)
    if missing > 0:
        guest.memory.grow(guest.store, -(-missing // PAGE_BYTES))
    if guest.memory.data_len(guest.store) != size:
        raise RuntimeError(f"an image of {size} bytes does not fit a memory of {guest.memory.data_len(guest.store)}")
    place = ctypes.c_void_p(memory_base(guest))
    flags = mmap.MAP_PRIVATE | _MAP_FIXED
    asked = (ctypes.c_size_t(size), mmap.PROT_READ | mmap.PROT_WRITE, flags, descriptor, ctypes.c_long(0))
    if _libc.mmap(place, *asked) != place.value:
        raise OSError(ctypes.get_errno(), "an image could not be mapped")
    os.close(descriptor)

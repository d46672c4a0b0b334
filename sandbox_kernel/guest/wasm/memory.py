"""The linear memory of a guest, which is its whole state between two calls: it is written to a file and mapped."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os

import wasmtime

from .binary import PAGE_BYTES

_MAP_FIXED = 0x10
_NOTHING = bytes(PAGE_BYTES)
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p


def memory_base(memory: wasmtime.Memory, store: wasmtime.Store) -> int:
    """Return the address of the memory's first byte; it stays where it is when the memory grows."""
    return ctypes.addressof(memory.data_ptr(store).contents)


def write_memory(memory: wasmtime.Memory, store: wasmtime.Store, descriptor: int | None) -> dict[str, object]:
    """Write the memory to a new file, and close that; returns its ``size``, or the ``problem``."""
    if descriptor is None:
        return {"problem": "no file came to write it to"}
    base, size = memory_base(memory, store), memory.data_len(store)
    view = memoryview((ctypes.c_ubyte * size).from_address(base)).cast("B")
    try:
        os.ftruncate(descriptor, size)
        for start in range(0, size, PAGE_BYTES):
            # Pages that were never used stay holes in the file. Comparing views would be slow: byte by byte.
            used = _libc.memcmp(ctypes.c_void_p(base + start), _NOTHING, ctypes.c_size_t(PAGE_BYTES))
            if used and os.pwrite(descriptor, view[start : start + PAGE_BYTES], start) < PAGE_BYTES:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        return {"problem": error.strerror}
    finally:
        os.close(descriptor)
    return {"size": size}


def map_memory(memory: wasmtime.Memory, store: wasmtime.Store, descriptor: int) -> None:
    """Map an open file, which must not change any more, as the memory of a new instance; closes the file.

    The mapping is private: pages are the file's until the guest writes to them. Mapping reads no page, so the size of
    an image costs nothing. The mapping lies inside the engine's own and is removed with it.
    """
    size = os.fstat(descriptor).st_size
    missing = size - memory.data_len(store)
    if missing > 0:
        memory.grow(store, -(-missing // PAGE_BYTES))
    if memory.data_len(store) != size:
        raise RuntimeError(f"an image of {size} bytes does not fit a memory of {memory.data_len(store)}")
    place = ctypes.c_void_p(memory_base(memory, store))
    flags = mmap.MAP_PRIVATE | _MAP_FIXED
    asked = (ctypes.c_size_t(size), mmap.PROT_READ | mmap.PROT_WRITE, flags, descriptor, ctypes.c_long(0))
    if _libc.mmap(place, *asked) != place.value:
        raise OSError(ctypes.get_errno(), "an image could not be mapped")
    os.close(descriptor)

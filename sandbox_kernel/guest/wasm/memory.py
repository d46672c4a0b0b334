"""The linear memory of a guest, which is its whole state between two calls: it is written to a file and mapped.

For a fork the pages that differ from what the guest began with are enough: some megabytes of fifty. A new guest maps
its image privately, so a page that it has written to is its own, and the kernel says which these are. In the file stand
these pages at their places, and holes for the others.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import re
from collections.abc import Iterator

import wasmtime

from .binary import PAGE_BYTES

_MAP_FIXED = 0x10
_NOTHING = bytes(PAGE_BYTES)
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p


def memory_base(memory: wasmtime.Memory, store: wasmtime.Store) -> int:
    """Return the address of the memory's first byte; it stays where it is when the memory grows."""
    return ctypes.addressof(memory.data_ptr(store).contents)


def _view(memory: wasmtime.Memory, store: wasmtime.Store) -> memoryview:
    """Return the memory as bytes, without a copy; valid only until the memory grows."""
    size = memory.data_len(store)
    return memoryview((ctypes.c_ubyte * size).from_address(memory_base(memory, store))).cast("B")


#: Of the entry of a page in the kernel's page map the last byte says what we ask: for each value of that byte, whether
#: the page is the guest's own.
_PRESENT, _SWAPPED, _OF_FILE, _ENTRY = 0x80, 0x40, 0x20, 8
_OWN = bytes(bool(byte & (_PRESENT | _SWAPPED) and byte & (_OF_FILE | _SWAPPED) != _OF_FILE) for byte in range(256))
_RUN = re.compile(rb"\x01+")


def _own_pages(memory: wasmtime.Memory, store: wasmtime.Store) -> list[slice] | None:
    """Return what the guest has written to; None when the kernel does not say."""
    first, count = (each // mmap.PAGESIZE for each in (memory_base(memory, store), memory.data_len(store)))
    try:
        with open("/proc/self/pagemap", "rb", buffering=0) as pages:
            entries = os.pread(pages.fileno(), count * _ENTRY, first * _ENTRY)
    except OSError:
        return None
    if len(entries) != count * _ENTRY:
        return None
    # A session has ten thousand pages and more: a loop over them would take longer than all the rest.
    runs = _RUN.finditer(entries[_ENTRY - 1 :: _ENTRY].translate(_OWN))
    return [slice(run.start() * mmap.PAGESIZE, run.end() * mmap.PAGESIZE) for run in runs]


def apply_changes(memory: wasmtime.Memory, store: wasmtime.Store, descriptor: int) -> None:
    """Put the changes of another guest of the same image into a new one; closes the file, which must not change."""
    size = _grown(memory, store, descriptor)
    view, base, at = _view(memory, store), memory_base(memory, store), 0
    for run in _own_pages(memory, store) or ():
        length = ctypes.c_size_t(run.stop - run.start)
        _libc.madvise(ctypes.c_void_p(base + run.start), length, mmap.MADV_DONTNEED)
    while at < size:
        try:
            start = os.lseek(descriptor, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:  # no more pages
                raise
            break
        at = min(os.lseek(descriptor, start, os.SEEK_HOLE), start + (1 << 30))
        # The kernel copies into the guest's memory itself, which costs less than a fault for each page.
        if os.preadv(descriptor, [view[start:at]], start) != at - start:
            raise RuntimeError("the changes of a session's memory could not be read")
    os.close(descriptor)


def write_memory(
    memory: wasmtime.Memory, store: wasmtime.Store, descriptor: int | None, *, changes: bool = False
) -> dict[str, object]:
    """Write the memory, or only what changed in it, to a file and close it; returns its ``size``, or ``problem``."""
    if descriptor is None:
        return {"problem": "no file came to write it to"}
    view = _view(memory, store)
    own = _own_pages(memory, store) if changes else None
    try:
        os.ftruncate(descriptor, len(view))
        for run in _used_pages(memory, store) if own is None else own:
            if os.pwrite(descriptor, view[run], run.start) < run.stop - run.start:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        return {"problem": error.strerror}
    finally:
        os.close(descriptor)
    return {"size": len(view), "changes": own is not None}


def _used_pages(memory: wasmtime.Memory, store: wasmtime.Store) -> Iterator[slice]:
    """Return the pages that are not zeros; the others stay holes in a file."""
    base = memory_base(memory, store)
    for start in range(0, memory.data_len(store), PAGE_BYTES):
        # Comparing views would be slow: byte by byte.
        if _libc.memcmp(ctypes.c_void_p(base + start), _NOTHING, ctypes.c_size_t(PAGE_BYTES)):
            yield slice(start, start + PAGE_BYTES)


def map_memory(memory: wasmtime.Memory, store: wasmtime.Store, descriptor: int) -> None:
    """Map an open file, which must not change any more, as the memory of a new instance; closes the file.

    The mapping is private: pages are the file's until the guest writes to them. Mapping reads no page, so the size of
    an image costs nothing. The mapping lies inside the engine's own and is removed with it.
    """
    size = _grown(memory, store, descriptor)
    place = ctypes.c_void_p(memory_base(memory, store))
    flags = mmap.MAP_PRIVATE | _MAP_FIXED
    asked = (ctypes.c_size_t(size), mmap.PROT_READ | mmap.PROT_WRITE, flags, descriptor, ctypes.c_long(0))
    if _libc.mmap(place, *asked) != place.value:
        raise OSError(ctypes.get_errno(), "an image could not be mapped")
    os.close(descriptor)


def _grown(memory: wasmtime.Memory, store: wasmtime.Store, descriptor: int) -> int:
    """Make a memory as large as a file, and return the size."""
    size = os.fstat(descriptor).st_size
    missing = size - memory.data_len(store)
    if missing > 0:
        memory.grow(store, -(-missing // PAGE_BYTES))
    if memory.data_len(store) != size:
        raise RuntimeError(f"an image of {size} bytes does not fit a memory of {memory.data_len(store)}")
    return size

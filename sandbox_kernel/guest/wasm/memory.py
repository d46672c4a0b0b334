"""The linear memory of a guest as a file: between two calls it is the guest's whole state.

``write_memory`` and ``map_memory`` write and map all of it, ``write_changes`` and ``apply_changes`` those pages that
differ from what the guest began with. A new guest maps its image privately, so a page that it has written to is its
own, and the kernel says which these are. A session changes some megabytes of the image's fifty, so a fork of it
copies those alone. Both guests must have begun with the same memory.
"""

from __future__ import annotations

import array
import ctypes
import errno
import mmap
import os
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import wasmtime

from .binary import PAGE_BYTES

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


@dataclass(frozen=True)
class Entered:
    """The memory of an instance and its store."""

    memory: wasmtime.Memory
    store: wasmtime.Store


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


#: Size of the kernel's pages; an entry of its page map has this many bytes, of which the last one says what we ask.
_PAGE, _ENTRY = mmap.PAGESIZE, 8
_PRESENT, _SWAPPED, _OF_FILE = 0x80, 0x40, 0x20
#: For each value of that byte: whether the page is the guest's own.
_OWN = bytes(bool(byte & (_PRESENT | _SWAPPED) and byte & (_OF_FILE | _SWAPPED) != _OF_FILE) for byte in range(256))
#: The file: size of the memory, number of runs, their first pages and lengths, the pages.
_HEADER = struct.Struct("<QI")
#: Most parts of one call, and pages of a run: together less than the two gigabytes that a call copies at most.
_MOST_VECTORS, _MOST_PAGES = 100, 4096
_RUN = re.compile(rb"\x01{1,%d}" % _MOST_PAGES)

#: Pages that follow each other: the number of the first, and how many.
Run = tuple[int, int]


def _marks(guest: HasMemory) -> bytes | None:
    """Return a byte for each page, 1 if the guest has written to it; None when the kernel does not say."""
    first, count = memory_base(guest) // _PAGE, guest.memory.data_len(guest.store) // _PAGE
    try:
        with open("/proc/self/pagemap", "rb", buffering=0) as pages:
            entries = os.pread(pages.fileno(), count * _ENTRY, first * _ENTRY)
    except OSError:
        return None
    # A session has ten thousand pages and more: a loop over them would take longer than all the rest.
    return entries[_ENTRY - 1 :: _ENTRY].translate(_OWN) if len(entries) == count * _ENTRY else None


def _runs(marks: bytes | bytearray) -> list[Run]:
    return [(found.start(), found.end() - found.start()) for found in _RUN.finditer(marks)]


def changed_pages(guest: HasMemory) -> list[Run] | None:
    """Return the pages that the guest has written to; None when the kernel does not say."""
    marks = _marks(guest)
    return None if marks is None else _runs(marks)


def write_changes(guest: HasMemory, descriptor: int, pages: Sequence[Run]) -> dict[str, object]:
    """Write these pages to an empty file; returns its ``size``, or the ``problem``."""
    numbers = array.array("I", [number for run in pages for number in run])
    head = _HEADER.pack(guest.memory.data_len(guest.store), len(pages)) + numbers.tobytes()
    parts = [memoryview(head), *_parts(guest, pages)]
    try:
        for start in range(0, len(parts), _MOST_VECTORS):
            some = parts[start : start + _MOST_VECTORS]
            if os.writev(descriptor, some) < sum(map(len, some)):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        return {"problem": error.strerror}
    return {"size": sum(map(len, parts)), "changes": True}


def apply_changes(guest: HasMemory, descriptor: int) -> None:
    """Put the pages of an open file into a new guest, and close the file. What the file says is checked."""
    try:
        size, count = _HEADER.unpack(os.pread(descriptor, _HEADER.size, 0))
        pages, start = size // _PAGE, _HEADER.size + 2 * 4 * count
        length = os.fstat(descriptor).st_size
        if count > pages or length < start:
            raise wasmtime.WasmtimeError("the changes of a session's memory are damaged")
        numbers = array.array("I", os.pread(descriptor, start - _HEADER.size, _HEADER.size))
        runs = list(zip(numbers[::2], numbers[1::2], strict=True))
        if length != start + sum(many for _, many in runs) * _PAGE:
            raise wasmtime.WasmtimeError("the changes of a session's memory are damaged")
        if any(first + many > pages or not 0 < many <= _MOST_PAGES for first, many in runs):
            raise wasmtime.WasmtimeError("the changes of a session's memory are damaged")
        missing = size - guest.memory.data_len(guest.store)
        if missing > 0:
            guest.memory.grow(guest.store, -(-missing // PAGE_BYTES))
        if guest.memory.data_len(guest.store) != size:
            raise wasmtime.WasmtimeError("the changes of a session's memory do not fit this guest")
        _forget_own(guest, runs)
        # The kernel copies into the guest's memory itself, which costs less than a fault for each page.
        parts = _parts(guest, runs)
        for at in range(0, len(parts), _MOST_VECTORS):
            some = parts[at : at + _MOST_VECTORS]
            wanted = sum(map(len, some))
            if os.preadv(descriptor, some, start) != wanted:
                raise wasmtime.WasmtimeError("the changes of a session's memory could not be read")
            start += wanted
    except struct.error:
        raise wasmtime.WasmtimeError("the changes of a session's memory are damaged") from None
    finally:
        os.close(descriptor)


def _forget_own(guest: HasMemory, given: Sequence[Run]) -> None:
    """Make what this guest has written to, and the other has not, again what it was."""
    base, pages = memory_base(guest), guest.memory.data_len(guest.store) // _PAGE
    own = bytearray(_marks(guest) or b"\x01" * pages)
    for first, many in given:
        own[first : first + many] = bytes(many)
    for first, many in _runs(own):
        _libc.madvise(ctypes.c_void_p(base + first * _PAGE), ctypes.c_size_t(many * _PAGE), mmap.MADV_DONTNEED)


def _parts(guest: HasMemory, pages: Sequence[Run]) -> list[memoryview]:
    """Return the memory of these pages, in their order."""
    view = memory_view(guest)
    return [view[first * _PAGE : (first + many) * _PAGE] for first, many in pages]

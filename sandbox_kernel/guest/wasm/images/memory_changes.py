"""Writes the pages of a guest's memory that differ from what it began with, and puts them into another guest.

A new guest maps its image privately: a page that it has written to is its own, and the kernel says which these are. A
session changes some megabytes of the image's fifty, so a fork of it copies those alone. Both guests must have begun
with the same memory.
"""

from __future__ import annotations

import array
import ctypes
import errno
import itertools
import mmap
import os
import struct
from collections.abc import Sequence

import wasmtime

from ..binary.inspect_module import PAGE_BYTES
from .memory_file import HasMemory, memory_base

#: Size of the kernel's pages; an entry of its page map has this many bytes.
_PAGE, _ENTRY = mmap.PAGESIZE, 8
_PRESENT, _SWAPPED, _OF_FILE = 1 << 63, 1 << 62, 1 << 61
#: The file: size of the memory, number of pages, their numbers, the pages.
_HEADER = struct.Struct("<QI")
#: Most parts of one call, and pages of a part: together less than the two gigabytes that a call copies at most.
_MOST_VECTORS, _MOST_PAGES = 100, 4096
_libc = ctypes.CDLL(None, use_errno=True)


def changed_pages(guest: HasMemory) -> list[int] | None:
    """Return the numbers of the pages that the guest has written to; None when the kernel does not say."""
    first, count = memory_base(guest) // _PAGE, guest.memory.data_len(guest.store) // _PAGE
    entries = array.array("Q")
    try:
        with open("/proc/self/pagemap", "rb", buffering=0) as pages:
            entries.frombytes(os.pread(pages.fileno(), count * _ENTRY, first * _ENTRY))
    except OSError:
        return None
    if len(entries) != count:
        return None
    own = _PRESENT | _SWAPPED
    return [place for place, entry in enumerate(entries) if entry & own and entry & (_OF_FILE | _SWAPPED) != _OF_FILE]


def write_changes(guest: HasMemory, path: str, pages: list[int]) -> dict[str, object]:
    """Write these pages to a new file; returns its ``size``, or the ``problem``."""
    base = memory_base(guest)
    head = _HEADER.pack(guest.memory.data_len(guest.store), len(pages)) + array.array("I", pages).tobytes()
    parts = [memoryview(head), *_runs(base, pages)]
    whole = sum(map(len, parts))
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        return {"problem": error.strerror}
    try:
        for start in range(0, len(parts), _MOST_VECTORS):
            some = parts[start : start + _MOST_VECTORS]
            if os.writev(descriptor, some) < sum(map(len, some)):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        os.unlink(path)
        return {"problem": error.strerror}
    finally:
        os.close(descriptor)
    return {"size": whole, "changes": True}


def apply_changes(guest: HasMemory, descriptor: int) -> None:
    """Put the pages of an open file into a new guest, and close the file. What the file says is checked."""
    try:
        size, count = _HEADER.unpack(os.pread(descriptor, _HEADER.size, 0))
        pages, start, length = size // _PAGE, _HEADER.size + 4 * count, os.fstat(descriptor).st_size
        if count > pages or length != start + count * _PAGE:
            raise wasmtime.WasmtimeError("the changes of a session's memory are damaged")
        numbers = array.array("I", os.pread(descriptor, 4 * count, _HEADER.size))
        if len(numbers) != count or max(numbers, default=0) >= max(pages, 1):
            raise wasmtime.WasmtimeError("the changes of a session's memory are damaged")
        missing = size - guest.memory.data_len(guest.store)
        if missing > 0:
            guest.memory.grow(guest.store, -(-missing // PAGE_BYTES))
        if guest.memory.data_len(guest.store) != size:
            raise wasmtime.WasmtimeError("the changes of a session's memory do not fit this guest")
        base = memory_base(guest)
        # What this guest has written to and the other has not becomes again what it was.
        for number in set(changed_pages(guest) or range(pages)).difference(numbers):
            _libc.madvise(ctypes.c_void_p(base + number * _PAGE), ctypes.c_size_t(_PAGE), mmap.MADV_DONTNEED)
        # The kernel copies into the guest's memory itself, which costs less than a fault for each page.
        parts = _runs(base, numbers)
        while parts:
            some, parts = parts[:_MOST_VECTORS], parts[_MOST_VECTORS:]
            wanted = sum(map(len, some))
            if os.preadv(descriptor, some, start) != wanted:
                raise wasmtime.WasmtimeError("the changes of a session's memory could not be read")
            start += wanted
    except struct.error:
        raise wasmtime.WasmtimeError("the changes of a session's memory are damaged") from None
    finally:
        os.close(descriptor)


def _runs(base: int, numbers: Sequence[int]) -> list[memoryview]:
    """Return the memory of these pages, in their order; neighbours are one part."""
    parts = []
    for _, run in itertools.groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        group = [page for _, page in run]
        for first in range(0, len(group), _MOST_PAGES):
            size = len(group[first : first + _MOST_PAGES]) * _PAGE
            parts.append(memoryview((ctypes.c_ubyte * size).from_address(base + group[first] * _PAGE)).cast("B"))
    return parts

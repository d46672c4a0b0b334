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

import wasmtime

from ..binary.inspect_module import PAGE_BYTES
from .memory_file import HasMemory, memory_base

#: Size of the kernel's pages; an entry of its page map has this many bytes.
_PAGE, _ENTRY = mmap.PAGESIZE, 8
_PRESENT, _SWAPPED, _OF_FILE = 1 << 63, 1 << 62, 1 << 61
#: The file: size of the memory, number of pages, their numbers, the pages.
_HEADER = struct.Struct("<QI")
_MOST_VECTORS = 512
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
    parts: list[memoryview] = [memoryview(head)]
    # Neighbours are written together.
    for _, run in itertools.groupby(enumerate(pages), lambda pair: pair[1] - pair[0]):
        numbers = [page for _, page in run]
        size = len(numbers) * _PAGE
        parts.append(memoryview((ctypes.c_ubyte * size).from_address(base + numbers[0] * _PAGE)).cast("B"))
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
        with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as content:
            size, count = _HEADER.unpack_from(content)
            start = _HEADER.size + 4 * count
            numbers = array.array("I", content[_HEADER.size : start])
            pages = size // _PAGE
            if len(content) != start + count * _PAGE or any(number >= pages for number in numbers):
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
            for place, number in enumerate(numbers):
                at = start + place * _PAGE
                ctypes.memmove(base + number * _PAGE, content[at : at + _PAGE], _PAGE)
    finally:
        os.close(descriptor)

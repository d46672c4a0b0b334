"""The WASI calls on descriptors: files and folders of the jail, standard streams, and messages to the worker.

The folder ``/sandbox``, where it is the first place, is a letter box: data that the guest writes to a file there is
passed to ``letter``, and the guest then reads the answer from that file. A descriptor can be a letter box too
(``post``): a write that ends with a line break ends a letter, and the answer is read from it, without opening
anything. ``GuestMemory`` reads and writes a guest's memory for all calls in plain Python.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import wasmtime

from ..guest_files import Folders

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


LETTER_BOX = "/sandbox"
_KINDS = {stat.S_IFDIR: 3, stat.S_IFREG: 4, stat.S_IFLNK: 7, stat.S_IFCHR: 2}
_CHARACTER_DEVICE, FOLDER, _FILE = 2, 3, 4


@dataclass
class Handle:
    """One open descriptor of the guest: a file or folder of the jail, or a letter."""

    path: str
    descriptor: int = -1
    preopened: bool = False
    flags: int = 0
    letter: bytearray | None = None
    at: int = 0
    #: What has been written of a letter; None for a handle that is no letter box.
    post: bytearray | None = None
    entries: list[tuple[str, int, int]] = field(default_factory=list)


class FileCalls(GuestMemory):
    """The open descriptors of a guest and the calls on them."""

    def __init__(
        self,
        folders: Folders,
        places: Sequence[str],
        write: Callable[[int, bytes], None],
        letter: Callable[[bytes], bytes],
    ) -> None:
        self._write, self._letter = write, letter
        self._answer = b""
        self.give(folders, places)

    def give(self, folders: Folders, places: Sequence[str]) -> None:
        """Give the guest these folders, under these names, instead of any before."""
        self._folders = folders
        # A saved guest has the descriptor numbers of its folders in memory: folders that every session has come first.
        self._handles = {3 + number: Handle(path, preopened=True) for number, path in enumerate(places)}
        self._first = 3 + len(self._handles)
        #: Whether ``/sandbox`` is a letter box: where it is the first place. Otherwise it may be a mount of the user.
        self._has_box = list(places[:1]) == [LETTER_BOX]

    def open_files(self) -> list[str]:
        """Return the paths of the guest's open files; they are not part of its memory, so they cannot be saved."""
        return [handle.path for handle in self._handles.values() if not handle.preopened]

    def _handle(self, number: int) -> Handle:
        if number not in self._handles:
            raise WasiRefusal(BAD_DESCRIPTOR)
        return self._handles[number]

    def _opened(self, number: int) -> int:
        descriptor = self._handle(number).descriptor
        if descriptor < 0:
            raise WasiRefusal(INVALID)
        return descriptor

    def _fd_prestat_get(self, number: int, at: int) -> None:
        handle = self._handle(number)
        if not handle.preopened:
            raise WasiRefusal(BAD_DESCRIPTOR)
        self._put(at, struct.pack("<BxxxI", 0, len(handle.path.encode())))

    def _fd_prestat_dir_name(self, number: int, at: int, size: int) -> None:
        self._put(at, self._handle(number).path.encode()[:size])

    def _fd_fdstat_get(self, number: int, at: int) -> None:
        if number in (0, 1, 2):
            kind, flags = _CHARACTER_DEVICE, 0
        else:
            handle = self._handle(number)
            kind = _FILE if handle.letter is not None else FOLDER
            if handle.descriptor >= 0:
                kind = _KINDS.get(stat.S_IFMT(os.fstat(handle.descriptor).st_mode), 0)
            flags = handle.flags
        self._put(at, struct.pack("<BxHxxxxQQ", kind, flags, (1 << 29) - 1, (1 << 29) - 1))

    def _fd_fdstat_set_flags(self, _number: int, _flags: int) -> None:
        pass

    def _fd_close(self, number: int) -> None:
        handle = self._handle(number)
        if handle.preopened:
            raise WasiRefusal(NOT_PERMITTED)
        del self._handles[number]
        if handle.descriptor >= 0:
            os.close(handle.descriptor)
        elif handle.letter is not None and handle.flags:
            self._answer = self._letter(bytes(handle.letter))

    def _fd_renumber(self, number: int, to: int) -> None:
        moved = self._handle(number)
        if moved.preopened or self._handle(to).preopened:
            raise WasiRefusal(NOT_PERMITTED)
        if number != to:
            self._fd_close(to)
            self._handles[to] = self._handles.pop(number)

    def _fd_filestat_get(self, number: int, at: int) -> None:
        if number in (0, 1, 2) or self._handle(number).letter is not None:
            self._put(at, struct.pack("<QQBxxxxxxxQQQQQ", 0, number, _CHARACTER_DEVICE, 1, 0, 0, 0, 0))
            return
        handle = self._handle(number)
        if handle.descriptor < 0:
            if handle.path == LETTER_BOX:
                self._put(at, struct.pack("<QQBxxxxxxxQQQQQ", 0, number, FOLDER, 1, 0, 0, 0, 0))
                return
            self._put_status(at, self._folders.stat(handle.path))
            return
        self._put_status(at, os.fstat(handle.descriptor))

    def _put_status(self, at: int, found: os.stat_result) -> None:
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), 0)
        times = (found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns)
        self._put(
            at, struct.pack("<QQBxxxxxxxQQQQQ", found.st_dev, found.st_ino, kind, found.st_nlink, found.st_size, *times)
        )

    def _fd_filestat_set_size(self, number: int, size: int) -> None:
        os.ftruncate(self._opened(number), size)

    def _fd_filestat_set_times(self, number: int, accessed: int, modified: int, flags: int) -> None:
        self._opened(number)
        self._folders.set_time(self._handle(number).path, new_times(accessed, modified, flags)[1] / 1e9)

    def _fd_sync(self, _number: int) -> None:
        pass

    _fd_datasync = _fd_sync

    def _fd_advise(self, _number: int, _offset: int, _size: int, _advice: int) -> None:
        pass

    def _fd_read(self, number: int, vectors: int, count: int, read_at: int) -> None:
        if number == 0:
            self._put_number(read_at, 0)
            return
        handle = self._handle(number)
        if handle.letter is not None:

            def take(size: int) -> bytes:
                data = bytes((handle.letter or b"")[handle.at : handle.at + size])
                handle.at += len(data)
                return data

            self._put_number(read_at, self._scattered(vectors, count, take))
            return
        descriptor = self._opened(number)
        self._put_number(read_at, self._scattered(vectors, count, lambda size: os.read(descriptor, size)))

    def _fd_pread(self, number: int, vectors: int, count: int, offset: int, read_at: int) -> None:
        descriptor, at = self._opened(number), offset

        def read(size: int) -> bytes:
            nonlocal at
            data = os.pread(descriptor, size, at)
            at += len(data)
            return data

        self._put_number(read_at, self._scattered(vectors, count, read))

    def _fd_write(self, number: int, vectors: int, count: int, written_at: int) -> None:
        data = self._gathered(vectors, count)
        if number in (1, 2):
            self._write(number, data)
            written = len(data)
        elif (handle := self._handle(number)).post is not None:
            self._post(handle, handle.post, data)
            written = len(data)
        elif handle.letter is not None:
            handle.letter += data
            written = len(data)
        else:
            written = os.write(self._opened(number), data)
        self._put_number(written_at, written)

    def _post(self, handle: Handle, post: bytearray, data: bytes) -> None:
        post += data
        if post.endswith(b"\n"):
            letter = bytes(post[:-1])
            post.clear()
            handle.letter, handle.at = bytearray(self._letter(letter)), 0

    def make_post(self, number: int) -> None:
        """Make a letter box of a descriptor that is a folder in other guests."""
        self._handles[number] = Handle(LETTER_BOX, preopened=True, letter=bytearray(), post=bytearray())

    def _fd_pwrite(self, number: int, vectors: int, count: int, offset: int, written_at: int) -> None:
        self._put_number(written_at, os.pwrite(self._opened(number), self._gathered(vectors, count), offset))

    def _fd_seek(self, number: int, offset: int, whence: int, at: int) -> None:
        if number in (0, 1, 2) or self._handle(number).letter is not None:
            raise WasiRefusal(NOT_SEEKABLE)
        if whence not in (os.SEEK_SET, os.SEEK_CUR, os.SEEK_END):
            raise WasiRefusal(INVALID)
        self._put_number(at, os.lseek(self._opened(number), offset, whence), 8)

    def _fd_tell(self, number: int, at: int) -> None:
        self._fd_seek(number, 0, os.SEEK_CUR, at)

    def _fd_readdir(self, number: int, start: int, size: int, cookie: int, used_at: int) -> None:
        handle = self._handle(number)
        if cookie == 0 or not handle.entries:
            names = [".", "..", *self._folders.names(handle.path)]
            handle.entries = [(name, *self._entry(handle.path, name)) for name in names]
        data = b""
        for place, (name, inode, kind) in enumerate(handle.entries[cookie:], cookie + 1):
            text = name.encode("utf-8", "surrogateescape")
            data += struct.pack("<QQIBxxx", place, inode, len(text), kind) + text
            if len(data) >= size:
                break
        self._put(start, data[:size])
        self._put_number(used_at, min(len(data), size))

    def _entry(self, folder: str, name: str) -> tuple[int, int]:
        if name in (".", ".."):
            return 0, FOLDER
        try:
            found = self._folders.stat(f"{folder}/{name}", follow=False)
        except OSError:
            return 0, 0
        return found.st_ino, _KINDS.get(stat.S_IFMT(found.st_mode), 0)


def new_times(accessed: int, modified: int, flags: int) -> tuple[int, int]:
    """Return the times that a call asks to set: the given ones, or now."""
    now = time.time_ns()
    return (now if flags & 2 else accessed, now if flags & 8 else modified)

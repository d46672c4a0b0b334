"""All of WASI (preview 1) in plain Python, for guests that live in a session: no threads, so that they can be forked.

The engine's own WASI starts a pool of threads at the first call, and a session makes its checkpoints by forking. Files
are opened beneath the folders of ``wasm_files``; links are refused, and there are no sockets. One folder, ``/sandbox``,
is a letter box: what is written to a file there is handed to ``letter``, whose answer is what is read there next.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import wasmtime

from .wasm_calls import WASI
from .wasm_endings import GuestExit
from .wasm_files import Folders

LETTER_BOX = "/sandbox"
_MOST_VECTORS, _MOST_RANDOM_BYTES, _MOST_FILES = 1024, 1 << 20, 200
#: How often a sleeping guest looks whether it was told to stop.
_SLICE_S = 0.05
#: The parameters of each call: i32 or, as I, i64. All return an error number, but for proc_exit.
_CALLS = {
    "args_get": "ii", "args_sizes_get": "ii", "environ_get": "ii", "environ_sizes_get": "ii", "clock_res_get": "ii",
    "clock_time_get": "iIi", "fd_advise": "iIIi", "fd_close": "i", "fd_datasync": "i", "fd_fdstat_get": "ii",
    "fd_fdstat_set_flags": "ii", "fd_filestat_get": "ii", "fd_filestat_set_size": "iI",
    "fd_filestat_set_times": "iIIi", "fd_pread": "iiiIi", "fd_prestat_get": "ii", "fd_prestat_dir_name": "iii",
    "fd_pwrite": "iiiIi", "fd_read": "iiii", "fd_readdir": "iiiIi", "fd_seek": "iIii", "fd_sync": "i",
    "fd_tell": "ii", "fd_write": "iiii", "path_create_directory": "iii", "path_filestat_get": "iiiii",
    "path_filestat_set_times": "iiiiIIi", "path_link": "iiiiiii", "path_open": "iiiiiIIii",
    "path_readlink": "iiiiii", "path_remove_directory": "iii", "path_rename": "iiiiii", "path_symlink": "iiiii",
    "path_unlink_file": "iii", "poll_oneoff": "iiii", "proc_exit": "i", "sched_yield": "", "random_get": "ii",
    "sock_accept": "iii", "sock_recv": "iiiiii", "sock_send": "iiiii", "sock_shutdown": "ii",
}  # fmt: skip
_BAD_DESCRIPTOR, _FAULT, _INVALID, _IO, _NO_CALL, _NOT_PERMITTED, _NOT_SEEKABLE = 8, 21, 28, 29, 52, 63, 70
_NUMBERS = {
    errno.EACCES: 2, errno.EAGAIN: 6, errno.EBADF: _BAD_DESCRIPTOR, errno.EBUSY: 10, errno.EEXIST: 20,
    errno.EFAULT: _FAULT, errno.EFBIG: 22, errno.EINTR: 27, errno.EINVAL: _INVALID, errno.EISDIR: 31,
    errno.ELOOP: 32, errno.EMFILE: 33, errno.ENAMETOOLONG: 37, errno.ENOENT: 44, errno.ENOSPC: 51,
    errno.ENOTDIR: 54, errno.ENOTEMPTY: 55, errno.EPERM: _NOT_PERMITTED, errno.EROFS: 69, errno.ESPIPE: _NOT_SEEKABLE,
    errno.EXDEV: 75, errno.EDQUOT: 51,
}  # fmt: skip
_KINDS = {stat.S_IFDIR: 3, stat.S_IFREG: 4, stat.S_IFLNK: 7, stat.S_IFCHR: 2}
_CHARACTER_DEVICE, _FOLDER, _FILE = 2, 3, 4
_CREATE, _DIRECTORY, _EXCLUSIVE, _TRUNCATE = 1, 2, 4, 8
_READS, _WRITES, _APPENDS = 1 << 1, 1 << 6, 1


class Refused(Exception):
    """A call that is answered with an error number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@dataclass
class Handle:
    """Something the guest has opened: a file or folder of the jail, or a letter."""

    path: str
    descriptor: int = -1
    preopened: bool = False
    flags: int = 0
    letter: bytearray | None = None
    at: int = 0
    entries: list[tuple[str, int, int]] = field(default_factory=list)


class PlainWasi:
    """The calls of one guest; ``memory`` and ``store`` are set when it has been instantiated."""

    memory: wasmtime.Memory
    store: wasmtime.Store

    def __init__(
        self, folders: Folders, places: Sequence[str], argv: Sequence[str], env: Mapping[str, str],
        write: Callable[[int, bytes], None], letter: Callable[[bytes], bytes],
    ) -> None:  # fmt: skip
        self._folders, self._write, self._letter = folders, write, letter
        self._argv = [word.encode() + b"\0" for word in argv]
        self._env = [f"{name}={value}".encode() + b"\0" for name, value in env.items()]
        self.stop: Callable[[], bool] = lambda: False
        self._answer = b""
        # A guest keeps the numbers of its folders in its memory: those that every session has come first.
        self._handles = {3 + number: Handle(path, preopened=True) for number, path in enumerate([LETTER_BOX, *places])}
        self._first = 3 + len(self._handles)

    def define(self, linker: wasmtime.Linker) -> None:
        """Offer the calls to a guest."""
        kinds = {"i": wasmtime.ValType.i32(), "I": wasmtime.ValType.i64()}
        for name, parameters in _CALLS.items():
            results = [] if name == "proc_exit" else [kinds["i"]]
            kind = wasmtime.FuncType([kinds[letter] for letter in parameters], results)
            linker.define_func(WASI, name, kind, self._proc_exit if name == "proc_exit" else self._guarded(name))

    def open_files(self) -> list[str]:
        """What the guest holds open, besides its folders; it is not part of its memory."""
        return [handle.path for handle in self._handles.values() if not handle.preopened]

    def _guarded(self, name: str) -> Callable[..., int]:
        call = getattr(self, f"_{name}", None)
        if call is None:
            return lambda *_arguments: _NOT_PERMITTED if name.startswith("path_") else _NO_CALL

        def guarded(*arguments: int) -> int:
            try:
                call(*arguments)
            except Refused as error:
                return error.number
            except OSError as error:
                return _NUMBERS.get(error.errno or 0, _IO)
            except (ValueError, OverflowError, struct.error):  # numbers that no file has
                return _INVALID
            return 0

        return guarded

    # ---- memory ------------------------------------------------------------------------------------------------------

    def _base(self, start: int, size: int) -> int:
        start &= 0xFFFFFFFF
        if size < 0 or start + size > self.memory.data_len(self.store):
            raise Refused(_FAULT)
        return ctypes.addressof(self.memory.data_ptr(self.store).contents) + start

    def _get(self, start: int, size: int) -> bytes:
        return ctypes.string_at(self._base(start, size), size)

    def _put(self, start: int, data: bytes) -> None:
        ctypes.memmove(self._base(start, len(data)), data, len(data))

    def _put_number(self, start: int, value: int, size: int = 4) -> None:
        self._put(start, (value & ((1 << 8 * size) - 1)).to_bytes(size, "little"))

    def _vectors(self, start: int, count: int) -> list[tuple[int, int]]:
        if not 0 <= count <= _MOST_VECTORS:
            raise Refused(_INVALID)
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

    def _path(self, number: int, start: int, size: int) -> str:
        name = self._get(start, size & 0xFFFFFFFF if size >= 0 else 0).decode("utf-8", "surrogateescape")
        folder = self._handle(number).path
        return name if name.startswith("/") else f"{folder}/{name}"

    def _handle(self, number: int) -> Handle:
        if number not in self._handles:
            raise Refused(_BAD_DESCRIPTOR)
        return self._handles[number]

    def _opened(self, number: int) -> int:
        descriptor = self._handle(number).descriptor
        if descriptor < 0:
            raise Refused(_INVALID)
        return descriptor

    # ---- arguments, clocks, randomness -------------------------------------------------------------------------------

    def _table(self, words: list[bytes], table: int, data: int) -> None:
        for word in words:
            self._put_number(table, data)
            self._put(data, word)
            table, data = table + 4, data + len(word)

    def _args_get(self, table: int, data: int) -> None:
        self._table(self._argv, table, data)

    def _args_sizes_get(self, count: int, size: int) -> None:
        self._put_number(count, len(self._argv))
        self._put_number(size, sum(map(len, self._argv)))

    def _environ_get(self, table: int, data: int) -> None:
        self._table(self._env, table, data)

    def _environ_sizes_get(self, count: int, size: int) -> None:
        self._put_number(count, len(self._env))
        self._put_number(size, sum(map(len, self._env)))

    def _clock_res_get(self, _clock: int, at: int) -> None:
        self._put_number(at, 1000, 8)

    def _clock_time_get(self, clock: int, _precision: int, at: int) -> None:
        clocks = {0: time.time_ns, 1: time.monotonic_ns}
        self._put_number(at, clocks.get(clock, time.process_time_ns)(), 8)

    def _random_get(self, start: int, size: int) -> None:
        if not 0 <= size <= _MOST_RANDOM_BYTES:
            raise Refused(_INVALID)
        self._put(start, os.urandom(size))

    def _sched_yield(self) -> None:
        pass

    def _proc_exit(self, code: int) -> None:
        raise GuestExit(code)

    def _poll_oneoff(self, asked: int, told: int, count: int, count_at: int) -> None:
        if not 0 < count <= _MOST_VECTORS:
            raise Refused(_INVALID)
        waits, now = [], []
        for number in range(count):
            user, tag = struct.unpack_from("<QB", entry := self._get(asked + 48 * number, 48))
            if tag != 0:
                now.append((user, tag))
                continue
            clock, nanoseconds, _, flags = struct.unpack_from("<IxxxxQQH", entry, 16)
            since = (time.time_ns() if clock == 0 else time.monotonic_ns()) if flags & 1 else 0
            waits.append((max(0, nanoseconds - since) / 1e9, user))
        if not now:
            shortest, user = min(waits)
            end = time.monotonic() + shortest
            while not self.stop() and (left := end - time.monotonic()) > 0:
                time.sleep(min(left, _SLICE_S))
            now = [(user, 0)]
        for number, (user, tag) in enumerate(now):
            self._put(told + 32 * number, struct.pack("<QHBxxxxxQHxxxxxx", user, 0, tag, 1, 0))
        self._put_number(count_at, len(now))

    # ---- descriptors -------------------------------------------------------------------------------------------------

    def _fd_prestat_get(self, number: int, at: int) -> None:
        handle = self._handle(number)
        if not handle.preopened:
            raise Refused(_BAD_DESCRIPTOR)
        self._put(at, struct.pack("<BxxxI", 0, len(handle.path.encode())))

    def _fd_prestat_dir_name(self, number: int, at: int, size: int) -> None:
        self._put(at, self._handle(number).path.encode()[:size])

    def _fd_fdstat_get(self, number: int, at: int) -> None:
        if number in (0, 1, 2):
            kind, flags = _CHARACTER_DEVICE, 0
        else:
            handle = self._handle(number)
            kind = _FILE if handle.letter is not None else _FOLDER
            if handle.descriptor >= 0:
                kind = _KINDS.get(stat.S_IFMT(os.fstat(handle.descriptor).st_mode), 0)
            flags = handle.flags
        self._put(at, struct.pack("<BxHxxxxQQ", kind, flags, (1 << 29) - 1, (1 << 29) - 1))

    def _fd_fdstat_set_flags(self, _number: int, _flags: int) -> None:
        pass

    def _fd_close(self, number: int) -> None:
        handle = self._handle(number)
        if handle.preopened:
            raise Refused(_NOT_PERMITTED)
        del self._handles[number]
        if handle.descriptor >= 0:
            os.close(handle.descriptor)
        elif handle.letter is not None and handle.flags:
            self._answer = self._letter(bytes(handle.letter))

    def _fd_filestat_get(self, number: int, at: int) -> None:
        if number in (0, 1, 2) or self._handle(number).letter is not None:
            self._put(at, struct.pack("<QQBxxxxxxxQQQQQ", 0, number, _CHARACTER_DEVICE, 1, 0, 0, 0, 0))
            return
        handle = self._handle(number)
        if handle.descriptor < 0:
            if handle.path == LETTER_BOX:
                self._put(at, struct.pack("<QQBxxxxxxxQQQQQ", 0, number, _FOLDER, 1, 0, 0, 0, 0))
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
        self._folders.set_time(self._handle(number).path, _times(accessed, modified, flags)[1] / 1e9)

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
        elif (handle := self._handle(number)).letter is not None:
            handle.letter += data
            written = len(data)
        else:
            written = os.write(self._opened(number), data)
        self._put_number(written_at, written)

    def _fd_pwrite(self, number: int, vectors: int, count: int, offset: int, written_at: int) -> None:
        self._put_number(written_at, os.pwrite(self._opened(number), self._gathered(vectors, count), offset))

    def _fd_seek(self, number: int, offset: int, whence: int, at: int) -> None:
        if number in (0, 1, 2) or self._handle(number).letter is not None:
            raise Refused(_NOT_SEEKABLE)
        if whence not in (os.SEEK_SET, os.SEEK_CUR, os.SEEK_END):
            raise Refused(_INVALID)
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
            return 0, _FOLDER
        try:
            found = self._folders.stat(f"{folder}/{name}", follow=False)
        except OSError:
            return 0, 0
        return found.st_ino, _KINDS.get(stat.S_IFMT(found.st_mode), 0)

    # ---- paths -------------------------------------------------------------------------------------------------------

    def _path_open(
        self, number: int, _lookup: int, name: int, size: int, how: int, rights: int, _passed: int, flags: int, at: int
    ) -> None:  # fmt: skip
        path = self._path(number, name, size)
        if len(self._handles) > _MOST_FILES:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        writes = bool(rights & _WRITES) and not how & _DIRECTORY
        if path.startswith(f"{LETTER_BOX}/"):
            opened = Handle(path, flags=int(writes), letter=bytearray(b"" if writes else self._answer))
        else:
            access = (os.O_RDWR if rights & _READS else os.O_WRONLY) if writes else os.O_RDONLY
            access |= os.O_CREAT if how & _CREATE else 0
            access |= os.O_EXCL if how & _EXCLUSIVE else 0
            access |= os.O_TRUNC if how & _TRUNCATE else 0
            access |= os.O_DIRECTORY if how & _DIRECTORY else 0
            access |= os.O_APPEND if flags & _APPENDS else 0
            # A pipe or device that lies in a mount must not keep the session waiting.
            descriptor = self._folders.open(path, access | os.O_NONBLOCK, 0o644 if how & _CREATE else 0)
            opened = Handle(path, descriptor, flags=flags)
        free = next(place for place in range(self._first, self._first + _MOST_FILES + 2) if place not in self._handles)
        self._handles[free] = opened
        self._put_number(at, free)

    def _path_filestat_get(self, number: int, lookup: int, name: int, size: int, at: int) -> None:
        path = self._path(number, name, size)
        if path.rstrip("/").rstrip(".").rstrip("/") == LETTER_BOX:
            self._put(at, struct.pack("<QQBxxxxxxxQQQQQ", 0, 0, _FOLDER, 1, 0, 0, 0, 0))
            return
        # A folder that was handed over is no link, and has no folder above it here.
        follow = bool(lookup & 1) or self._folders.absolute(path) in self._folders.places()
        self._put_status(at, self._folders.stat(path, follow=follow))

    def _path_filestat_set_times(
        self, number: int, _lookup: int, name: int, size: int, _accessed: int, modified: int, flags: int
    ) -> None:
        self._folders.set_time(self._path(number, name, size), _times(modified, modified, flags)[1] / 1e9)

    def _path_create_directory(self, number: int, name: int, size: int) -> None:
        self._folders.make_folder(self._path(number, name, size))

    def _path_remove_directory(self, number: int, name: int, size: int) -> None:
        self._folders.remove_folder(self._path(number, name, size))

    def _path_unlink_file(self, number: int, name: int, size: int) -> None:
        self._folders.remove(self._path(number, name, size))

    def _path_rename(self, number: int, name: int, size: int, to: int, new: int, new_size: int) -> None:
        self._folders.rename(self._path(number, name, size), self._path(to, new, new_size))

    def _path_readlink(self, number: int, name: int, size: int, at: int, most: int, used_at: int) -> None:
        target = self._folders.link(self._path(number, name, size)).encode("utf-8", "surrogateescape")[: max(0, most)]
        self._put(at, target)
        self._put_number(used_at, len(target))


def _times(accessed: int, modified: int, flags: int) -> tuple[int, int]:
    now = time.time_ns()
    return (now if flags & 2 else accessed, now if flags & 8 else modified)

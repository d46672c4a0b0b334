"""WASI (preview 1) in plain Python, for guests whose calls need more than the engine's own can do.

The engine's WASI starts threads, and checkpoints of sessions are forks; and it reads standard input without telling us,
where a user must be asked. Single runs that need neither have the engine's. Each call is a method ``_name`` below.

One descriptor can be a letter box: a write to it that ends with a line break ends a message, which is passed to
``letter``, and the answer is read from it.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import posixpath
import select
import stat
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import wasmtime

from .engine import WASI, proc_exit
from .guest_files import Folders
from .plan import Preopen

_MOST_VECTORS, _MOST_FILES, _MOST_RANDOM_BYTES, _MOST_READ_BYTES = 1024, 200, 1 << 20, 16 << 20
#: The longest sleep, in seconds: Python takes no longer one.
_MOST_SLEEP_S = 1 << 30
BAD_DESCRIPTOR, FAULT, INVALID, IO, NO_CALL, NOT_PERMITTED, NOT_SEEKABLE = 8, 21, 28, 29, 52, 63, 70
NUMBERS = {
    errno.EACCES: 2, errno.EAGAIN: 6, errno.EBADF: BAD_DESCRIPTOR, errno.EBUSY: 10, errno.EEXIST: 20,
    errno.EFAULT: FAULT, errno.EFBIG: 22, errno.EINTR: 27, errno.EINVAL: INVALID, errno.EISDIR: 31,
    errno.ELOOP: 32, errno.EMFILE: 33, errno.ENAMETOOLONG: 37, errno.ENOENT: 44, errno.ENOSPC: 51,
    errno.ENOTDIR: 54, errno.ENOTEMPTY: 55, errno.EPERM: NOT_PERMITTED, errno.EROFS: 69, errno.ESPIPE: NOT_SEEKABLE,
    errno.EXDEV: 75, errno.EDQUOT: 51,
}  # fmt: skip
_KINDS = {stat.S_IFDIR: 3, stat.S_IFREG: 4, stat.S_IFLNK: 7, stat.S_IFCHR: 2}
_CHARACTER_DEVICE, _FOLDER = 2, 3
_CREATE, _DIRECTORY, _EXCLUSIVE, _TRUNCATE = 1, 2, 4, 8
_READS, _WRITES, _APPENDS = 1 << 1, 1 << 6, 1
_STATUS = struct.Struct("<QQBxxxxxxxQQQQQ")


def write_all(stream: int, data: bytes) -> None:
    """Write all of the data to a stream of this process; blocks until that is done."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(stream, rest) :]
        except BlockingIOError:
            select.select([], [stream], [])
        except BrokenPipeError:
            return


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
        if not 0 <= count <= _MOST_VECTORS:
            raise WasiRefusal(INVALID)
        return list(struct.iter_unpack("<II", self._get(start, 8 * count)))

    def _gathered(self, vectors: int, count: int) -> bytes:
        return b"".join(self._get(start, size) for start, size in self._vectors(vectors, count))

    def _scattered(self, vectors: int, count: int, read: Callable[[int], bytes]) -> int:
        total = 0
        for start, size in self._vectors(vectors, count):
            data = read(min(size, _MOST_READ_BYTES))
            self._put(start, data)
            total += len(data)
            if len(data) < size:
                break
        return total


@dataclass
class Handle:
    """One open descriptor of the guest; ``descriptor`` is -1 for a folder that it was given."""

    path: str
    descriptor: int = -1
    flags: int = 0
    entries: list[tuple[str, int, int]] = field(default_factory=list)


#: The parameters of each call: i is i32, I is i64. All calls except proc_exit return an error number.
_CALLS = {
    "args_get": "ii", "args_sizes_get": "ii", "environ_get": "ii", "environ_sizes_get": "ii", "clock_res_get": "ii",
    "clock_time_get": "iIi", "fd_advise": "iIIi", "fd_allocate": "iII", "fd_close": "i", "fd_datasync": "i",
    "fd_fdstat_get": "ii", "fd_fdstat_set_flags": "ii", "fd_filestat_get": "ii", "fd_filestat_set_size": "iI",
    "fd_filestat_set_times": "iIIi", "fd_pread": "iiiIi", "fd_prestat_get": "ii", "fd_prestat_dir_name": "iii",
    "fd_pwrite": "iiiIi", "fd_read": "iiii", "fd_readdir": "iiiIi", "fd_renumber": "ii", "fd_seek": "iIii",
    "fd_sync": "i", "fd_tell": "ii", "fd_write": "iiii", "path_create_directory": "iii", "path_filestat_get": "iiiii",
    "path_filestat_set_times": "iiiiIIi", "path_link": "iiiiiii", "path_open": "iiiiiIIii", "path_readlink": "iiiiii",
    "path_remove_directory": "iii", "path_rename": "iiiiii", "path_symlink": "iiiii", "path_unlink_file": "iii",
    "poll_oneoff": "iiii", "proc_exit": "i", "sched_yield": "", "random_get": "ii", "fd_fdstat_set_rights": "iII",
    "proc_raise": "i", "sock_accept": "iii", "sock_recv": "iiiiii", "sock_send": "iiiii", "sock_shutdown": "ii",
}  # fmt: skip
#: Calls that succeed and do nothing.
_NO_EFFECT = ("fd_advise", "fd_datasync", "fd_fdstat_set_flags", "fd_sync", "sched_yield")


class PlainWasi(GuestMemory):
    """The calls of one guest; ``memory`` and ``store`` are set when it has been instantiated."""

    def __init__(
        self,
        argv: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        *,
        letter_box: int = -1,
        letter: Callable[[bytes], bytes] = bytes,
    ) -> None:
        self._argv = [word.encode() + b"\0" for word in argv]
        self._env = [f"{name}={value}".encode() + b"\0" for name, value in (env or {}).items()]
        self._letter_box, self._letter = letter_box, letter
        self._asked, self._answer = bytearray(), b""
        #: Called with stream and data; called with the most bytes of standard input.
        self.write: Callable[[int, bytes], None] = write_all
        self.read_input: Callable[[int], bytes] = lambda _size: b""
        self.give([])

    def give(self, preopens: Sequence[Preopen]) -> list[str]:
        """Give the guest these folders instead of any before; returns their names in the order of descriptors."""
        self._folders = Folders(preopens)
        names = [folder.guest if folder.guest != "." else preopens[0].guest for folder in preopens]
        # A saved guest has the descriptor numbers of its folders in memory: folders that every session has come first.
        self._handles = {3 + number: Handle(path) for number, path in enumerate(names)}
        self._first = 3 + len(self._handles)
        return names

    def define(self, linker: wasmtime.Linker) -> None:
        """Define the calls in a guest's linker."""
        kinds = {"i": wasmtime.ValType.i32(), "I": wasmtime.ValType.i64()}
        for name, parameters in _CALLS.items():
            results = [] if name == "proc_exit" else [kinds["i"]]
            kind = wasmtime.FuncType([kinds[letter] for letter in parameters], results)
            linker.define_func(WASI, name, kind, proc_exit if name == "proc_exit" else self._guarded(name))

    def _guarded(self, name: str) -> Callable[..., int]:
        if name in _NO_EFFECT:
            return lambda *_arguments: 0
        call = getattr(self, f"_{name}", None)
        if call is None:
            return lambda *_arguments: NOT_PERMITTED if name.startswith("path_") else NO_CALL

        def guarded(*arguments: int) -> int:
            try:
                call(*arguments)
            except WasiRefusal as error:
                return error.number
            except OSError as error:
                return NUMBERS.get(error.errno or 0, IO)
            except (ValueError, OverflowError, struct.error):  # numbers outside of any valid range
                return INVALID
            return 0

        return guarded

    def open_files(self) -> list[str]:
        """Return the paths of the guest's open files; they are not part of its memory, so they cannot be saved."""
        return [handle.path for handle in self._handles.values() if handle.descriptor >= 0]

    # ---- arguments, clocks, randomness, sleep, exit

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
            raise WasiRefusal(INVALID)
        self._put(start, os.urandom(size))

    def _poll_oneoff(self, asked: int, told: int, count: int, count_at: int) -> None:
        if not 0 < count <= _MOST_VECTORS:
            raise WasiRefusal(INVALID)
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
            time.sleep(min(shortest, _MOST_SLEEP_S))
            now = [(user, 0)]
        for number, (user, tag) in enumerate(now):
            self._put(told + 32 * number, struct.pack("<QHBxxxxxQHxxxxxx", user, 0, tag, 1, 0))
        self._put_number(count_at, len(now))

    # ---- open files

    def _handle(self, number: int) -> Handle:
        if number not in self._handles:
            raise WasiRefusal(BAD_DESCRIPTOR)
        return self._handles[number]

    def _opened(self, number: int) -> int:
        descriptor = self._handle(number).descriptor
        if descriptor < 0:
            raise WasiRefusal(INVALID)
        return descriptor

    def _preopened(self, number: int) -> bytes:
        handle = self._handle(number)
        if handle.descriptor >= 0:
            raise WasiRefusal(BAD_DESCRIPTOR)
        return handle.path.encode()

    def _fd_prestat_get(self, number: int, at: int) -> None:
        self._put(at, struct.pack("<BxxxI", 0, len(self._preopened(number))))

    def _fd_prestat_dir_name(self, number: int, at: int, size: int) -> None:
        self._put(at, self._preopened(number)[:size])

    def _is_stream(self, number: int) -> bool:
        return number in (0, 1, 2, self._letter_box)

    def _fd_fdstat_get(self, number: int, at: int) -> None:
        kind, flags = _CHARACTER_DEVICE, 0
        if not self._is_stream(number):
            handle = self._handle(number)
            opened = handle.descriptor >= 0
            kind = _KINDS.get(stat.S_IFMT(os.fstat(handle.descriptor).st_mode), 0) if opened else _FOLDER
            flags = handle.flags
        self._put(at, struct.pack("<BxHxxxxQQ", kind, flags, (1 << 29) - 1, (1 << 29) - 1))

    def _fd_close(self, number: int) -> None:
        descriptor = self._handle(number).descriptor
        if descriptor < 0:
            raise WasiRefusal(NOT_PERMITTED)
        del self._handles[number]
        os.close(descriptor)

    def _fd_renumber(self, number: int, to: int) -> None:
        if self._handle(number).descriptor < 0 or self._handle(to).descriptor < 0:
            raise WasiRefusal(NOT_PERMITTED)
        if number != to:
            self._fd_close(to)
            self._handles[to] = self._handles.pop(number)

    def _fd_filestat_get(self, number: int, at: int) -> None:
        if self._is_stream(number):
            self._put(at, _STATUS.pack(0, number, _CHARACTER_DEVICE, 1, 0, 0, 0, 0))
            return
        handle = self._handle(number)
        opened = handle.descriptor >= 0
        self._put_status(at, os.fstat(handle.descriptor) if opened else self._folders.stat(handle.path))

    def _put_status(self, at: int, found: os.stat_result) -> None:
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), 0)
        times = (found.st_atime_ns, found.st_mtime_ns, found.st_ctime_ns)
        self._put(at, _STATUS.pack(found.st_dev, found.st_ino, kind, found.st_nlink, found.st_size, *times))

    def _fd_filestat_set_size(self, number: int, size: int) -> None:
        os.ftruncate(self._opened(number), size)

    def _fd_filestat_set_times(self, number: int, _accessed: int, modified: int, flags: int) -> None:
        self._opened(number)
        self._folders.set_time(self._handle(number).path, _new_time(modified, flags))

    def _fd_read(self, number: int, vectors: int, count: int, read_at: int) -> None:
        def take_answer(size: int) -> bytes:
            part, self._answer = self._answer[:size], self._answer[size:]
            return part

        read = self.read_input if number == 0 else take_answer
        if not self._is_stream(number):
            read = functools.partial(os.read, self._opened(number))
        self._put_number(read_at, self._scattered(vectors, count, read))

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
        written = len(data)
        if number in (1, 2):
            self.write(number, data)
        elif number == self._letter_box:
            self._asked += data
            if data.endswith(b"\n"):
                letter, self._asked = bytes(self._asked[:-1]), bytearray()
                self._answer = self._letter(letter)
        else:
            written = os.write(self._opened(number), data)
        self._put_number(written_at, written)

    def _fd_pwrite(self, number: int, vectors: int, count: int, offset: int, written_at: int) -> None:
        self._put_number(written_at, os.pwrite(self._opened(number), self._gathered(vectors, count), offset))

    def _fd_seek(self, number: int, offset: int, whence: int, at: int) -> None:
        if self._is_stream(number):
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
            return 0, _FOLDER
        try:
            found = self._folders.stat(f"{folder}/{name}", follow=False)
        except OSError:
            return 0, 0
        return found.st_ino, _KINDS.get(stat.S_IFMT(found.st_mode), 0)

    # ---- paths beneath the folders

    def _path(self, number: int, start: int, size: int) -> str:
        name = self._get(start, size & 0xFFFFFFFF if size >= 0 else 0).decode("utf-8", "surrogateescape")
        folder = self._handle(number).path
        # As in the engine's own WASI, a descriptor is a right to what is beneath it.
        if name.startswith("/") or posixpath.normpath(name).split("/")[0] == "..":
            raise OSError(errno.EPERM, os.strerror(errno.EPERM), name)
        return f"{folder.rstrip('/')}/{name}"

    def _path_open(
        self, number: int, _lookup: int, name: int, size: int, how: int, rights: int, _passed: int, flags: int, at: int
    ) -> None:  # fmt: skip
        path = self._path(number, name, size)
        if len(self._handles) > _MOST_FILES:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        writes = bool(rights & _WRITES) and not how & _DIRECTORY
        access = (os.O_RDWR if rights & _READS else os.O_WRONLY) if writes else os.O_RDONLY
        access |= os.O_CREAT if how & _CREATE else 0
        access |= os.O_EXCL if how & _EXCLUSIVE else 0
        access |= os.O_TRUNC if how & _TRUNCATE else 0
        access |= os.O_DIRECTORY if how & _DIRECTORY else 0
        access |= os.O_APPEND if flags & _APPENDS else 0
        # A pipe or device in a mount must not block the session.
        descriptor = self._folders.open(path, access | os.O_NONBLOCK, 0o644 if how & _CREATE else 0)
        free = next(place for place in range(self._first, self._first + _MOST_FILES + 2) if place not in self._handles)
        self._handles[free] = Handle(path, descriptor, flags)
        self._put_number(at, free)

    def _path_filestat_get(self, number: int, lookup: int, name: int, size: int, at: int) -> None:
        path = self._path(number, name, size)
        # A preopened folder is not a link, and has no parent folder here.
        follow = bool(lookup & 1) or self._folders.absolute(path) in self._folders.places()
        self._put_status(at, self._folders.stat(path, follow=follow))

    def _path_filestat_set_times(
        self, number: int, _lookup: int, name: int, size: int, _accessed: int, modified: int, flags: int
    ) -> None:
        self._folders.set_time(self._path(number, name, size), _new_time(modified, flags))

    def _path_create_directory(self, number: int, name: int, size: int) -> None:
        self._folders.make_folder(self._path(number, name, size))

    def _path_remove_directory(self, number: int, name: int, size: int) -> None:
        self._folders.remove_folder(self._path(number, name, size))

    def _path_unlink_file(self, number: int, name: int, size: int) -> None:
        self._folders.remove(self._path(number, name, size))

    def _path_rename(self, number: int, name: int, size: int, to: int, new: int, new_size: int) -> None:
        self._folders.rename(self._path(number, name, size), self._path(to, new, new_size))

    def _path_symlink(self, target: int, target_size: int, number: int, name: int, size: int) -> None:
        text = self._get(target, max(0, target_size)).decode("utf-8", "surrogateescape")
        self._folders.make_link(text, self._path(number, name, size))

    def _path_link(self, number: int, _look: int, name: int, size: int, to: int, new: int, new_size: int) -> None:
        self._folders.make_hard_link(self._path(number, name, size), self._path(to, new, new_size))

    def _path_readlink(self, number: int, name: int, size: int, at: int, most: int, used_at: int) -> None:
        target = self._folders.link(self._path(number, name, size)).encode("utf-8", "surrogateescape")[: max(0, most)]
        self._put(at, target)
        self._put_number(used_at, len(target))


def _new_time(modified: int, flags: int) -> float:
    """Return the time that a call asks to set, in seconds: the given one, or now."""
    return (time.time_ns() if flags & 8 else modified) / 1e9

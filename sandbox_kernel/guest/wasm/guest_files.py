"""File access for guests whose calls the engine's WASI does not handle: the same folders and rules, by system calls.

The kernel resolves each path beneath one of the opened folders (``openat2``), so neither ``..`` nor a link leads out,
also when the folder changes at the same time. All of this runs inside a jail, which is the second wall.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gzip
import os
import posixpath
import stat
from collections.abc import Iterator, Sequence
from typing import IO

from .plan import Preopen

_OPENAT2 = 437  # the same number on every architecture
_BENEATH, _NO_MAGIC_LINKS = 0x08, 0x02
#: The largest file that a guest may read at once, in bytes.
MOST_BYTES = 1 << 30

_libc = ctypes.CDLL(None, use_errno=True)


def read_at_most(file: IO[bytes] | gzip.GzipFile, limit: int) -> bytes:
    """Read to the end or to the limit, in pieces: ``read(limit)`` would allocate memory for the whole limit."""
    parts = []
    left = limit
    while left and (part := file.read(min(left, 1 << 20))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _refusal(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)


class Folders:
    """The folders of one guest. Relative paths are relative to the first one."""

    def __init__(self, preopens: Sequence[Preopen]) -> None:
        self._home = preopens[0].guest if preopens else "/"
        self._roots = [(p.guest.rstrip("/"), p.host, p.writable) for p in preopens if p.guest.startswith("/")]
        # Longest name first: a mount inside another folder is a folder of its own.
        self._roots.sort(key=lambda root: -len(root[0]))

    def read(self, path: str) -> bytes:
        """Return the whole content of a file."""
        with self._opened(path, os.O_RDONLY) as descriptor:
            status = os.fstat(descriptor)
            if stat.S_ISDIR(status.st_mode):
                raise _refusal(errno.EISDIR, path)
            if status.st_size > MOST_BYTES:
                raise _refusal(errno.EFBIG, path)
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                return read_at_most(file, MOST_BYTES)

    def write(self, path: str, data: bytes, *, append: bool = False) -> None:
        """Create or replace a file, or append to it."""
        flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if append else os.O_TRUNC)
        with self._opened(path, flags, 0o644) as descriptor:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]

    def open(self, path: str, flags: int, mode: int = 0) -> int:
        """Open a file and return its descriptor; the caller closes it."""
        with self._opened(path, flags, mode) as descriptor:
            return os.dup(descriptor)

    def stat(self, path: str, *, follow: bool = True) -> os.stat_result:
        """Return the stat result of a path; of the link itself if ``follow`` is False."""
        if follow:
            with self._opened(path, os.O_PATH) as descriptor:
                return os.fstat(descriptor)
        with self._parent(path, writes=False) as (folder, name):
            return os.stat(name, dir_fd=folder, follow_symlinks=False)

    def names(self, path: str) -> list[str]:
        """Return the names in a folder, sorted, with the mounts below it."""
        with self._opened(path, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
            return sorted(os.listdir(descriptor))

    def make_folder(self, path: str, *, parents: bool = False) -> None:
        """Make a folder; with ``parents``, also those above it, and it may exist already."""
        if parents:
            above = posixpath.dirname(self.absolute(path))
            if not self._is_folder(above):
                self.make_folder(above, parents=True)
            if self._is_folder(path):
                return
        with self._parent(path) as (folder, name):
            os.mkdir(name, 0o755, dir_fd=folder)

    def remove(self, path: str, *, recursive: bool = False) -> None:
        """Remove a file or, with ``recursive``, a folder with its content."""
        with self._parent(path) as (folder, name):
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if not stat.S_ISDIR(status.st_mode):
                os.unlink(name, dir_fd=folder)
                return
        if not recursive:
            raise _refusal(errno.EISDIR, path)
        for name in self.names(path):
            self.remove(posixpath.join(self.absolute(path), name), recursive=True)
        self.remove_folder(path)

    def remove_folder(self, path: str) -> None:
        """Remove an empty folder."""
        with self._parent(path) as (folder, name):
            os.rmdir(name, dir_fd=folder)

    def rename(self, old: str, new: str) -> None:
        """Move a file or folder; both places must be in writable folders."""
        with self._parent(old) as (old_folder, old_name), self._parent(new) as (new_folder, new_name):
            os.rename(old_name, new_name, src_dir_fd=old_folder, dst_dir_fd=new_folder)

    def set_mode(self, path: str, mode: int) -> None:
        """Change the permissions of a file."""
        with self._opened(path, os.O_RDONLY, changes=True) as descriptor:
            os.fchmod(descriptor, mode & 0o777)

    def set_time(self, path: str, seconds: float) -> None:
        """Set the modification time of a file."""
        with self._opened(path, os.O_RDONLY, changes=True) as descriptor:
            os.utime(descriptor, (seconds, seconds))

    def link(self, path: str) -> str:
        """Return the target of a symbolic link."""
        with self._parent(path, writes=False) as (folder, name):
            return os.readlink(name, dir_fd=folder)

    def make_link(self, target: str, path: str) -> None:
        """Make a symbolic link; refuses an absolute target, which would not resolve."""
        if target.startswith("/"):
            raise _refusal(errno.EPERM, path)
        with self._parent(path) as (folder, name):
            os.symlink(target, name, dir_fd=folder)

    def make_hard_link(self, old: str, new: str) -> None:
        """Give a file another name; both names must be in writable folders."""
        with self._parent(old) as (old_folder, old_name), self._parent(new) as (new_folder, new_name):
            os.link(old_name, new_name, src_dir_fd=old_folder, dst_dir_fd=new_folder, follow_symlinks=False)

    def host_path(self, path: str) -> str:
        """Return where a path of the guest is in the jail, for a program beside the guest; no link leads out."""
        host, below = self._root(path, writes=False)
        root, found = os.path.realpath(host), os.path.realpath(os.path.join(host, below))
        if os.path.commonpath((root, found)) != root:
            raise _refusal(errno.ENOENT, path)
        return found

    def places(self) -> list[str]:
        """Return the guest's names of the folders, outermost first."""
        return [name or "/" for name, _, _ in reversed(self._roots)]

    def absolute(self, path: str) -> str:
        """Return the guest's path as an absolute path without ``.`` and ``..``."""
        if "\0" in path:
            raise _refusal(errno.EINVAL, path)
        return posixpath.normpath(posixpath.join(self._home, path))

    def _is_folder(self, path: str) -> bool:
        try:
            return stat.S_ISDIR(self.stat(path).st_mode)
        except OSError:
            return False

    def _root(self, path: str, *, writes: bool) -> tuple[str, str]:
        """Return the folder of the jail that contains a path, and the path within it."""
        full = self.absolute(path)
        for name, host, writable in self._roots:
            if full == name or full.startswith(name + "/"):
                if writes and not writable:
                    raise _refusal(errno.EROFS, path)
                return host, full[len(name) :].lstrip("/") or "."
        raise _refusal(errno.ENOENT, path)

    @contextlib.contextmanager
    def _opened(self, path: str, flags: int, mode: int = 0, *, changes: bool = False) -> Iterator[int]:
        # O_CREAT and O_TRUNC change a file even if it is opened for reading only.
        writes = changes or bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC))
        with _with_guest_path(path), _beneath(*self._root(path, writes=writes), flags, mode) as descriptor:
            yield descriptor

    @contextlib.contextmanager
    def _parent(self, path: str, *, writes: bool = True) -> Iterator[tuple[int, str]]:
        """Open the parent folder of a path; yields its descriptor and the last part of the path."""
        above, name = posixpath.split(self.absolute(path))
        if self._root(path, writes=writes)[1] == ".":
            raise _refusal(errno.EBUSY, path)
        place = self._root(above, writes=writes)
        with _with_guest_path(path), _beneath(*place, os.O_PATH | os.O_DIRECTORY) as folder:
            yield folder, name


@contextlib.contextmanager
def _beneath(host: str, path: str, flags: int, mode: int = 0) -> Iterator[int]:
    """Open a path beneath a folder of the jail, for the time of a block."""
    root = os.open(host, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        how = (ctypes.c_uint64 * 3)(flags | os.O_CLOEXEC, mode, _BENEATH | _NO_MAGIC_LINKS)
        place, name = ctypes.c_long(root), path.encode("utf-8", "surrogateescape")
        descriptor: int = _libc.syscall(ctypes.c_long(_OPENAT2), place, name, how, ctypes.c_long(24))
        if descriptor < 0:
            number = ctypes.get_errno()
            # To the guest, a path that would leave its folder does not exist.
            raise _refusal(errno.ENOENT if number == errno.EXDEV else number, path)
    finally:
        os.close(root)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _with_guest_path(path: str) -> Iterator[None]:
    """Raise errors with the path that the guest gave, not with its place in the jail."""
    try:
        yield
    except OSError as error:
        raise _refusal(error.errno or errno.EIO, path) from None

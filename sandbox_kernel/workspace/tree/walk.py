"""Walks a whole file tree without following links, recursing, blocking or unbounded memory.

A hostile program made the tree: it may be 100 000 levels deep, hold a million names, or change during the walk. A walk
therefore has limits, and reports which folders it did not see completely.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from sandbox_kernel.limits import MIB
from sandbox_kernel.util.linux_calls import closed_after
from sandbox_kernel.util.values import dataclass
from sandbox_kernel.workspace.tree.paths import MAX_PATH_BYTES, Names

FILE, DIRECTORY, SYMLINK, FIFO, SOCKET, DEVICE = "file", "directory", "symlink", "fifo", "socket", "device"
#: The type where something was removed: nothing shall stand there.
GONE = "gone"
#: Why a folder was not entered that has a file system of its own.
MOUNT = "mount"
#: The time of an entry whose time is not known.
NO_TIME = -1

_TYPES = {
    stat.S_IFREG: FILE,
    stat.S_IFDIR: DIRECTORY,
    stat.S_IFLNK: SYMLINK,
    stat.S_IFIFO: FIFO,
    stat.S_IFSOCK: SOCKET,
    stat.S_IFCHR: DEVICE,
    stat.S_IFBLK: DEVICE,
}


def type_name(mode: int) -> str:
    """Return the type of a file by its mode: file, directory, symlink, fifo, socket or device."""
    return _TYPES.get(mode & 0o170000, DEVICE)


class Entry(NamedTuple):
    """What stands at a path: in a work folder, a layer, a copy, a saved session, an archive or the user's folder.

    Values of ``lstat``, as far as they are known. A tuple, because a comparison makes tens of thousands of them.
    ``DirEntry`` is its public name. ``type`` is file, directory, symlink, fifo, socket or device; or gone.
    """

    path: str
    type: str
    size: int = 0
    mode: int = 0
    inode: int = 0
    mtime_ns: int = NO_TIME
    ctime_ns: int = 0
    #: Where a link leads.
    target: str | None = None
    #: The content of a file, where it was read.
    data: bytes | None = None
    #: Whether a folder of a layer was made anew, so that nothing of the folder below shows through.
    opaque: bool = False

    @property
    def name(self) -> str:
        """The last name of the path."""
        return self.path.rpartition("/")[2]

    @property
    def names(self) -> Names:
        """The path as exact names."""
        return tuple(self.path.split("/"))

    @property
    def is_dir(self) -> bool:
        """Whether it is a folder (false for a link to one)."""
        return self.type == DIRECTORY

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file (false for a link to one)."""
        return self.type == FILE

    @property
    def is_gone(self) -> bool:
        """Whether the path shall not be there."""
        return self.type == GONE

    @property
    def bits(self) -> int:
        """The permission bits."""
        return self.mode & 0o777

    @classmethod
    def of(cls, path: str, info: os.stat_result, target: str | None = None) -> Entry:
        """Return the entry of ``path`` for the result of ``lstat``."""
        kind, mode = type_name(info.st_mode), info.st_mode & 0o7777
        return cls(path, kind, info.st_size, mode, info.st_ino, info.st_mtime_ns, info.st_ctime_ns, target)

    def is_version(self, other: Entry) -> bool:
        """Whether both are the same version of a file; a rename changes nothing but the change time."""
        return self[1:6] == other[1:6]


DirEntry = Entry


def is_cut(unseen: Mapping[str, str]) -> bool:
    """Whether a walk left out a part of its tree; a mount inside is no part of it."""
    return any(reason != MOUNT for reason in unseen.values())


@dataclass(frozen=True, kw_only=True)
class WalkLimits:
    """How much of a tree a walk looks at. With the defaults a walk takes about 30 MB of memory at most."""

    #: Most files and folders.
    entries: int = 50_000
    #: Most characters in all paths together; bounds the memory of names.
    path_bytes: int = 8 * MIB
    #: Most bytes in all files together, by their shown size, so that holes count; None for no limit.
    file_bytes: int | None = None
    #: Most names in one path.
    depth: int = 256
    seconds: float = 10.0


class Walk(Iterable[Entry]):
    """Iterates once over the entries beneath a root, each folder before its content. Made by ``Rooted.walk``.

    After the last entry, ``unseen`` maps folders that were not seen completely (``""`` is the root) to the reason: the
    limit ``entries``, ``path_bytes``, ``file_bytes``, ``depth`` or ``seconds``; ``mount`` or ``unreadable`` for a
    folder that was not entered. Links are entries and are never followed.
    """

    def __init__(self, open_folder: Callable[[Names], int], limits: WalkLimits) -> None:
        self.unseen: dict[str, str] = {}
        self._open_folder = open_folder
        self._limits = limits
        self._deadline = time.monotonic() + limits.seconds
        self._entries = self._path_bytes = self._file_bytes = 0
        self._stack = [""]

    def __iter__(self) -> Iterator[Entry]:
        # Not kept here: a loop that raises drops its generator, which closes the folder that is open.
        while self._stack:
            folder = self._stack.pop()
            try:
                fd = self._open_folder(tuple(folder.split("/")) if folder else ())
            except OSError as error:
                self.unseen[folder] = MOUNT if error.errno == errno.EXDEV else "unreadable"
                continue
            with closed_after(fd):
                stopped_by = yield from self._look_into(folder, fd)
            if stopped_by is not None:
                self.unseen.update(dict.fromkeys((folder, *self._stack), stopped_by))
                return

    def _look_into(self, folder: str, fd: int) -> Generator[Entry, None, str | None]:
        """Yield the entries of one folder, sorted by name. Returns the limit that stopped it, or None."""
        try:
            with os.scandir(fd) as scan:
                names = sorted(found.name for found in islice(scan, self._limits.entries - self._entries + 1))
        except OSError:
            self.unseen[folder] = "unreadable"
            return None
        prefix = folder + "/" if folder else ""
        folders: list[str] = []
        stopped_by = target = None
        for name in names:
            stopped_by = self._limit_reached()
            if stopped_by is not None:
                break
            try:
                status = os.stat(name, dir_fd=fd, follow_symlinks=False)
                target = os.readlink(name, dir_fd=fd) if stat.S_ISLNK(status.st_mode) else None
            except FileNotFoundError:
                continue  # removed since it was listed
            except OSError:
                self.unseen[folder] = "unreadable"
                continue
            entry = Entry.of(prefix + name, status, target)
            self._entries += 1
            self._path_bytes += len(entry.path) + len(target or "")
            if entry.is_dir:
                folders.append(entry.path)
            elif entry.is_file:
                self._file_bytes += entry.size
            yield entry
        too_deep = folder.count("/") + (2 if folder else 1) >= self._limits.depth
        for path in reversed(folders):
            if too_deep or len(os.fsencode(path)) > MAX_PATH_BYTES:
                self.unseen[path] = "depth"
            else:
                self._stack.append(path)
        return stopped_by

    def _limit_reached(self) -> str | None:
        limits = self._limits
        if self._entries >= limits.entries:
            return "entries"
        if self._path_bytes >= limits.path_bytes:
            return "path_bytes"
        if limits.file_bytes is not None and self._file_bytes > limits.file_bytes:
            return "file_bytes"
        return "seconds" if time.monotonic() > self._deadline else None

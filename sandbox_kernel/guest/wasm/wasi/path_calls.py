"""The WASI calls on paths beneath the folders of ``guest_files.py``."""

from __future__ import annotations

import errno
import os
import posixpath
import struct

from .file_calls import FOLDER, LETTER_BOX, FileCalls, Handle, new_times

_MOST_FILES = 200
_CREATE, _DIRECTORY, _EXCLUSIVE, _TRUNCATE = 1, 2, 4, 8
_READS, _WRITES, _APPENDS = 1 << 1, 1 << 6, 1


class PathCalls(FileCalls):
    """The calls that name a file or folder."""

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
        if self._has_box and path.startswith(f"{LETTER_BOX}/"):
            opened = Handle(path, flags=int(writes), letter=bytearray(b"" if writes else self._answer))
        else:
            access = (os.O_RDWR if rights & _READS else os.O_WRONLY) if writes else os.O_RDONLY
            access |= os.O_CREAT if how & _CREATE else 0
            access |= os.O_EXCL if how & _EXCLUSIVE else 0
            access |= os.O_TRUNC if how & _TRUNCATE else 0
            access |= os.O_DIRECTORY if how & _DIRECTORY else 0
            access |= os.O_APPEND if flags & _APPENDS else 0
            # A pipe or device in a mount must not block the session.
            descriptor = self._folders.open(path, access | os.O_NONBLOCK, 0o644 if how & _CREATE else 0)
            opened = Handle(path, descriptor, flags=flags)
        free = next(place for place in range(self._first, self._first + _MOST_FILES + 2) if place not in self._handles)
        self._handles[free] = opened
        self._put_number(at, free)

    def _path_filestat_get(self, number: int, lookup: int, name: int, size: int, at: int) -> None:
        path = self._path(number, name, size)
        if self._has_box and path.rstrip("/").rstrip(".").rstrip("/") == LETTER_BOX:
            self._put(at, struct.pack("<QQBxxxxxxxQQQQQ", 0, 0, FOLDER, 1, 0, 0, 0, 0))
            return
        # A preopened folder is not a link, and has no parent folder here.
        follow = bool(lookup & 1) or self._folders.absolute(path) in self._folders.places()
        self._put_status(at, self._folders.stat(path, follow=follow))

    def _path_filestat_set_times(
        self, number: int, _lookup: int, name: int, size: int, _accessed: int, modified: int, flags: int
    ) -> None:
        self._folders.set_time(self._path(number, name, size), new_times(modified, modified, flags)[1] / 1e9)

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

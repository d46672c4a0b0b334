"""All access of the host to a work folder goes through here, beneath a root *descriptor*.

The descriptor is the whole authority: it may be a folder of the user or the tmpfs of a sandbox that is already dead,
and it means the same folder whatever happens to its name. A path is walked by the kernel beneath it; a link is never
followed, a FIFO never waited for, a hard link never written through. What the program inside planted is data.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Self

from sandbox_kernel.errors import InvalidRequest, SandboxDestroyed
from sandbox_kernel.limits import MIB
from sandbox_kernel.workspace.tree.beneath import PASS, SCAN, open_folder
from sandbox_kernel.workspace.tree.owner import as_owner_of
from sandbox_kernel.workspace.tree.paths import Names, names_beneath
from sandbox_kernel.workspace.tree.refusals import explained, shown
from sandbox_kernel.workspace.tree.removal import empty_folder, remove_tree
from sandbox_kernel.workspace.tree.walk import DirEntry, TreeEntry, Walk, WalkLimits, type_name

#: A file beyond this is not read into memory unless the caller says how much it can take.
MAX_READ_BYTES = 64 * MIB
#: A folder beyond this is not listed; ``walk`` looks at part of it.
MAX_LISTED = 100_000
#: Removing takes as long as it takes, but a program that keeps making files must not hold the host for ever.
REMOVAL_SECONDS = 120.0

_CHUNK = MIB


class Rooted:
    """A folder and everything beneath it. Owns its descriptor: close it, or use it as a context manager.

    Paths are relative text (``data/a.csv``, also ``/box/data/a.csv``) or a tuple of exact names. New files and folders
    belong to the owner of the folder they are made in. Every refusal is an error of ``sandbox_kernel.errors``.
    """

    def __init__(self, dir_fd: int) -> None:
        try:
            is_folder = stat.S_ISDIR(os.fstat(dir_fd).st_mode)
        except (OSError, TypeError, OverflowError):
            is_folder = False
        if not is_folder:
            raise InvalidRequest(f"descriptor {dir_fd!r} is not an open folder; open one with O_DIRECTORY")
        self._lock = threading.Lock()
        self._fd = os.dup(dir_fd)

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> Self:
        """The folder at a path that the *user* gave; links in this path are the user's and are followed."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (OSError, ValueError, TypeError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise InvalidRequest(f"work folder {path!r} cannot be opened: {reason}; create it first") from None
        try:
            return cls(fd)
        finally:
            os.close(fd)

    def close(self) -> None:
        """Give the descriptor back; a second call does nothing."""
        with self._lock:
            fd, self._fd = getattr(self, "_fd", -1), -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            self.close()

    def fileno(self) -> int:
        """The descriptor, still owned by this object."""
        if self._fd < 0:
            raise SandboxDestroyed("the work folder was closed; make a new sandbox or open the folder again")
        return self._fd

    def read(self, path: str | Names, max_bytes: int = MAX_READ_BYTES) -> bytes:
        """The content of a regular file; a file of more than ``max_bytes``, holes included, is refused unread."""
        fd = self.open_file(path)
        try:
            with explained("read", path):
                size = os.fstat(fd).st_size
                # One byte more than it has shows a file that grows meanwhile.
                content = b"".join(chunks(fd, size + 1)) if size <= max_bytes else b""
        finally:
            os.close(fd)
        if max(size, len(content)) > max_bytes:
            raise InvalidRequest(
                f"file {shown(path)} holds {max(size, len(content))} bytes, more than the {max_bytes} that are read; "
                "read it with a larger max_bytes, or copy it out"
            )
        return content

    def read_part(self, path: str | Names, offset: int, most: int) -> tuple[bytes, int]:
        """At most ``most`` bytes of a regular file, from ``offset`` on, and the size of the whole file."""
        fd = self.open_file(path)
        try:
            with explained("read", path):
                return os.pread(fd, most, offset), os.fstat(fd).st_size
        finally:
            os.close(fd)

    def open_file(self, path: str | Names) -> int:
        """A descriptor for reading a regular file, which never blocks; the caller closes it."""
        names = names_beneath(path)
        with explained("read", path), self._folder(names[:-1]) as folder:
            # Looked at before it is opened: opening a device can already do something.
            _demand_file(path, os.stat(names[-1], dir_fd=folder, follow_symlinks=False).st_mode)
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            fd = os.open(names[-1], flags, dir_fd=folder)
            try:
                _demand_file(path, os.fstat(fd).st_mode)
            except BaseException:
                os.close(fd)
                raise
            return fd

    def write(self, path: str | Names, data: bytes, mode: int = 0o644) -> None:
        """Make or replace a file, parents included; what stood there before (also a link or FIFO) is replaced."""
        if not isinstance(data, bytes | bytearray):
            raise InvalidRequest(f"content of {shown(path)} must be bytes, got {type(data).__name__}; encode it first")
        with self.replacing(path, mode) as fd:
            with explained("write", path):
                view = memoryview(data)
                while view:
                    view = view[os.write(fd, view) :]

    @contextmanager
    def replacing(self, path: str | Names, mode: int = 0o644) -> Iterator[int]:
        """A descriptor of a new file that takes the place of ``path`` when the block ends well, else disappears.

        Nothing is ever written through what stands at ``path``: the new file is made beside it and renamed over it.
        """
        names = names_beneath(path)
        with explained("write", path):
            parent = self._make_folders(names[:-1])
        temporary = f".sk-{secrets.token_hex(8)}"
        try:
            with explained("write", path):
                with as_owner_of(parent):
                    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                    fd = os.open(temporary, flags, 0o600, dir_fd=parent)
            try:
                try:
                    yield fd
                    with explained("write", path):
                        os.fchmod(fd, mode & 0o777)
                finally:
                    os.close(fd)
                with explained("write", path), as_owner_of(parent):
                    os.rename(temporary, names[-1], src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=parent)
                raise
        finally:
            os.close(parent)

    def make_folder(self, path: str | Names, mode: int = 0o755) -> None:
        """Make a folder that its owner can use, parents included; one that is there already stays as it is."""
        with explained("make folder", path):
            os.close(self._make_folders(names_beneath(path, folder=True), mode & 0o777 | 0o700))

    def list_dir(self, path: str | Names = ".") -> tuple[DirEntry, ...]:
        """What is in a folder, by name."""
        names = names_beneath(path, folder=True)
        found: list[DirEntry] = []
        with explained("list", path), self._folder(names, SCAN) as folder, os.scandir(folder) as scan:
            for item in scan:
                if len(found) == MAX_LISTED:
                    raise InvalidRequest(f"folder {shown(path)} holds more than {MAX_LISTED} entries; walk it instead")
                try:
                    status = item.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                found.append(DirEntry(item.name, type_name(status.st_mode), status.st_size))
        return tuple(sorted(found, key=lambda entry: entry.name))

    def stat(self, path: str | Names) -> TreeEntry:
        """What stands at a path, the last name not followed."""
        names = names_beneath(path, folder=True)
        with explained("look at", path):
            if not names:
                with self._folder(()) as folder:
                    return TreeEntry.of(".", os.fstat(folder))
            with self._folder(names[:-1]) as folder:
                status = os.stat(names[-1], dir_fd=folder, follow_symlinks=False)
                target = os.readlink(names[-1], dir_fd=folder) if stat.S_ISLNK(status.st_mode) else None
                return TreeEntry.of("/".join(names), status, target)

    def remove(self, path: str | Names, *, tree: bool = False) -> None:
        """Remove a file, a link (not what it names) or an empty folder; with ``tree`` also what is in the folder."""
        names = names_beneath(path, folder=True)
        if not names:
            raise InvalidRequest("the work folder itself cannot be removed; clear() empties it")
        with explained("remove", path), self._folder(names[:-1]) as folder:
            status = os.stat(names[-1], dir_fd=folder, follow_symlinks=False)
            if not stat.S_ISDIR(status.st_mode):
                os.unlink(names[-1], dir_fd=folder)
            elif tree:
                remove_tree(folder, names[-1], REMOVAL_SECONDS)
            else:
                os.rmdir(names[-1], dir_fd=folder)

    def walk(self, limits: WalkLimits | None = None) -> Walk:
        """Everything beneath the root within the limits; its ``unseen`` tells what was not looked at, and why."""

        def open_to_scan(names: Names) -> int:
            with self._lock:
                return open_folder(self.fileno(), names, SCAN, cross_mounts=False)

        return Walk(open_to_scan, limits or WalkLimits())

    def clear(self, seconds: float = REMOVAL_SECONDS) -> None:
        """Remove everything beneath the root, never anything outside; mounts are left alone and named."""
        with explained("clear", "."), self._folder((), SCAN) as folder:
            empty_folder(folder, seconds)

    @contextmanager
    def _folder(self, names: Names, flags: int = PASS) -> Iterator[int]:
        # Under the lock: a close() in another thread could give the number to another folder in between.
        with self._lock:
            fd = open_folder(self.fileno(), names, flags)
        try:
            yield fd
        finally:
            os.close(fd)

    def _make_folders(self, names: Names, mode: int = 0o755) -> int:
        """A descriptor of the folder ``names``, made where it is missing; the last one with ``mode``."""
        with self._folder(()) as root:
            try:
                return open_folder(root, names, PASS)
            except FileNotFoundError:
                pass
            current = os.dup(root)
            try:
                for index, name in enumerate(names, 1):
                    try:
                        with as_owner_of(current):
                            os.mkdir(name, mode if index == len(names) else 0o755, dir_fd=current)
                    except FileExistsError:
                        pass
                    following = open_folder(current, (name,), PASS)
                    os.close(current)
                    current = following
            except BaseException:
                os.close(current)
                raise
            return current


def chunks(fd: int, limit: int) -> Iterator[bytes]:
    """What a descriptor has to give, at most ``limit`` bytes, in pieces that fit in memory."""
    while limit > 0:
        piece = os.read(fd, min(limit, _CHUNK))
        if not piece:
            return
        limit -= len(piece)
        yield piece


def encoded(path: str, data: bytes | str) -> bytes:
    """What a person wants to have in a file, text as UTF-8."""
    if not isinstance(data, str):
        return data
    try:
        return data.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            f"content of {shown(path)} holds a lone surrogate at position {error.start}, which no encoding can carry; "
            "remove it, or give bytes"
        ) from None


def _demand_file(path: str | Names, mode: int) -> None:
    if stat.S_ISLNK(mode):
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
    if not stat.S_ISREG(mode):
        raise InvalidRequest(f"{shown(path)} is a {type_name(mode)}, not a regular file; only files can be read")

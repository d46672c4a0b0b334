"""``Rooted``: the only access of the host to a work folder, beneath a root *descriptor*.

The descriptor may be a folder of the user or the tmpfs of a sandbox that has ended, and it means the same folder even
if that is renamed or replaced. The kernel resolves every path beneath it. Links are never followed, FIFOs never block,
and nothing is written through a hard link.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Self

from sandbox_kernel.errors import InvalidRequest, SandboxDestroyed, SandboxError
from sandbox_kernel.limits import MAX_READ_BYTES, MIB
from sandbox_kernel.util.linux_calls import closed_after
from sandbox_kernel.workspace.tree.beneath import PASS, SCAN, as_owner_of, in_folder, open_folder
from sandbox_kernel.workspace.tree.paths import Names, explained, names_beneath, shown
from sandbox_kernel.workspace.tree.removal import empty_folder, remove_tree
from sandbox_kernel.workspace.tree.walk import SYMLINK, Entry, Walk, WalkLimits, type_name

#: Most entries of a folder that ``list_dir`` lists; ``walk`` looks at part of a larger one.
MAX_LISTED = 100_000
#: Seconds that removing may take, because a running program could make new files without end.
REMOVAL_SECONDS = 120.0

_CHUNK = MIB
#: Flags to make a file that is not there yet.
MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
#: The name of a file while it is being written.
TEMPORARY = re.compile(r"\.sk-[0-9a-f]{16}")


class Rooted:
    """A folder and everything beneath it. Owns its descriptor: call ``close``, or use it as a context manager.

    Paths are relative text (``data/a.csv``, also ``/box/data/a.csv``) or a tuple of exact names. New files and folders
    belong to the owner of their parent folder. Every failure is an error of ``sandbox_kernel.errors``.
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
        """Open the folder at a path that the *user* gave. Links in this path are followed: the user made them."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (OSError, ValueError, TypeError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise InvalidRequest(f"work folder {path!r} cannot be opened: {reason}; create it first") from None
        with closed_after(fd):
            return cls(fd)

    def close(self) -> None:
        """Close the descriptor; a second call does nothing."""
        with self._lock:
            fd, self._fd = getattr(self, "_fd", -1), -1
        if fd >= 0:
            os.close(fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            self.close()

    def fileno(self) -> int:
        """Return the descriptor; this object still owns it."""
        if self._fd < 0:
            raise SandboxDestroyed("the work folder was closed; make a new sandbox or open the folder again")
        return self._fd

    def read(self, path: str | Names, max_bytes: int = MAX_READ_BYTES) -> bytes:
        """Return the content of a regular file. A file above ``max_bytes``, holes included, is refused unread."""
        with self.reading(path) as fd, explained("read", path):
            size = os.fstat(fd).st_size
            # One byte more than its size: a file that grows meanwhile is noticed.
            content = b"".join(chunks(fd, size + 1)) if size <= max_bytes else b""
        if max(size, len(content)) > max_bytes:
            raise InvalidRequest(
                f"file {shown(path)} holds {max(size, len(content))} bytes, more than the {max_bytes} that are read; "
                "read it with a larger max_bytes, or copy it out"
            )
        return content

    def read_part(self, path: str | Names, offset: int, most: int) -> tuple[bytes, int]:
        """Return at most ``most`` bytes of a regular file from ``offset`` on, and the size of the whole file."""
        with self.reading(path) as fd, explained("read", path):
            return os.pread(fd, most, offset), os.fstat(fd).st_size

    @contextmanager
    def reading(self, path: str | Names) -> Iterator[int]:
        """Yield a descriptor of a regular file, open for reading; see ``open_file``."""
        with closed_after(self.open_file(path)) as fd:
            yield fd

    def open_file(self, path: str | Names) -> int:
        """Open a regular file for reading without blocking. Returns a descriptor that the caller closes."""
        names = names_beneath(path)
        with explained("read", path), self._folder(names[:-1]) as folder:
            # The type is checked before opening: opening a device can have effects.
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
        """Make or replace a file, parents included; a link or FIFO at the path is replaced too."""
        if not isinstance(data, bytes | bytearray):
            raise InvalidRequest(f"content of {shown(path)} must be bytes, got {type(data).__name__}; encode it first")
        with self.replacing(path, mode) as fd, explained("write", path):
            write_all(fd, data)

    @contextmanager
    def replacing(self, path: str | Names, mode: int = 0o644) -> Iterator[int]:
        """Yield a descriptor of a new file, made beside ``path``, that replaces it when the block succeeds."""
        names = names_beneath(path)
        with explained("write", path):
            parent = self._make_folders(names[:-1])
        temporary = f".sk-{os.urandom(8).hex()}"
        with closed_after(parent):
            with explained("write", path), as_owner_of(parent):
                fd = os.open(temporary, MAKE, 0o600, dir_fd=parent)
            try:
                with closed_after(fd):
                    yield fd
                    with explained("write", path):
                        os.fchmod(fd, mode & 0o777)
                with explained("write", path), as_owner_of(parent):
                    os.rename(temporary, names[-1], src_dir_fd=parent, dst_dir_fd=parent)
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=parent)
                raise

    def make_folder(self, path: str | Names, mode: int = 0o755) -> None:
        """Make a folder that its owner can use, parents included; an existing folder stays unchanged."""
        with explained("make folder", path):
            os.close(self._make_folders(names_beneath(path, folder=True), mode & 0o777 | 0o700))

    def put(
        self, entry: Entry, source: Rooted | None = None, at: str | Names | None = None, *, in_place: bool = False
    ) -> None:
        """Make a path what an entry says, in place of what is there; special files are left out.

        The content of a file is in the entry, or comes from ``source``, where it is ``at`` the same path unless another
        one is given: at most its known size, and zeros become holes. With ``in_place`` the content is written into a
        file that is there, so that descriptors that programs hold stay valid.
        """
        names, there = entry.names, self.entry_at(entry.names)
        if there is not None and there.type != entry.type:
            self.remove(names, tree=True)
            there = None
        if entry.is_dir:
            self.make_folder(names, entry.mode)
            with self._folder(names, SCAN) as fd:
                status = os.fstat(fd)
                # A folder that is mounted there is the user's, and keeps its mode.
                if status.st_mode & 0o777 != entry.bits and status.st_dev == os.fstat(self.fileno()).st_dev:
                    os.fchmod(fd, entry.bits)
        elif entry.type == SYMLINK and entry.target is not None:
            self._link(names, entry.target)
        elif entry.is_file and source is not None:
            with source.reading(at or names) as fd, self.replacing(names, entry.bits) as target:
                with explained("copy", entry.path):
                    copy_sparsely(chunks(fd, entry.size), target)
        elif entry.is_file and not (in_place and there is not None and self._overwrite(entry)):
            self.write(names, entry.data or b"", entry.bits)

    def put_tree(self, entries: Iterable[Entry], source: Rooted | None = None) -> dict[str, Exception]:
        """Put many entries; returns those that could not be put. A folder gets its mode when everything is in it."""
        made = sorted(entries, key=lambda entry: entry.path)
        failed: dict[str, Exception] = {}
        for entry in made:
            try:
                self.put(entry._replace(mode=entry.mode | 0o700) if entry.is_dir else entry, source)
            except (SandboxError, OSError) as error:
                failed[entry.path] = error
        for entry in reversed(made):
            if entry.is_dir and entry.mode & 0o700 != 0o700 and entry.path not in failed:
                self.put(entry)
        return failed

    def _link(self, names: Names, target: str) -> None:
        if len(names) > 1:
            self.make_folder(names[:-1])
        with self._folder(names[:-1]) as folder:
            with suppress(FileNotFoundError):
                os.unlink(names[-1], dir_fd=folder)
            with as_owner_of(folder):
                os.symlink(target, names[-1], dir_fd=folder)

    def _overwrite(self, entry: Entry) -> bool:
        """Write into the file that is there; returns whether that is allowed."""
        with self._folder(entry.names[:-1]) as folder:
            try:
                fd = os.open(entry.name, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
            except PermissionError:
                return False
        with closed_after(fd):
            os.ftruncate(fd, 0)
            write_all(fd, entry.data or b"")
            os.fchmod(fd, entry.bits)
        return True

    def list_dir(self, path: str | Names = ".") -> tuple[Entry, ...]:
        """Return the entries of a folder, sorted by name; links without their targets."""
        names = names_beneath(path, folder=True)
        prefix = "".join(f"{name}/" for name in names)
        found: list[Entry] = []
        with explained("list", path), self._folder(names, SCAN) as folder, os.scandir(folder) as scan:
            for item in scan:
                if len(found) == MAX_LISTED:
                    raise InvalidRequest(f"folder {shown(path)} holds more than {MAX_LISTED} entries; walk it instead")
                with suppress(FileNotFoundError):
                    found.append(Entry.of(prefix + item.name, item.stat(follow_symlinks=False)))
        return tuple(sorted(found))

    def stat(self, path: str | Names) -> Entry:
        """Return type, size and times of a path; a link as the last name is not followed."""
        with explained("look at", path):
            return self._look_at(names_beneath(path, folder=True))

    def _look_at(self, names: Names) -> Entry:
        with self._folder(names[:-1]) as folder:
            if not names:
                return Entry.of(".", os.fstat(folder))
            status = os.stat(names[-1], dir_fd=folder, follow_symlinks=False)
            target = os.readlink(names[-1], dir_fd=folder) if stat.S_ISLNK(status.st_mode) else None
            return Entry.of("/".join(names), status, target)

    def entry_at(self, path: str | Names) -> Entry | None:
        """Return the entry at a path; None when nothing is there that can be seen."""
        with suppress(OSError, SandboxError):  # asked for most files of a cell: no error is put into words
            return self._look_at(names_beneath(path, folder=True))
        return None

    def take_away(self, path: str | Names, seconds: float = REMOVAL_SECONDS) -> None:
        """Remove what is at a path, with everything in it; nothing there is as well."""
        if self.entry_at(path) is not None:
            self.remove(path, tree=True, seconds=seconds)

    def remove(self, path: str | Names, *, tree: bool = False, seconds: float = REMOVAL_SECONDS) -> None:
        """Remove a file, a link (not its target) or an empty folder; with ``tree`` also a folder with content."""
        names = names_beneath(path, folder=True)
        if not names:
            raise InvalidRequest("the work folder itself cannot be removed; clear() empties it")
        with explained("remove", path), self._folder(names[:-1]) as folder:
            status = os.stat(names[-1], dir_fd=folder, follow_symlinks=False)
            if not stat.S_ISDIR(status.st_mode):
                os.unlink(names[-1], dir_fd=folder)
            elif tree:
                remove_tree(folder, names[-1], seconds)
            else:
                os.rmdir(names[-1], dir_fd=folder)

    def walk(self, limits: WalkLimits | None = None) -> Walk:
        """Walk everything beneath the root within the limits; ``Walk.unseen`` lists what was not seen, and why."""

        def open_to_scan(names: Names) -> int:
            with self._lock:
                return open_folder(self.fileno(), names, SCAN, cross_mounts=False)

        return Walk(open_to_scan, limits or WalkLimits())

    def below(self, path: str | Names, limits: WalkLimits | None = None, *, cross_mounts: bool = False) -> list[Entry]:
        """Return everything below a folder, by its path from the root, each folder before its content."""
        names = names_beneath(path, folder=True)
        with explained("look into", path), in_folder(self.fileno(), names, SCAN, cross_mounts=cross_mounts) as fd:
            with Rooted(fd) as folder:
                return [entry._replace(path="/".join((*names, entry.path))) for entry in folder.walk(limits)]

    def clear(self, seconds: float = REMOVAL_SECONDS) -> None:
        """Remove everything beneath the root and nothing outside. Mounts are not removed; the error names them."""
        with explained("clear", "."), self._folder((), SCAN) as folder:
            empty_folder(folder, seconds)

    @contextmanager
    def _folder(self, names: Names, flags: int = PASS) -> Iterator[int]:
        # Under the lock: after a close() in another thread, the number could mean another folder.
        with self._lock:
            fd = open_folder(self.fileno(), names, flags)
        with closed_after(fd):
            yield fd

    def _make_folders(self, names: Names, mode: int = 0o755) -> int:
        """Open the folder ``names``; makes missing folders, the last one with ``mode``. Returns a descriptor."""
        with self._folder(()) as root:
            with suppress(FileNotFoundError):
                return open_folder(root, names, PASS)
            current = os.dup(root)
            try:
                for index, name in enumerate(names, 1):
                    with suppress(FileExistsError), as_owner_of(current):
                        os.mkdir(name, mode if index == len(names) else 0o755, dir_fd=current)
                    following = open_folder(current, (name,), PASS)
                    os.close(current)
                    current = following
            except BaseException:
                os.close(current)
                raise
            return current


def chunks(fd: int, limit: int) -> Iterator[bytes]:
    """Yield at most ``limit`` bytes of a descriptor in small pieces."""
    while limit > 0:
        piece = os.read(fd, min(limit, _CHUNK))
        if not piece:
            return
        limit -= len(piece)
        yield piece


def write_all(fd: int, data: bytes) -> None:
    """Write all of the data."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def copy_sparsely(pieces: Iterable[bytes], target: int) -> None:
    """Write the pieces to an empty file; pieces of zeros become holes, which take no space."""
    size = 0
    for piece in pieces:
        if piece.count(0) == len(piece):
            os.lseek(target, len(piece), os.SEEK_CUR)
        else:
            write_all(target, piece)
        size += len(piece)
    os.ftruncate(target, size)


def content_hash(pieces: Iterable[bytes]) -> bytes:
    """Return the SHA-256 of a content that comes in pieces."""
    import hashlib  # its library takes long to load, and most runs compare no content

    state = hashlib.sha256()
    for piece in pieces:
        state.update(piece)
    return state.digest()


def encoded(path: str, data: bytes | str) -> bytes:
    """Return the content of a file as bytes; text is encoded as UTF-8."""
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

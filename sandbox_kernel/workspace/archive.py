"""Saves a work folder as one tar file and restores it.

An archive may be hostile. It is checked completely before anything is written: plain relative names, regular files and
folders only, no name twice, no name below a file, sizes within the limits. Each file is then written beneath the root,
so that even a bug in the checks could not write outside.
"""

from __future__ import annotations

import os
import secrets
import stat
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from sandbox_kernel.errors import InvalidRequest, PathTraversal
from sandbox_kernel.limits import MIB
from sandbox_kernel.policy.written_folders import host_file
from sandbox_kernel.workspace.tar_headers import BLOCK, TarHeader, read_headers
from sandbox_kernel.workspace.transfer import Skipped, copy_sparsely, pack_files
from sandbox_kernel.workspace.tree.paths import Names, names_beneath
from sandbox_kernel.workspace.tree.refusals import explained, shown
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import WalkLimits, type_name

MAX_ARCHIVE_BYTES = 1024 * MIB
MAX_ARCHIVE_FILES = 100_000

_CHUNK = MIB
#: A deeper tree could not be copied into a sandbox.
_MAX_DEPTH = WalkLimits().depth
#: Latest time of a file, in the year 2242; file systems do not store later ones.
_LATEST = 1 << 33


def save(
    rooted: Rooted,
    path: str | os.PathLike[str],
    *,
    max_bytes: int = MAX_ARCHIVE_BYTES,
    max_files: int = MAX_ARCHIVE_FILES,
) -> tuple[Skipped, ...]:
    """Write the files and folders beneath the root to a tar at a host path. Returns the entries that it cannot hold.

    The file appears complete or not at all. A tree beyond the limits is refused.
    """
    packed = pack_files(rooted, max_bytes, max_files)
    with _at_host("saved to", os.path.abspath(path)):
        target = host_file(path)
    temporary = f"{target}.{secrets.token_hex(8)}.part"
    try:
        with _at_host("saved to", target):
            with open(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
                    for folder in packed.folders:
                        _add_folder(tar, rooted, tuple(folder.split("/")))
                    for name in packed:
                        _add_file(tar, rooted, tuple(name.split("/")))
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
    return packed.skipped


def _add_folder(tar: tarfile.TarFile, rooted: Rooted, names: Names) -> None:
    entry = rooted.stat(names)
    info = tarfile.TarInfo(entry.path)
    info.type, info.mode, info.mtime = tarfile.DIRTYPE, entry.mode & 0o777, entry.mtime_ns // 10**9
    tar.addfile(info)


def _add_file(tar: tarfile.TarFile, rooted: Rooted, names: Names) -> None:
    with open(rooted.open_file(names), "rb") as content:
        status = os.fstat(content.fileno())
        info = tarfile.TarInfo("/".join(names))
        info.size, info.mode, info.mtime = status.st_size, status.st_mode & 0o777, status.st_mtime_ns // 10**9
        tar.addfile(info, content)


@dataclass(frozen=True, slots=True)
class _Member:
    """A checked member; ``offset`` is the start of its content in the archive."""

    names: Names
    is_folder: bool
    mode: int
    mtime: float
    size: int
    offset: int


def restore(
    path: str | os.PathLike[str],
    rooted: Rooted,
    *,
    max_bytes: int = MAX_ARCHIVE_BYTES,
    max_files: int = MAX_ARCHIVE_FILES,
) -> None:
    """Unpack a tar at a host path beneath the root. Nothing is written unless every member passes the checks."""
    with _at_host("restored from", path):
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        unpack(fd, rooted, max_bytes=max_bytes, max_files=max_files)
    finally:
        os.close(fd)


def unpack(fd: int, rooted: Rooted, *, into: Names = (), max_bytes: int, max_files: int) -> None:
    """Unpack an open tar beneath the root, or beneath its folder ``into``."""
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise InvalidRequest(f"the archive is a {type_name(status.st_mode)}, not a regular file; give a tar file")
    with _damage_explained():
        members = _checked(read_headers(fd), max_bytes, max_files, status.st_size)
        _demand_end(fd, members)
    if into:
        rooted.make_folder(into)
    for member in members:
        names = into + member.names
        if member.is_folder:
            rooted.make_folder(names, member.mode)
            continue
        with rooted.replacing(names, member.mode | 0o600) as target, explained("restore", names):
            copy_sparsely(_content(fd, member), target)
            os.utime(target, (member.mtime, member.mtime))


class _Tree:
    """The names of an archive as nested dictionaries; a file is None."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._made = 0
        self._root: dict[str, Any] = {}

    def add(self, member: _Member) -> None:
        """Add a member. Raises ``InvalidRequest`` for a conflicting name, or when there are too many names."""
        folder = self._root
        for name in member.names[:-1] if not member.is_folder else member.names:
            folder = folder[name] if name in folder else self._make(folder, name, {})
            if folder is None:
                raise InvalidRequest(
                    f"the archive names {shown(member.names)} twice, or below a file; it is not clear which one to use"
                )
        if not member.is_folder:
            if member.names[-1] in folder:
                raise InvalidRequest(f"the archive names {shown(member.names)} twice; it is not clear which one to use")
            self._make(folder, member.names[-1], None)

    def _make(self, folder: dict[str, Any], name: str, content: dict[str, Any] | None) -> Any:
        # Parents that the archive does not name are made too, so they count.
        self._made += 1
        if self._made > self._most:
            raise InvalidRequest(
                f"the archive holds more than {self._most} files and folders; raise the limit if need be"
            )
        folder[name] = content
        return content


def _checked(found: Iterable[TarHeader], max_bytes: int, max_files: int, archive_size: int) -> list[_Member]:
    members: dict[Names, _Member] = {}
    tree = _Tree(max_files)
    total = 0
    for count, header in enumerate(found, 1):
        member = _member(header)
        if member.offset + member.size > archive_size:
            raise InvalidRequest(f"archive member {shown(header.name)} claims a place that is not in the archive")
        total += member.size
        if total > max_bytes or count > max_files:
            raise InvalidRequest(
                f"the archive holds more than {max_files} members or {max_bytes} bytes; raise the limit if need be"
            )
        if member.names:
            tree.add(member)
            members[member.names] = member
    return list(members.values())


def _demand_end(fd: int, members: list[_Member]) -> None:
    """Check the end mark: without it, the archive may have been cut between two members."""
    last = max(members, key=lambda member: member.offset, default=None)
    end = 0 if last is None else last.offset + -(-last.size // BLOCK) * BLOCK
    if os.pread(fd, BLOCK, end) != bytes(BLOCK):
        raise InvalidRequest("the archive is cut short or damaged after its last readable member; save it again")


def _member(header: TarHeader) -> _Member:
    parts = header.name.split("/")
    if header.name.startswith("/") or ".." in parts:
        raise PathTraversal(f"path traversal blocked: archive member {shown(header.name)} leads out of the work folder")
    names = names_beneath(tuple(part for part in parts if part not in ("", ".")), folder=True)
    if len(names) > _MAX_DEPTH:
        raise InvalidRequest(f"archive member {shown(header.name[:80])} is more than {_MAX_DEPTH} folders deep")
    if header.kind == "other" or (header.kind == "file" and not names):
        raise InvalidRequest(
            f"archive member {shown(header.name)} is not a plain file or folder (links, devices and sparse files are "
            "refused); make the archive without it"
        )
    mtime = header.mtime if 0 <= header.mtime < _LATEST else 0
    return _Member(names, header.kind == "folder", header.mode & 0o777, mtime, header.size, header.offset)


def _content(fd: int, member: _Member) -> Iterator[bytes]:
    position, end = member.offset, member.offset + member.size
    while position < end:
        piece = os.pread(fd, min(_CHUNK, end - position), position)
        if not piece:
            raise InvalidRequest(f"the archive ends within {shown(member.names)}; save it again")
        position += len(piece)
        yield piece


@contextmanager
def _damage_explained() -> Iterator[None]:
    """Turn every error of reading the archive into ``InvalidRequest``."""
    try:
        yield
    except (OSError, ValueError, OverflowError) as error:
        raise InvalidRequest(f"the archive is damaged or no tar file: {error}; save it again") from error


@contextmanager
def _at_host(action: str, path: str | os.PathLike[str]) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"the archive cannot be {action} {str(path)!r}: {error}; check the path") from error

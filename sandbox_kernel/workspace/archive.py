"""Saves a work folder as one tar file and restores it.

An archive may be hostile. It is checked completely before anything is written: plain relative names, regular files and
folders only, no name twice, no name below a file, sizes within the limits. Each file is then written beneath the root,
so that even a bug in the checks could not write outside.

Python's ``tarfile`` only writes. To read, it supports more formats than are needed here, at a cost: it recurses for
each extension header, copies all global headers for each member, and searches them in quadratic time in many releases.
``read_headers`` reads what ``save`` writes, POSIX headers with an extended one for a long name, in one pass, in time
linear in the size of the file, keeps no state from one member to the next, and raises ``ValueError`` for the rest.
"""

from __future__ import annotations

import os
import secrets
import stat
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from sandbox_kernel.errors import InvalidRequest, PathTraversal
from sandbox_kernel.limits import MIB
from sandbox_kernel.policy.written_folders import host_file
from sandbox_kernel.workspace.transfer import Skipped, kept_time, pack_files, usable_mode
from sandbox_kernel.workspace.tree.paths import names_beneath, shown
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import DEVICE, DIRECTORY, FILE, Entry, WalkLimits, type_name

MAX_ARCHIVE_BYTES = 1024 * MIB
MAX_ARCHIVE_FILES = 100_000
#: The most letters of all paths together, those of folders that are not named too.
MAX_ARCHIVE_LETTERS = 32 << 20
#: Largest extension header (a long name, for example). It is read in one piece; real ones are much smaller.
MAX_EXTENSION_BYTES = 1 << 20

_CHUNK = MIB
_BLOCK = 512
#: A deeper tree could not be copied into a sandbox.
_MAX_DEPTH = WalkLimits().depth

_FILE_TYPES, _FOLDER_TYPE, _EXTENDED = (b"0", b"\0"), b"5", b"x"

#: A member: what it is, by the name that the archive gives it, and where its content begins in the archive.
Member = tuple[Entry, int]


def save(rooted: Rooted, path: str | os.PathLike[str]) -> tuple[Skipped, ...]:
    """Write the files and folders beneath the root to a tar at a host path. Returns the entries that it cannot hold.

    The file appears complete or not at all. A tree beyond the limits is refused.
    """
    packed = pack_files(rooted, MAX_ARCHIVE_BYTES, MAX_ARCHIVE_FILES)
    with _at_host("saved to", os.path.abspath(path)):
        target = host_file(path)
    temporary = f"{target}.{secrets.token_hex(8)}.part"
    try:
        with _at_host("saved to", target):
            with open(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
                    for folder in packed.folders:
                        tar.addfile(_info(rooted.stat(tuple(folder.split("/")))))
                    for name in packed:
                        with open(rooted.open_file(tuple(name.split("/"))), "rb") as content:
                            tar.addfile(_info(Entry.of(name, os.fstat(content.fileno()))), content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, target)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
    return packed.skipped


def _info(entry: Entry) -> tarfile.TarInfo:
    info = tarfile.TarInfo(entry.path)
    info.type, info.size = (tarfile.DIRTYPE, 0) if entry.is_dir else (tarfile.REGTYPE, entry.size)
    info.mode, info.mtime = entry.bits, entry.mtime_ns // 10**9
    return info


def restore(path: str | os.PathLike[str], rooted: Rooted) -> None:
    """Unpack a tar at a host path beneath the root. Nothing is written unless every member passes the checks."""
    with _at_host("restored from", path):
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        for entry, offset in _members(fd):
            rooted.put(entry._replace(mode=usable_mode(entry)), _content(fd, entry, offset))
    finally:
        os.close(fd)


def _members(fd: int) -> list[Member]:
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise InvalidRequest(f"the archive is a {type_name(status.st_mode)}, not a regular file; give a tar file")
    try:
        members = _checked(read_headers(fd), status.st_size)
        end = max((offset + _whole_blocks(entry.size) for entry, offset in members), default=0)
        # Without the end mark, the archive may have been cut between two members.
        if os.pread(fd, _BLOCK, end) != bytes(_BLOCK):
            raise InvalidRequest("the archive is cut short or damaged after its last readable member; save it again")
    except (OSError, ValueError, OverflowError) as error:
        raise InvalidRequest(f"the archive is damaged or no tar file: {error}; save it again") from error
    return members


def _checked(found: Iterable[Member], archive_size: int) -> list[Member]:
    members: dict[str, Member] = {}
    files: set[str] = set()
    folders = {""}
    total = letters = 0
    for count, (told, offset) in enumerate(found, 1):
        entry = _entry(told)
        if offset + entry.size > archive_size:
            raise InvalidRequest(f"archive member {shown(told.path)} claims a place that is not in the archive")
        total += entry.size
        # Parents that the archive does not name are made too, so they count. Only new ones are looked at: in time
        # linear in the size of the archive.
        above = entry.path if entry.is_dir else entry.path.rpartition("/")[0]
        letters += len(entry.path)
        while above not in folders and above not in files:
            letters += len(above)
            folders.add(above)
            above = above.rpartition("/")[0]
        if above in files or (not entry.is_dir and (entry.path in files or entry.path in folders)):
            raise InvalidRequest(
                f"the archive names {shown(entry.path)} twice, or below a file; it is not clear which one to use"
            )
        if not entry.is_dir:
            files.add(entry.path)
        names = max(count, len(files) + len(folders) - 1)
        if total > MAX_ARCHIVE_BYTES or names > MAX_ARCHIVE_FILES or letters > MAX_ARCHIVE_LETTERS:
            raise InvalidRequest(
                f"the archive holds more than {MAX_ARCHIVE_FILES} files and folders or {MAX_ARCHIVE_BYTES} bytes, or "
                "its paths are too long; remove what is not needed"
            )
        if entry.path:
            members[entry.path] = entry, offset
    return list(members.values())


def _entry(told: Entry) -> Entry:
    """Return a member by a path that stays beneath the root; empty for the root itself."""
    parts = told.path.split("/")
    if told.path.startswith("/") or ".." in parts:
        raise PathTraversal(f"path traversal blocked: archive member {shown(told.path)} leads out of the work folder")
    names = names_beneath(tuple(part for part in parts if part not in ("", ".")), folder=True)
    if len(names) > _MAX_DEPTH:
        raise InvalidRequest(f"archive member {shown(told.path[:80])} is more than {_MAX_DEPTH} folders deep")
    if told.type == DEVICE or (told.is_file and not names):
        raise InvalidRequest(
            f"archive member {shown(told.path)} is not a plain file or folder (links, devices and sparse files are "
            "refused); make the archive without it"
        )
    return told._replace(path="/".join(names), mode=told.bits, mtime_ns=max(0, kept_time(told.mtime_ns)))


def _content(fd: int, entry: Entry, position: int) -> Iterator[bytes]:
    end = position + entry.size
    while position < end:
        piece = os.pread(fd, min(_CHUNK, end - position), position)
        if not piece:
            raise InvalidRequest(f"the archive ends within {shown(entry.path)}; save it again")
        position += len(piece)
        yield piece


@contextmanager
def _at_host(action: str, path: str | os.PathLike[str]) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"the archive cannot be {action} {str(path)!r}: {error}; check the path") from error


# The headers of a tar file.


def read_headers(fd: int) -> Iterator[Member]:
    """Yield the members of an open tar in order. Raises ``ValueError`` when it is damaged.

    What is neither a file nor a folder, links and sparse files too, has the type of a device.
    """
    position = 0
    records: dict[bytes, bytes] = {}
    while True:
        block = os.pread(fd, _BLOCK, position)
        if not block or block == bytes(_BLOCK):
            if records:
                raise ValueError("it ends between a header and the member that it describes")
            return
        if len(block) < _BLOCK or _octal(block[148:156]) != sum(block[:148] + b" " * 8 + block[156:]):
            raise ValueError(f"there is no header at byte {position}")
        position += _BLOCK
        if block[156:157] == _EXTENDED:
            size = _octal(block[124:136])
            content = os.pread(fd, min(size, MAX_EXTENSION_BYTES), position)
            if len(content) < size:
                raise ValueError(f"it ends within a header, or a header claims too much: {size} bytes")
            records |= _records(content)
            position += _whole_blocks(size)
            continue
        entry = _described(block, records)
        records = {}
        yield entry, position
        position += _whole_blocks(entry.size)


def _described(block: bytes, records: dict[bytes, bytes]) -> Entry:
    kind, type_ = block[156:157], DEVICE
    if kind == _FOLDER_TYPE:
        type_ = DIRECTORY
    elif kind in _FILE_TYPES and not any(key.startswith(b"GNU.sparse.") for key in records):
        type_ = FILE
    name, prefix = (part.partition(b"\0")[0] for part in (block[:100], block[345:500]))
    if prefix and block[257:263] == b"ustar\0":
        name = prefix + b"/" + name
    size = _decimal(records[b"size"]) if b"size" in records else _octal(block[124:136])
    mode, seconds = _octal(block[100:108]) & 0o7777, _octal(block[136:148])
    path = os.fsdecode(records.get(b"path") or name)
    return Entry(path, type_, size if type_ == FILE else 0, mode, mtime_ns=seconds * 10**9)


def _octal(field: bytes) -> int:
    digits = field.partition(b"\0")[0].strip(b" ")
    if digits.strip(b"01234567"):
        raise ValueError("a number in a header is not octal")
    return int(digits or b"0", 8)


def _decimal(text: bytes) -> int:
    if not text.isdigit() or len(text) > 20:
        raise ValueError("a size in a header is not a number")
    return int(text)


def _records(content: bytes) -> dict[bytes, bytes]:
    """Parse the records of an extended header: ``length key=value`` and a line end; the length counts all of these."""
    found: dict[bytes, bytes] = {}
    at = 0
    while at < len(content) and content[at]:
        space = content.find(b" ", at, at + 20)
        length = _decimal(content[at : max(space, at)])
        record = content[at : at + length]
        key, equals, value = record[space + 1 - at : -1].partition(b"=")
        if len(record) < length or record[-1:] != b"\n" or not equals or not key:
            raise ValueError("an extended header is damaged")
        found[key] = value
        at += length
    return found


def _whole_blocks(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK

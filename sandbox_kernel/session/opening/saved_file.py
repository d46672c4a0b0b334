"""The file of a saved session: the guest's memory, its work folder, and a header that describes them.

    magic line, length of the header, header (JSON), padding to 64 KiB, memory, files one after another

The host never executes the file: its memory is loaded only into the guest that it was saved from, inside the sandbox. A
file that does not fit (another guest, damaged, cut) is refused before anything starts. The file may be hostile, so the
header is checked before the memory, which may be gigabytes, is read.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import stat
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from sandbox_kernel.errors import InvalidRequest, SessionError
from sandbox_kernel.ground.visible import one_line
from sandbox_kernel.ground.wire import has_too_many_parts, parse_json
from sandbox_kernel.jail.streams.sealed_memory import SealedMemory
from sandbox_kernel.limits import MIB, check_memory_mb
from sandbox_kernel.model import check_file_name
from sandbox_kernel.policy.written_folders import host_file
from sandbox_kernel.workspace.folder_state import MOST_LEFT_OUT, FolderState, check_entries
from sandbox_kernel.workspace.transfer import MAX_PACKED_BYTES, MAX_PACKED_FILES
from sandbox_kernel.workspace.tree.walk import NO_TIME, Entry

MAGIC = b"sandbox-kernel session 1\n"
#: The memory begins at a multiple of this: the largest page size of any machine.
ALIGNMENT = 1 << 16
_HEADER = struct.Struct(">I")
_MOST_HEADER, MOST_MEMORY = 8 << 20, 4 << 30
#: How much is written between two looks for an interrupt.
_PART = 16 << 20
#: What is said when ``interrupt`` was called while a session was saved.
INTERRUPTED = "it was interrupted: nothing was saved, and the session is as it was"
#: The most characters of the cells that make variables again.
MOST_RECIPES = 1 << 20
#: The longest text of the header, and the greatest age of a session.
_MOST_TEXT, _MOST_ELAPSED_S = 200, 1e9


@dataclass(frozen=True, kw_only=True)
class ImageHeader:
    """The header of a saved session."""

    language: str
    #: The guest that this memory belongs to: a digest of packages, versions and our scripts, and a version in words.
    guest: str
    guest_version: str
    memory_mb: int
    memory_bytes: int
    memory_sha256: str
    elapsed_s: float
    #: Files of the work folder in their order in the file: size and SHA-256.
    files: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    #: Modes, times, links and folders of the work folder, what was left out of it, and whether it was a folder of the
    #: user. Its files are in ``SavedSession``.
    folder: FolderState = field(default_factory=FolderState)
    #: The cells that make variables again which could not be stored, by the names of these. They run inside only.
    recipes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SavedSession:
    """A saved session that was read and checked: its path, header, memory and files."""

    path: str
    header: ImageHeader
    memory: SealedMemory
    files: Mapping[str, bytes]


def write_image(
    path: str,
    header: ImageHeader,
    memory_fd: int,
    files: Mapping[str, bytes],
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Write a saved session. The file appears complete or not at all; raises ``SessionError`` when it cannot.

    Only another saved session, or an empty file, is replaced: a line of a notebook names the file. ``stopped`` is asked
    meanwhile; when it returns True nothing is saved.
    """
    described = {
        "language": header.language,
        "guest": header.guest,
        "guest_version": header.guest_version,
        "memory_mb": header.memory_mb,
        "memory_bytes": header.memory_bytes,
        "memory_sha256": header.memory_sha256,
        "elapsed_s": header.elapsed_s,
        "files": {name: [len(data), hashlib.sha256(data).hexdigest()] for name, data in files.items()},
        "recipes": dict(header.recipes),
        **_described(header.folder),
    }
    text = json.dumps(described).encode()
    if len(text) > _MOST_HEADER or has_too_many_parts(text):
        raise SessionError("the work folder has too many files, or too long names, to be saved; remove some of them")
    try:
        target = host_file(path)
    except OSError as error:
        raise SessionError(f"the session cannot be saved as {path!r}: {error.strerror}") from None
    if not _may_replace(target):
        raise InvalidRequest(f"{path!r} is there already and is no saved session; choose another name, or move it away")
    aside = f"{target}.{secrets.token_hex(8)}.part"
    try:
        with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(MAGIC + _HEADER.pack(len(text)) + text)
            file.write(bytes(-file.tell() % ALIGNMENT))
            file.flush()
            left = header.memory_bytes
            while left and not stopped():
                sent = os.sendfile(file.fileno(), memory_fd, header.memory_bytes - left, min(left, _PART))
                if not sent:
                    raise SessionError("the session's memory ended while it was saved; save it again")
                left -= sent
            file.seek(0, os.SEEK_END)
            for data in files.values():
                if not stopped():
                    file.write(data)
            file.flush()
            if stopped():
                raise SessionError(INTERRUPTED)
            # After a loss of power the name must not lead to an empty file in place of the one that was there.
            os.fsync(file.fileno())
        if stopped():
            raise SessionError(INTERRUPTED)
        os.rename(aside, target)
    except OSError as error:
        raise SessionError(f"the session cannot be saved as {path!r}: {error.strerror}") from None
    finally:
        if os.path.exists(aside):
            os.unlink(aside)


def _described(folder: FolderState) -> dict[str, object]:
    """Return what the header says of a work folder, but for the contents of its files."""
    if not folder.entries and not folder.left_out:
        return {}
    times = {path: None if each.mtime_ns == NO_TIME else each.mtime_ns for path, each in folder.entries.items()}
    entries = {path: [each.type, each.mode, times[path], each.target] for path, each in folder.entries.items()}
    return {"entries": entries, "left_out": dict(folder.left_out), "is_layer": folder.is_layer}


def _may_replace(target: str) -> bool:
    try:
        fd = os.open(target, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    with open(fd, "rb") as file:
        found = os.fstat(fd)
        return stat.S_ISREG(found.st_mode) and (found.st_size == 0 or file.read(len(MAGIC)) == MAGIC)


def read_image(path: str, accept: Callable[[ImageHeader], object] | None = None) -> SavedSession:
    """Read and check a saved session; raises ``InvalidRequest``, which says what is wrong with the file.

    ``accept`` is called with the header before anything else is read, and raises to refuse the session.
    """
    try:
        # Opening a pipe would block without O_NONBLOCK; a plain file ignores the flag.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode) or file.read(len(MAGIC)) != MAGIC:
                raise InvalidRequest(f"{path!r} is not a saved session of this program")
            (length,) = _HEADER.unpack(file.read(_HEADER.size).rjust(_HEADER.size, b"\xff"))
            header = _parse(path, file.read(length) if length <= _MOST_HEADER else b"")
            offset = -(-(len(MAGIC) + _HEADER.size + length) // ALIGNMENT) * ALIGNMENT
            wanted = offset + header.memory_bytes + sum(count for count, _ in header.files.values())
            if found.st_size != wanted:
                raise InvalidRequest(
                    f"{path!r} has {found.st_size} bytes where {wanted} were saved: it is cut or damaged"
                )
            if accept is not None:
                accept(header)
            # No process can change the sealed copy, so what is checked is what is used.
            memory = SealedMemory.of_file(file.fileno(), offset, header.memory_bytes)
            file.seek(offset + header.memory_bytes)
            files = {}
            for name, (count, sha256) in header.files.items():
                files[name] = file.read(count)
                if hashlib.sha256(files[name]).hexdigest() != sha256:
                    raise InvalidRequest(f"{path!r} is damaged: its file {name!r} is not what was saved")
    except OSError as error:
        raise InvalidRequest(f"the saved session {path!r} cannot be read: {error.strerror}") from None
    except EOFError:
        raise InvalidRequest(f"{path!r} was changed while it was loaded; load it again") from None
    if memory.sha256() != header.memory_sha256:
        raise InvalidRequest(f"{path!r} is damaged: its memory is not what was saved")
    return SavedSession(os.path.abspath(path), header, memory, MappingProxyType(files))


def _parse(path: str, text: bytes) -> ImageHeader:
    try:
        found = parse_json(text)
        files = {
            check_file_name(name): (_whole(count), _text(sha256)) for name, (count, sha256) in found["files"].items()
        }
        header = ImageHeader(
            language=_text(found["language"]),
            guest=_text(found["guest"]),
            guest_version=_text(found["guest_version"]),
            memory_mb=_whole(found["memory_mb"]),
            memory_bytes=_whole(found["memory_bytes"]),
            memory_sha256=_text(found["memory_sha256"]),
            elapsed_s=check_elapsed(found["elapsed_s"]),
            files=MappingProxyType(files),
            folder=_folder(found, files),
            recipes={str(name): _code(code) for name, code in found.get("recipes", {}).items() if name.isidentifier()},
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InvalidRequest(f"{path!r} is damaged: its header cannot be read") from None
    check_memory_mb(header.memory_mb)
    in_bounds = 0 < header.memory_bytes <= min(MOST_MEMORY, header.memory_mb * MIB)
    total = sum(count for count, _ in files.values())
    if any(folder in files for name in files for folder in _folders_of(name)):
        raise InvalidRequest(f"{path!r} is damaged: one of its names is a file and a folder")
    if not in_bounds or header.memory_bytes % ALIGNMENT or len(files) > MAX_PACKED_FILES or total > MAX_PACKED_BYTES:
        raise InvalidRequest(f"{path!r} is damaged: its sizes cannot be right")
    return header


def _folder(found: Mapping[str, object], files: Mapping[str, object]) -> FolderState:
    """Return what a header says of the work folder; files of earlier versions say nothing."""
    told, left_out, is_layer = found.get("entries", {}), found.get("left_out", {}), found.get("is_layer", False)
    if not isinstance(told, dict) or not isinstance(left_out, dict) or not isinstance(is_layer, bool):
        raise ValueError("not a work folder")
    entries = {}
    for path, (kind, mode, mtime_ns, target) in told.items():
        time_ns = NO_TIME if mtime_ns is None else _whole(mtime_ns)
        if not isinstance(kind, str) or not isinstance(target, str | None):
            raise ValueError("not an entry of a work folder")
        entries[path] = Entry(path, kind, mode=_whole(mode), mtime_ns=time_ns, target=target)
    check_entries(entries, list(files))
    if len(entries) > MAX_PACKED_FILES or len(left_out) > MOST_LEFT_OUT:
        raise ValueError("too many entries")
    named = {one_line(str(path), 200): one_line(str(why), 200) for path, why in left_out.items()}
    return FolderState({}, MappingProxyType(entries), MappingProxyType(named), is_layer)


def _folders_of(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def check_elapsed(value: object) -> float:
    """Return the age of a session in seconds, given by a file or a worker; raises ``ValueError`` when it is not one."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MOST_ELAPSED_S:
        raise ValueError("not the age of a session")
    return float(value)


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("not a number of bytes")
    return value


def _code(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("not a cell")
    return value


def _text(value: object) -> str:
    """Return a short printable text, fit for messages; raises ``ValueError`` for anything else."""
    if not isinstance(value, str) or len(value) > _MOST_TEXT or not value.isprintable():
        raise ValueError("not a short text")
    return value

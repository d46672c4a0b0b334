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
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from sandbox_kernel.errors import InvalidRequest, SessionError
from sandbox_kernel.jail.sealed_memory import SealedMemory
from sandbox_kernel.limits import MIB, check_memory_mb
from sandbox_kernel.model import check_file_name
from sandbox_kernel.policy.written_folders import host_file
from sandbox_kernel.receipt import one_line
from sandbox_kernel.util.wire import decode, has_too_many_parts
from sandbox_kernel.workspace.transfer import (
    MAX_PACKED_BYTES,
    MAX_PACKED_FILES,
    MOST_LEFT_OUT,
    FolderState,
    check_entries,
)
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
    """The header of a saved session, as it stands in the file."""

    language: str
    #: The guest that this memory belongs to: a digest of packages, versions and our scripts, and a version in words.
    guest: str
    guest_version: str
    memory_mb: int
    memory_bytes: int = 0
    memory_sha256: str = ""
    elapsed_s: float = 0.0
    #: Files of the work folder in their order in the file: size and SHA-256.
    files: dict[str, tuple[int, str]] = field(default_factory=dict)
    #: The cells that make variables again which could not be stored, by the names of these. They run inside only.
    recipes: dict[str, str] = field(default_factory=dict)
    #: Type, mode, time and target of what is in the work folder; what was left out of it; whether it was the user's.
    entries: dict[str, tuple[str, int, int | None, str | None]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    is_layer: bool = False

    def folder(self, files: Mapping[str, bytes]) -> FolderState:
        """Return the work folder with these files."""
        entries = {
            path: Entry(path, kind, 0, mode, 0, NO_TIME if time_ns is None else time_ns, 0, target, files.get(path))
            for path, (kind, mode, time_ns, target) in self.entries.items()
        }
        return FolderState(MappingProxyType(entries), MappingProxyType(self.left_out), self.is_layer)


@dataclass(frozen=True)
class State:
    """The state of a session: the memory of its guest, its age, and the files of its work folder."""

    memory: SealedMemory
    elapsed_s: float = 0.0
    files: Mapping[str, bytes] = field(default_factory=dict)
    #: The work folder of a session of processes, with modes, times, links and empty folders.
    folder: FolderState = field(default_factory=FolderState)
    #: What the worker said of it: which variables are in it.
    report: Mapping[str, object] = field(default_factory=dict)
    #: The cells that make the variables which could not be stored, by their names.
    recipes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SavedSession:
    """A saved session that was read and checked."""

    path: str
    header: ImageHeader
    state: State


def write_image(path: str, header: ImageHeader, state: State, stopped: Callable[[], bool] = lambda: False) -> None:
    """Write a saved session. The file appears complete or not at all; raises ``SessionError`` when it cannot.

    ``header`` holds what the state does not say. Only another saved session, or an empty file, is replaced: a line of a
    notebook names the file. ``stopped`` is asked meanwhile; when it returns True nothing is saved.
    """
    folder, files = state.folder, {**state.files, **state.folder.files}
    times = {path: None if each.mtime_ns == NO_TIME else each.mtime_ns for path, each in folder.entries.items()}
    header = replace(
        header,
        memory_bytes=len(state.memory),
        memory_sha256=state.memory.sha256(),
        elapsed_s=state.elapsed_s,
        files={name: (len(data), hashlib.sha256(data).hexdigest()) for name, data in files.items()},
        recipes=dict(state.recipes),
        entries={path: (each.type, each.mode, times[path], each.target) for path, each in folder.entries.items()},
        left_out=dict(folder.left_out),
        is_layer=folder.is_layer,
    )
    text = json.dumps(vars(header)).encode()
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
                sent = os.sendfile(file.fileno(), state.memory.fileno(), header.memory_bytes - left, min(left, _PART))
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
    state = State(memory, header.elapsed_s, MappingProxyType(files), header.folder(files), recipes=header.recipes)
    return SavedSession(os.path.abspath(path), header, state)


def _parse(path: str, text: bytes) -> ImageHeader:
    try:
        header = decode(text, ImageHeader)
        _check(header)
    except ValueError:
        raise InvalidRequest(f"{path!r} is damaged: its header cannot be read") from None
    check_memory_mb(header.memory_mb)
    in_bounds = 0 < header.memory_bytes <= min(MOST_MEMORY, header.memory_mb * MIB)
    files, total = header.files, sum(count for count, _ in header.files.values())
    if any(name[:at] in files for name in files for at, sign in enumerate(name) if sign == "/"):
        raise InvalidRequest(f"{path!r} is damaged: one of its names is a file and a folder")
    if not in_bounds or header.memory_bytes % ALIGNMENT or len(files) > MAX_PACKED_FILES or total > MAX_PACKED_BYTES:
        raise InvalidRequest(f"{path!r} is damaged: its sizes cannot be right")
    names = {one_line(name, 200): one_line(why, 200) for name, why in header.left_out.items()}
    recipes = {name: code for name, code in header.recipes.items() if name.isidentifier()}
    return replace(header, left_out=names, recipes=recipes)


def _check(header: ImageHeader) -> None:
    """Check what the types of a header do not say; raises ``ValueError``."""
    short = (header.language, header.guest, header.guest_version, header.memory_sha256)
    numbers = [number for _, mode, time_ns, _ in header.entries.values() for number in (mode, time_ns or 0)]
    numbers += [size for size, _ in header.files.values()]
    if not all(len(each) <= _MOST_TEXT and each.isprintable() for each in short) or min(numbers, default=0) < 0:
        raise ValueError("a text is too long, or a number below zero")
    if len(header.entries) > MAX_PACKED_FILES or len(header.left_out) > MOST_LEFT_OUT:
        raise ValueError("too many entries")
    check_elapsed(header.elapsed_s)
    for name in header.files:
        check_file_name(name)
    check_entries(header.folder({}).entries, list(header.files))


def check_elapsed(value: object) -> float:
    """Return the age of a session in seconds, given by a file or a worker; raises ``ValueError`` when it is not one."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MOST_ELAPSED_S:
        raise ValueError("not the age of a session")
    return float(value)

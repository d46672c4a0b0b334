"""The file of a saved session: the guest's memory, its work folder, and a header that describes them.

    magic line, length of the header, header (JSON), padding to 64 KiB, memory, files one after another

The host never executes the file: its memory is loaded only into the guest that it was saved from, inside the sandbox. A
file that does not fit (another guest, damaged, cut) is refused before anything starts. The file may be hostile, so the
header is checked before the memory, which may be gigabytes, is read.
"""

from __future__ import annotations

import json
import os
import stat
import struct
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import Annotated

import msgspec

from sandbox_kernel.errors import InvalidRequest, SessionError
from sandbox_kernel.jail.sealed_memory import SealedMemory
from sandbox_kernel.limits import MIB, check_memory_mb
from sandbox_kernel.policy.written_folders import host_file
from sandbox_kernel.receipt import one_line
from sandbox_kernel.util.own_folder import whole_file
from sandbox_kernel.util.values import dataclass
from sandbox_kernel.util.wire import decode, has_too_many_parts
from sandbox_kernel.workspace.transfer import (
    MAX_PACKED_BYTES,
    MAX_PACKED_FILES,
    MOST_LEFT_OUT,
    FolderState,
    check_entries,
)
from sandbox_kernel.workspace.tree.paths import display_name
from sandbox_kernel.workspace.tree.rooted import content_hash
from sandbox_kernel.workspace.tree.walk import Entry

MAGIC = b"sandbox-kernel session 1\n"
#: The memory begins at a multiple of this: the largest page size of any machine.
ALIGNMENT = 1 << 16
_HEADER = struct.Struct(">I")
_MOST_HEADER, MOST_MEMORY = 8 << 20, 4 << 30
#: How much is written between two looks for an interrupt.
_PART = 16 << 20
#: What is said when ``interrupt`` was called while a session was saved.
INTERRUPTED = "it was interrupted: nothing was saved, and the session is as it was"
_Short = Annotated[str, msgspec.Meta(max_length=200)]
#: The age of a session in seconds.
Age = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


@dataclass(frozen=True, kw_only=True)
class SavedHeader:
    """The header of a saved session, as it stands in the file."""

    language: _Short
    #: The guest that this memory belongs to: a digest of packages, versions and our scripts, and a version in words.
    guest: _Short
    guest_version: _Short
    memory_mb: int
    memory_bytes: int = 0
    memory_sha256: _Short = ""
    elapsed_s: Age = 0.0
    #: The cells that make variables again which could not be stored, by the names of these. They run inside only.
    recipes: dict[str, str] = field(default_factory=dict)
    #: What is in the work folder, files in the order of their contents in the file; the SHA-256 of all contents
    #: together; what was left out of it; whether it was the user's, and when its changes were taken.
    entries: Annotated[tuple[Entry, ...], msgspec.Meta(max_length=MAX_PACKED_FILES)] = ()
    files_sha256: _Short = ""
    left_out: Annotated[dict[str, str], msgspec.Meta(max_length=MOST_LEFT_OUT)] = field(default_factory=dict)
    is_layer: bool = False
    saved_ns: Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)] = 0


#: How many names a report shows of each kind; all of them are in its attributes.
_MOST_LINES = 40


@dataclass(frozen=True, kw_only=True)
class SaveReport:
    """What became of each variable when a session was saved or loaded.

    Attributes:
        stored: names of variables that are in the file.
        recomputed: names of variables whose cells ran again, because they could not be stored.
        lost: names of variables that are in neither way there, each with the reason; names with a dot are settings of
            the process and of libraries (``os.getcwd``, ``json.dumps``).
        changed: names of variables and modules that are there and are not what they were, each with the difference.
        files: paths of the work folder that are not there, or are not what they were, each with the reason.
    """

    stored: tuple[str, ...] = ()
    recomputed: tuple[str, ...] = ()
    lost: Mapping[str, str] = field(default_factory=dict)
    changed: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{len(self.stored)} {'variable' if len(self.stored) == 1 else 'variables'} stored"]
        if self.recomputed:
            more = f" and {len(self.recomputed) - _MOST_LINES} more" if len(self.recomputed) > _MOST_LINES else ""
            lines.append(f"made again by their cells: {', '.join(self.recomputed[:_MOST_LINES])}{more}")
        files = {display_name(path): why for path, why in self.files.items()}
        for form, reasons in (("changed: {} ({})", self.changed), ("lost: {} ({})", self.lost), ("file {}: {}", files)):
            lines += [form.format(name, why) for name, why in list(reasons.items())[:_MOST_LINES]]
            if len(reasons) > _MOST_LINES:
                lines.append(f"… and {len(reasons) - _MOST_LINES} more")
        return "\n".join(lines)


@dataclass(frozen=True)
class State:
    """The state of a session: the memory of its guest or its variables, its age, and its work folder."""

    memory: SealedMemory
    elapsed_s: float = 0.0
    folder: FolderState = field(default_factory=FolderState)
    #: What the worker said of it: which variables are in it.
    report: SaveReport = field(default_factory=SaveReport)
    #: The cells that make the variables which could not be stored, by their names.
    recipes: Mapping[str, str] = field(default_factory=dict)
    #: Whether the memory is only what differs from a new guest's; never in a file.
    changes: bool = False


@dataclass(frozen=True)
class SavedSession:
    """A saved session that was read and checked."""

    path: str
    header: SavedHeader
    state: State


def write_saved(path: str, header: SavedHeader, state: State, stopped: Callable[[], bool] = lambda: False) -> None:
    """Write a saved session. The file appears complete or not at all; raises ``SessionError`` when it cannot.

    ``header`` holds what the state does not say. Only another saved session, or an empty file, is replaced: a line of a
    notebook names the file. ``stopped`` is asked meanwhile; when it returns True nothing is saved.
    """
    folder, files = state.folder, state.folder.files.values()
    header = replace(
        header,
        memory_bytes=len(state.memory),
        memory_sha256=state.memory.sha256(),
        elapsed_s=state.elapsed_s,
        recipes=dict(state.recipes),
        entries=tuple(each._replace(data=None) for each in folder.entries.values()),
        files_sha256=content_hash(files).hex(),
        left_out=dict(folder.left_out),
        is_layer=folder.is_layer,
        saved_ns=folder.saved_ns,
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
    try:
        with whole_file(target) as file:
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
            for data in files:
                if not stopped():
                    file.write(data)
            if stopped():
                raise SessionError(INTERRUPTED)
    except OSError as error:
        raise SessionError(f"the session cannot be saved as {path!r}: {error.strerror}") from None


def _may_replace(target: str) -> bool:
    more = os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        with open(target, "rb", opener=lambda name, flags: os.open(name, flags | more)) as file:
            found = os.fstat(file.fileno())
            return stat.S_ISREG(found.st_mode) and (found.st_size == 0 or file.read(len(MAGIC)) == MAGIC)
    except FileNotFoundError:
        return True
    except OSError:
        return False


def read_saved(path: str, accept: Callable[[SavedHeader], object] | None = None) -> SavedSession:
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
            wanted = offset + header.memory_bytes + sum(entry.size for entry in header.entries)
            if found.st_size != wanted:
                raise InvalidRequest(
                    f"{path!r} has {found.st_size} bytes where {wanted} were saved: it is cut or damaged"
                )
            if accept is not None:
                accept(header)
            # No process can change the sealed copy, so what is checked is what is used.
            memory = SealedMemory.of_file(file.fileno(), offset, header.memory_bytes)
            file.seek(offset + header.memory_bytes)
            filled = [each._replace(data=file.read(each.size) if each.is_file else None) for each in header.entries]
            entries = {each.path: each for each in filled}
            folder = FolderState(entries, header.left_out, header.is_layer, header.saved_ns)
            if content_hash(folder.files.values()).hex() != header.files_sha256:
                raise InvalidRequest(f"{path!r} is damaged: its files are not what was saved")
    except OSError as error:
        raise InvalidRequest(f"the saved session {path!r} cannot be read: {error.strerror}") from None
    except EOFError:
        raise InvalidRequest(f"{path!r} was changed while it was loaded; load it again") from None
    if memory.sha256() != header.memory_sha256:
        raise InvalidRequest(f"{path!r} is damaged: its memory is not what was saved")
    state = State(memory, header.elapsed_s, folder, recipes=header.recipes)
    return SavedSession(os.path.abspath(path), header, state)


def _parse(path: str, text: bytes) -> SavedHeader:
    try:
        header = decode(text, SavedHeader)
        if not all(map(str.isprintable, (header.language, header.guest, header.guest_version, header.memory_sha256))):
            raise ValueError("a text that cannot be shown")
        check_entries(header.entries)
    except ValueError:
        raise InvalidRequest(f"{path!r} is damaged: its header cannot be read") from None
    check_memory_mb(header.memory_mb)
    in_bounds = 0 < header.memory_bytes <= min(MOST_MEMORY, header.memory_mb * MIB)
    total = sum(entry.size for entry in header.entries)
    if not in_bounds or header.memory_bytes % ALIGNMENT or total > MAX_PACKED_BYTES:
        raise InvalidRequest(f"{path!r} is damaged: its sizes cannot be right")
    names = {one_line(name, 200): one_line(why, 200) for name, why in header.left_out.items()}
    recipes = {name: code for name, code in header.recipes.items() if name.isidentifier()}
    return replace(header, left_out=names, recipes=recipes)

"""``KeptChanges``: everything that programs of one sandbox left in its work folder, or changed in the user's.

Contents lie in a private folder of the host, at the same paths; links are never followed. Over a folder of the user,
each change remembers the version of the user's file that it is based on, so that a later change of that file is
noticed; with a ``ChangeLog`` they are there again for the next kernel of the notebook. In a plain work folder there is
nothing below the changes: every file is one, and links are not kept. Thread-safe by the lock of its ``BoxFolder``.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.model import FsChange
from sandbox_kernel.util.own_folder import make_own_folder
from sandbox_kernel.util.wire import check
from sandbox_kernel.workspace.changes import same_entry
from sandbox_kernel.workspace.hidden import is_hidden
from sandbox_kernel.workspace.transfer import FolderState, Skipped, folder_of, why_no_name
from sandbox_kernel.workspace.tree.beneath import in_folder
from sandbox_kernel.workspace.tree.paths import Names, folders_above
from sandbox_kernel.workspace.tree.rooted import TEMPORARY, Rooted
from sandbox_kernel.workspace.tree.walk import DIRECTORY, FILE, GONE, SYMLINK, Entry, WalkLimits

#: The most that is kept of one sandbox's changes.
MOST_KEPT_BYTES = 1 << 30
MOST_KEPT_FILES = 50_000

if TYPE_CHECKING:
    # Plain work folders need none of them.
    from sandbox_kernel.workspace.kept_work import KeptWork
    from sandbox_kernel.workspace.overlay.project import ProjectFolder


class Room(NamedTuple):
    """The most bytes of files, and the most files and folders, that are kept."""

    bytes: int
    files: int


#: Later than every change of a file.
_NEVER_NS = 1 << 63
_stamps = itertools.count(time.time_ns())
_FILES, _LOG = "files", "changes"
#: The most bytes of a log, and from how many on it is written anew when half of its lines are old.
_MOST_LOG, _SMALL_LOG = 64 << 20, 1 << 20
_KINDS = (FILE, DIRECTORY, SYMLINK, GONE)


class Kept(NamedTuple):
    """One change: what shall stand at its path, and the version of the user's file that it replaces."""

    entry: Entry
    #: What the user had there; None for nothing.
    base: Entry | None
    #: The user's file changed while the program ran, so nobody knows which version the change is based on.
    unsure: bool
    #: Another number for every change, also of other kernels: sessions and ``digest`` know by it what they have seen.
    stamp: int

    @property
    def is_gone(self) -> bool:
        """Whether the path shall not be there."""
        return self.entry.is_gone

    @property
    def on_folder(self) -> bool:
        """Whether the user has a folder there."""
        return self.base is not None and self.base.is_dir


#: What a line of the log tells: a change, or the path of one that there is no more.
_Line = Kept | str


class ChangeLog:
    """The list of a sandbox's changes on disk, in one private folder, so that they outlive a killed kernel.

    Each change is one line at the end of a file, so that writing one costs nothing of those before it; a line that was
    cut off is left out. Contents are replaced whole before their line is written: a kernel that is killed between the
    two leaves a complete file without a line, which is found and kept as a change of unknown base, as are changes with
    names so long that their lines exceed ``_MOST_LOG``. Raises ``OSError`` when there cannot be a folder that no other
    user can change.
    """

    def __init__(self, place: str) -> None:
        make_own_folder(place)
        #: The folder for the contents of the changed files.
        self.files = os.path.join(place, _FILES)
        make_own_folder(self.files)
        self._place = place
        self._fd = -1
        self._open()

    def _open(self) -> None:
        self.close()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(os.path.join(self._place, _LOG), flags, 0o600)
        self._first_size = self._size = os.fstat(self._fd).st_size

    def note(self, path: str, entries: Mapping[str, Kept]) -> None:
        """Write down what shall stand at a path; without an entry it is as the user has it. A full disk is no error."""
        with contextlib.suppress(OSError):
            if self._size > max(2 * self._first_size, _SMALL_LOG):
                self.rewrite(entries)
            else:
                line = _line(path, entries.get(path))
                if self._size + len(line) <= _MOST_LOG:
                    self._size += os.write(self._fd, line)

    def read(self) -> dict[str, Kept]:
        """Return the last state of every path."""
        found: dict[str, Kept] = {}
        with Rooted.at(self._place) as own:
            data, size = own.read_part(_LOG, 0, _MOST_LOG)
        whole = data if len(data) == size else data[: data.rfind(b"\n") + 1]
        for line in whole.split(b"\n"):
            with contextlib.suppress(ValueError):
                kept = check(json.loads(line.decode("utf-8", "surrogateescape")), _Line)
                if isinstance(kept, str):
                    found.pop(kept, None)
                elif kept.entry.type in _KINDS:
                    found[kept.entry.path] = kept
        return found

    def rewrite(self, entries: Mapping[str, Kept]) -> None:
        """Replace the log by one that has these changes alone."""
        lines = bytearray()
        for path, kept in entries.items():
            if len(lines) + len(line := _line(path, kept)) <= _MOST_LOG:
                lines += line
        with Rooted.at(self._place) as own:
            own.write(_LOG, bytes(lines), 0o600)
        self._open()

    def close(self) -> None:
        """Close the file; may be called twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _line(path: str, kept: Kept | None) -> bytes:
    return json.dumps(kept or path, ensure_ascii=False).encode("utf-8", "surrogateescape") + b"\n"


def changes_waiting(work: KeptWork) -> list[tuple[str, int]]:
    """Return the options and the number of changes that an earlier kernel left and no sandbox works on yet."""
    found: list[tuple[str, int]] = []
    for options, place in work.other_places():
        with contextlib.suppress(OSError, SandboxError), contextlib.closing(ChangeLog(place)) as log:
            count = len(log.read())
            if count:
                found.append((options, count))
    return found


class KeptChanges:
    """Changes by path of ``project``, or of a plain work folder; contents in ``root``, the list on disk in ``log``."""

    def __init__(self, root: Rooted, project: ProjectFolder | None, log: ChangeLog | None = None) -> None:
        self.root = root
        self._project = project
        self._log = log
        self.entries: dict[str, Kept] = {}
        if log is not None or project is None:
            self._find({} if log is None else log.read())
        if log is not None:
            log.rewrite(self.entries)
        #: The bytes of all kept files together.
        self._held = sum(_bytes(kept) for kept in self.entries.values())

    def users(self, path: str) -> Entry | None:
        """Return what the user has at a path."""
        return None if self._project is None else self._project.entry_at(path)

    def users_below(self, path: str) -> list[str]:
        """Return the paths at which the user has something, there and below; without what is hidden."""
        own, project = self.users(path), self._project
        if own is None or project is None:
            return []
        return [each.path for each in (own, *project.beneath(path)) if not is_hidden(each.path)]

    def _find(self, listed: Mapping[str, Kept]) -> None:
        """Take over what an earlier kernel left: what its log lists and what is there without a line."""
        for path, kept in sorted(listed.items()):
            there = None if kept.is_gone else self.root.entry_at(kept.entry.names)
            if (kept.is_gone or (there is not None and there.type == kept.entry.type)) and not self._applied(kept):
                size = there.size if there is not None and there.is_file else kept.entry.size
                self.entries[path] = kept._replace(entry=kept.entry._replace(size=size))
        walk = self.root.walk(WalkLimits(entries=2 * MOST_KEPT_FILES, seconds=10.0))
        types = (FILE, DIRECTORY) if self._project is None else (FILE, SYMLINK)
        for entry in [each for each in walk if each.type in types and each.path not in self.entries]:
            applied = self._project is not None and same_entry(self.root, self._project.root, entry.path)
            if applied or (entry.is_file and TEMPORARY.fullmatch(entry.name)):
                self.root.remove(entry.names)
            else:
                base = self.users(entry.path)
                self.entries[entry.path] = Kept(_kept_of(entry), base, base is not None, next(_stamps))

    def _applied(self, kept: Kept) -> bool:
        """Whether the user's folder has the change: the kernel ended after it was applied and before that was noted."""
        there = self.users(kept.entry.path)
        if kept.is_gone or there is None or self._project is None:
            return kept.is_gone and there is None
        if kept.entry.is_dir:
            return there.is_dir and (kept.base is None or there.bits == kept.entry.bits)
        return there != kept.base and same_entry(self.root, self._project.root, kept.entry.path)

    def state(self, times: Callable[[Names], int]) -> FolderState:
        """Return all changes, to be saved with a session. ``times`` returns when a path was changed in the session."""
        there = [
            kept.entry if kept.is_gone else self.present(path)._replace(mtime_ns=times(kept.entry.names))
            for path, kept in self.entries.items()
        ]
        found = folder_of(there, lambda entry: self.root.read(entry.names, max_bytes=entry.size))
        based = not any(
            kept.unsure or (not kept.on_folder and self.users(path) != kept.base) for path, kept in self.entries.items()
        )
        return replace(found, is_layer=True, saved_ns=time.time_ns() if based else 0)

    def present(self, path: str) -> Entry:
        """Return the entry of a kept content, with the mode that it has for programs."""
        return self.root.stat(tuple(path.split("/")))._replace(mode=self.entries[path].entry.mode)

    def stamps(self) -> dict[str, int]:
        """Return the stamp of every change by path."""
        return {path: kept.stamp for path, kept in self.entries.items()}

    def put(self, source: Rooted, path: str, room: Room, began_ns: int = _NEVER_NS) -> Skipped | None:
        """Keep what stands at a path of ``source``; returns why not, if it cannot be kept."""
        known = self.entries.get(path)
        try:
            entry = source.stat(tuple(path.split("/")))
            why = self._why_not(entry, known, room)
            there = self.root.entry_at(entry.names)
            if not why and there is not None and (known is None or known.entry.type != entry.type):
                self.clear(path)
                there = self.root.entry_at(entry.names)
            if not why and there is not None and there.type != entry.type:
                why = "changes are kept below it"
            if why:
                return Skipped(path=path, type=entry.type, reason=why)
            self.root.put(entry._replace(mode=0o700 if entry.is_dir else entry.bits | 0o600), source)
        except (SandboxError, OSError) as error:
            return Skipped(path=path, type=FILE, reason=str(error))
        self._set(_kept_of(entry), began_ns)
        return None

    def _why_not(self, entry: Entry, known: Kept | None, room: Room) -> str:
        plain = self._project is None
        if entry.type not in (FILE, DIRECTORY) and (plain or entry.type != SYMLINK):
            return f"a {entry.type} is not kept; only files and folders are"
        if known is None and len(self.entries) >= room.files:
            return "the limit on the number of files is reached"
        left = room.bytes - self._held + _bytes(known)
        if entry.is_file and entry.size > left:
            return f"its {entry.size} bytes exceed the {left} that are left of the limit on bytes"
        # A sandbox could not be given it again, and each later run would fail.
        if plain and entry.is_dir and len(entry.names) >= WalkLimits().depth:
            return "it is nested too deep to be looked into"
        return why_no_name(entry.path) if plain else ""

    def remove(self, path: str, began_ns: int = _NEVER_NS) -> None:
        """Keep that a path is gone; a path that the user does not have is forgotten."""
        if self.users(path) is None or is_hidden(path):  # what no program sees none can remove
            self.forget(path)
        else:
            self.clear(path)
            self._set(Entry(path, GONE), began_ns)

    def forget(self, path: str) -> None:
        """Keep nothing of a path: it is as the user has it."""
        self.clear(path)
        known = self.entries.pop(path, None)
        self._held -= _bytes(known)
        if known is not None and self._log is not None:
            self._log.note(path, self.entries)

    def note_written(self, path: str) -> None:
        """Note down what the host has written into the private folder itself."""
        for folder in reversed(list(folders_above(path))):
            known, users = self.entries.get(folder), self.users(folder)
            if (users is None or not users.is_dir) and (known is None or not known.entry.is_dir):
                self._set(Entry(folder, DIRECTORY, mode=0o755), _NEVER_NS)
        self._set(_kept_of(self.root.stat(tuple(path.split("/")))), _NEVER_NS)

    def listed(self) -> tuple[FsChange, ...]:
        """Return all changes against the user's folder, sorted by path."""
        found = []
        for path, kept in sorted(self.entries.items()):
            kind, type_ = "created" if kept.base is None else "modified", kept.entry.type
            if kept.is_gone:
                kind, type_ = "deleted", DIRECTORY if kept.on_folder else FILE
            found.append(FsChange(path=path, kind=kind, type=type_, size=kept.entry.size))
        return tuple(found)

    def _set(self, entry: Entry, began_ns: int) -> None:
        known = self.entries.get(entry.path)
        base = known.base if known is not None else self.users(entry.path)
        late = base is not None and not base.is_dir and base.ctime_ns >= began_ns
        kept = Kept(entry, base, known.unsure if known is not None else late, next(_stamps))
        self.entries[entry.path] = kept
        self._held += _bytes(kept) - _bytes(known)
        if self._log is not None:
            self._log.note(entry.path, self.entries)

    def clear(self, path: str) -> None:
        """Remove what is kept at a path. What is below a folder has entries of its own, and stays with them."""
        kept = self.entries.get(path)
        names = tuple(path.split("/"))
        with contextlib.suppress(SandboxError, OSError):  # not there any more, or not empty
            if kept is not None and kept.entry.type in (FILE, SYMLINK):
                self.root.remove(names)
            else:
                self._remove_empty(names)

    def _remove_empty(self, names: Names) -> None:
        """Remove a folder in which nothing is kept. Folders are also made for changes in them, without an entry."""
        there = self.root.entry_at(names)
        if there is None or not there.is_dir:
            return
        for below in self.root.list_dir(names):
            kept = self.entries.get(below.path)
            if below.is_dir and (kept is None or kept.is_gone):
                self._remove_empty(below.names)
        with in_folder(self.root.fileno(), names[:-1]) as folder:
            os.rmdir(names[-1], dir_fd=folder)


def _kept_of(entry: Entry) -> Entry:
    """Return what is kept of an entry: its inode and times are those of a jail or of the private folder."""
    return Entry(entry.path, entry.type, entry.size, entry.bits, target=entry.target)


def _bytes(kept: Kept | None) -> int:
    return kept.entry.size if kept is not None and kept.entry.is_file else 0

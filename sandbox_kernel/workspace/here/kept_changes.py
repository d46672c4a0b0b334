"""``KeptChanges``: everything that programs of one sandbox changed in the user's folder, until it is applied.

Contents lie in a private folder of the host, at the same paths as in the user's folder; links are kept as links and
never followed. Each change remembers the version of the user's file that it is based on, so that a later change of that
file is noticed. With a ``ChangeLog`` they are there again for the next kernel of the notebook. Thread-safe by the lock
of its ``HereFolder``.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import time
from collections.abc import Callable
from dataclasses import replace

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.model import FsChange
from sandbox_kernel.workspace.folder_state import FolderState, folder_of, with_gone
from sandbox_kernel.workspace.here.change_log import GONE, ChangeLog, Kept
from sandbox_kernel.workspace.here.layer_look import same_file
from sandbox_kernel.workspace.here.placing import look, place, place_folder, place_link
from sandbox_kernel.workspace.here.project_folder import ProjectFolder
from sandbox_kernel.workspace.transfer import Skipped, copy_sparsely
from sandbox_kernel.workspace.tree.beneath import PASS, open_folder
from sandbox_kernel.workspace.tree.paths import Names
from sandbox_kernel.workspace.tree.rooted import TEMPORARY, Rooted, chunks
from sandbox_kernel.workspace.tree.walk import DIRECTORY, FILE, SYMLINK, WalkLimits

#: The most that is kept of one sandbox's changes.
MOST_KEPT_BYTES = 1 << 30
MOST_KEPT_FILES = 50_000

#: Later than every change of a file.
_NEVER_NS = 1 << 63
_stamps = itertools.count(time.time_ns())


class KeptChanges:
    """Changes by path. ``root`` is the private folder with their contents, ``log`` the list of them on disk."""

    def __init__(self, root: Rooted, project: ProjectFolder, log: ChangeLog | None = None) -> None:
        self.root = root
        self._project = project
        self._log = log
        self.entries: dict[str, Kept] = {}
        if log is not None:
            self._find(log)
            log.rewrite(self.entries)
        #: The bytes of all kept files together.
        self._held = sum(_bytes(kept) for kept in self.entries.values())

    def _find(self, log: ChangeLog) -> None:
        """Take over what an earlier kernel left: what its log names and what is there without a line."""
        for path, kept in sorted(log.read().items()):
            there = None if kept.is_gone else look(self.root, tuple(path.split("/")))
            if (kept.is_gone or (there is not None and there.type == kept.type)) and not self._applied(path, kept):
                size = there.size if there is not None and there.type == FILE else kept.size
                self.entries[path] = replace(kept, size=size, stamp=kept.stamp or next(_stamps))
        walk = self.root.walk(WalkLimits(entries=2 * MOST_KEPT_FILES, seconds=10.0))
        for entry in [each for each in walk if each.type in (FILE, SYMLINK) and each.path not in self.entries]:
            if entry.names[-1].startswith(TEMPORARY) or self._is_users(entry.path, entry.type):
                self.root.remove(entry.names)
            else:
                mark = self._project.mark(entry.path)
                facts = entry.type, entry.mode & 0o777, entry.size, entry.target
                self.entries[entry.path] = Kept(*facts, mark, mark is not None, next(_stamps))

    def _applied(self, path: str, kept: Kept) -> bool:
        """Whether the user's folder has the change: the kernel ended after it was applied and before that was noted."""
        mark = self._project.mark(path)
        if kept.is_gone or mark is None:
            return kept.is_gone and mark is None
        if kept.type == DIRECTORY:
            return mark.is_folder and (kept.base is None or mark.mode & 0o777 == kept.mode)
        return mark != kept.base and self._is_users(path, kept.type)

    def _is_users(self, path: str, type_: str) -> bool:
        if type_ == SYMLINK:
            return self._project.read_link(path) == self.root.stat(tuple(path.split("/"))).target
        return type_ == FILE and same_file(self.root, self._project.root, path)

    def state(self, times: Callable[[Names], int | None]) -> FolderState:
        """Return all changes, to be saved with a session. ``times`` returns when a path was changed in the session."""
        there = [self.root.stat(tuple(path.split("/"))) for path, kept in self.entries.items() if not kept.is_gone]
        found = folder_of(
            [entry._replace(mode=self.entries[entry.path].mode) for entry in there],
            lambda entry: self.root.read(entry.names, max_bytes=entry.size),
        )
        known = {path: replace(each, mtime_ns=times(tuple(path.split("/")))) for path, each in found.entries.items()}
        return with_gone(replace(found, entries=known), [path for path, kept in self.entries.items() if kept.is_gone])

    def copy_to(self, log: ChangeLog) -> None:
        """Copy all changes to another place, for the next kernel."""
        with Rooted.at(log.files) as files:
            for path, kept in sorted(self.entries.items()):
                if not kept.is_gone:
                    place(self.root, self.root.stat(tuple(path.split("/"))), files)
                log.note(path, kept)

    def put(self, source: Rooted, path: str, began_ns: int) -> Skipped | None:
        """Keep what stands at a path of ``source``; returns why not, if it cannot be kept."""
        names = tuple(path.split("/"))
        try:
            entry = source.stat(names)
            if entry.type == FILE:
                held = self._held - _bytes(self.entries.get(path))
                if entry.size > MOST_KEPT_BYTES - held or len(self.entries) >= MOST_KEPT_FILES:
                    return Skipped(path=path, type=entry.type, reason="the sandbox keeps no more changes")
                if path not in self.entries or self.entries[path].type != FILE:
                    self.clear(path)
                fd = source.open_file(names)
                try:
                    with self.root.replacing(names, entry.mode & 0o777 | 0o600) as target:
                        copy_sparsely(chunks(fd, entry.size), target)
                finally:
                    os.close(fd)
            elif entry.type == DIRECTORY:
                if path in self.entries and self.entries[path].type not in (DIRECTORY, GONE):
                    self.clear(path)
                place_folder(self.root, names, 0o700)
            elif entry.type == SYMLINK and entry.target is not None:
                self.clear(path)
                place_link(self.root, names, entry.target)
            else:
                return Skipped(path=path, type=entry.type, reason="only files, folders and links are kept")
        except (SandboxError, OSError) as error:
            return Skipped(path=path, type=FILE, reason=str(error))
        self._set(path, entry.type, entry.mode & 0o777, entry.size, entry.target, began_ns)
        return None

    def remove(self, path: str, began_ns: int) -> None:
        """Keep that a path is gone; a path that the user does not have is forgotten."""
        if self._project.mark(path) is None:
            self.forget(path)
        else:
            self.clear(path)
            self._set(path, GONE, 0, 0, None, began_ns)

    def forget(self, path: str) -> None:
        """Keep nothing of a path: it is as the user has it."""
        self.clear(path)
        known = self.entries.pop(path, None)
        self._held -= _bytes(known)
        if known is not None and self._log is not None:
            self._log.note(path, None)

    def note_written(self, path: str) -> None:
        """Note down a file that the host has written into the private folder itself."""
        above = path.split("/")[:-1]
        for depth in range(1, len(above) + 1):
            folder = "/".join(above[:depth])
            mark, known = self._project.mark(folder), self.entries.get(folder)
            if (mark is None or not mark.is_folder) and (known is None or known.type != DIRECTORY):
                self._set(folder, DIRECTORY, 0o755, 0, None, _NEVER_NS)
        entry = self.root.stat(tuple(path.split("/")))
        self._set(path, FILE, entry.mode & 0o777, entry.size, None, _NEVER_NS)

    def note_removed(self, path: str) -> None:
        """Note down that the host itself has removed a path."""
        self.remove(path, _NEVER_NS)

    def digest(self) -> str:
        """Return a text that is the same as long as no change is added, dropped or made again, in any kernel."""
        stamps = repr(sorted((path, kept.stamp) for path, kept in self.entries.items()))
        return hashlib.sha256(stamps.encode(errors="surrogatepass")).hexdigest()[:32]

    def listed(self) -> tuple[FsChange, ...]:
        """Return all changes against the user's folder, sorted by path."""
        return tuple(self._as_change(path, kept) for path, kept in sorted(self.entries.items()))

    def _as_change(self, path: str, kept: Kept) -> FsChange:
        if kept.is_gone:
            folder = kept.base is not None and kept.base.is_folder
            return FsChange(path=path, kind="deleted", type=DIRECTORY if folder else FILE)
        kind = "created" if kept.base is None else "modified"
        return FsChange(path=path, kind=kind, type=kept.type, size=kept.size)

    def _set(self, path: str, type_: str, mode: int, size: int, target: str | None, began_ns: int) -> None:
        known = self.entries.get(path)
        base = known.base if known is not None else self._project.mark(path)
        late = base is not None and not base.is_folder and base.ctime_ns >= began_ns
        unsure = known.unsure if known is not None else late
        self.entries[path] = Kept(type_, mode, size, target, base, unsure, next(_stamps))
        self._held += _bytes(self.entries[path]) - _bytes(known)
        if self._log is not None:
            self._log.note(path, self.entries[path])

    def clear(self, path: str) -> None:
        """Remove what is kept at a path. What is below a folder has entries of its own, and stays with them."""
        kept = self.entries.get(path)
        names = tuple(path.split("/"))
        try:
            if kept is not None and kept.type in (FILE, SYMLINK):
                self.root.remove(names)
            else:
                self._remove_empty(names)
        except (SandboxError, OSError):
            pass  # not there any more, or not empty

    def _remove_empty(self, names: Names) -> None:
        """Remove a folder in which nothing is kept. Folders are also made for changes in them, without an entry."""
        there = look(self.root, names)
        if there is None or there.type != DIRECTORY:
            return
        for below in self.root.list_dir(names):
            kept = self.entries.get("/".join((*names, below.name)))
            if below.type == DIRECTORY and (kept is None or kept.is_gone):
                self._remove_empty((*names, below.name))
        folder = open_folder(self.root.fileno(), names[:-1], PASS)
        try:
            os.rmdir(names[-1], dir_fd=folder)
        finally:
            os.close(folder)


def _bytes(kept: Kept | None) -> int:
    return kept.size if kept is not None and kept.type == FILE else 0

"""``KeptChanges``: everything that programs of one sandbox changed in the user's folder, until it is applied.

Contents lie in a private folder of the host, at the same paths as in the user's folder; links are kept as links and
never followed. Each change remembers the version of the user's file that it is based on, so that a later change of that
file is noticed. Thread-safe by the lock of its ``HereFolder``.
"""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.model import FsChange
from sandbox_kernel.workspace.here.placing import place_folder, place_link
from sandbox_kernel.workspace.here.project_folder import Mark, ProjectFolder
from sandbox_kernel.workspace.transfer import Skipped, copy_sparsely
from sandbox_kernel.workspace.tree.rooted import Rooted, chunks
from sandbox_kernel.workspace.tree.walk import DIRECTORY, FILE, SYMLINK

#: The most that is kept of one sandbox's changes.
MOST_KEPT_BYTES = 1 << 30
MOST_KEPT_FILES = 50_000

#: Later than every change of a file.
_NEVER_NS = 1 << 63
_stamps = itertools.count(1)


@dataclass(frozen=True)
class Kept:
    """One change: what shall stand at its path, and the version of the user's file that it replaces."""

    #: ``file``, ``directory``, ``symlink``, or ``gone`` when the path shall not be there.
    type: str
    mode: int
    size: int
    target: str | None
    #: What the user had there; None for nothing.
    base: Mark | None
    #: The user's file changed while the program ran, so nobody knows which version the change is based on.
    unsure: bool
    #: Grows with every change, so that sessions know what they have not seen yet.
    stamp: int

    @property
    def is_gone(self) -> bool:
        """Whether the path shall not be there."""
        return self.type == GONE


GONE = "gone"


class KeptChanges:
    """Changes by path. ``root`` is the private folder with their contents."""

    def __init__(self, root: Rooted, project: ProjectFolder) -> None:
        self.root = root
        self._project = project
        self.entries: dict[str, Kept] = {}

    def put(self, source: Rooted, path: str, began_ns: int) -> Skipped | None:
        """Keep what stands at a path of ``source``; returns why not, if it cannot be kept."""
        names = tuple(path.split("/"))
        try:
            entry = source.stat(names)
            if entry.type == FILE:
                held = sum(kept.size for name, kept in self.entries.items() if name != path and kept.type == FILE)
                if entry.size > MOST_KEPT_BYTES - held or len(self.entries) >= MOST_KEPT_FILES:
                    return Skipped(path=path, type=entry.type, reason="the sandbox keeps no more changes")
                self._clear(path)
                fd = source.open_file(names)
                try:
                    with self.root.replacing(names, entry.mode & 0o777 | 0o600) as target:
                        copy_sparsely(chunks(fd, entry.size), target)
                finally:
                    os.close(fd)
            elif entry.type == DIRECTORY:
                if path in self.entries and self.entries[path].type not in (DIRECTORY, GONE):
                    self._clear(path)
                place_folder(self.root, names, 0o700)
            elif entry.type == SYMLINK and entry.target is not None:
                self._clear(path)
                place_link(self.root, names, entry.target)
            else:
                return Skipped(path=path, type=entry.type, reason="only files, folders and links are kept")
        except (SandboxError, OSError) as error:
            return Skipped(path=path, type=FILE, reason=str(error))
        self._set(path, entry.type, entry.mode & 0o777, entry.size, entry.target, began_ns)
        return None

    def remove(self, path: str, began_ns: int) -> None:
        """Keep that a path is gone; a path that the user does not have is forgotten."""
        self._clear(path)
        if self._project.mark(path) is None:
            self.entries.pop(path, None)
        else:
            self._set(path, GONE, 0, 0, None, began_ns)

    def forget(self, path: str) -> None:
        """Keep nothing of a path: it is as the user has it."""
        self._clear(path)
        self.entries.pop(path, None)

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

    def _clear(self, path: str) -> None:
        """Remove what is kept at a path. What is below a folder has entries of its own."""
        kept = self.entries.get(path)
        if kept is None or kept.is_gone:
            return
        try:
            self.root.remove(tuple(path.split("/")), tree=True)
        except SandboxError:
            pass  # not there any more

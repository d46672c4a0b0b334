"""The files of one ``Sandbox`` object: a private folder on the host that its runs see as /box and leave their files in.

Made when first needed, mode 0700, removed with the sandbox unless it was given. Nothing in it is ever imported or
executed by the host. ``KeptChanges`` lists what is in it; sessions share it by a ``FolderLink``.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from sandbox_kernel.errors import BackendUnavailable, InvalidRequest, SandboxError
from sandbox_kernel.model import FsChange, Note, notes
from sandbox_kernel.workspace.changes import MAX_CHANGES, Now, standing
from sandbox_kernel.workspace.transfer import MAX_PACKED_BYTES, MAX_PACKED_FILES, PackedFiles, Skipped, usable_mode
from sandbox_kernel.workspace.tree.paths import display_name, names_beneath
from sandbox_kernel.workspace.tree.rooted import Rooted, encoded
from sandbox_kernel.workspace.tree.walk import Entry

if TYPE_CHECKING:
    from sandbox_kernel.workspace.overlay.kept_changes import ChangeLog, KeptChanges, Room
    from sandbox_kernel.workspace.overlay.project import ProjectFolder


class BoxFolder:
    """Thread-safe. ``place`` is a private folder of the host that is used and stays; None for a new one."""

    #: The user's folder, where this holds the changes to one.
    project: ProjectFolder | None = None

    def __init__(self, place: str | None = None, log: ChangeLog | None = None) -> None:
        self._place = place
        self._log = log
        #: Held while files are brought in; sessions that share the folder hold it too.
        self.lock = threading.RLock()
        #: Counts what was changed, so that sessions know when to look.
        self.generation = 0 if place is None else 1
        self._root: Rooted | None = None
        self._kept: KeptChanges | None = None
        self.is_linked = False
        self._end: weakref.finalize[[str, Rooted], BoxFolder] | None = None

    @property
    def is_used(self) -> bool:
        """Whether anything was put into it, or a session shares it."""
        return self._root is not None or self.is_linked

    @property
    def kept(self) -> KeptChanges:
        """What is in the folder, by path."""
        from sandbox_kernel.workspace.overlay.kept_changes import KeptChanges  # most runs leave no files

        with self.lock:
            if self._kept is None:
                self._kept = KeptChanges(self.opened(), self.project, self._log)
            return self._kept

    def holding(self, path: str) -> Rooted:
        """The folder that has the version of a file that programs see."""
        return self.opened()

    def write(self, path: str, data: bytes | str) -> None:
        """Make or replace a file; one that is there keeps its mode."""
        name, content = "/".join(names_beneath(path)), encoded(path, data)
        with self.lock:
            known, users = self.kept.entries.get(name), self.kept.users(name)
            if known is not None and known.is_gone:
                self.kept.clear(name)
            elif known is not None:
                users = known.entry
            self.kept.root.write(name, content, 0o644 if users is None or users.is_dir else users.bits)
            self.kept.note_written(name)
            self.generation += 1

    def make_folder(self, path: str) -> None:
        """Make a folder; one that is there stays as it is."""
        with self.lock:
            self.kept.root.make_folder(path)
            self.kept.note_written("/".join(names_beneath(path, folder=True)))
            self.generation += 1

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with everything in it; what is hidden from programs stays."""
        name = "/".join(names_beneath(path))
        with self.lock:
            below = [known for known in self.kept.entries if known == name or known.startswith(f"{name}/")]
            below += self.kept.users_below(name)
            if not below:
                raise InvalidRequest(f"there is no {display_name(name)!r} in the folder; box.list_dir() shows what is")
            for known in sorted({name, *below}, reverse=True):
                self.kept.remove(known)
            self.generation += 1

    def forget(self, paths: Iterable[str]) -> None:
        """Keep nothing of these paths."""
        with self.lock:
            for path in sorted(paths, reverse=True):
                self.kept.forget(path)
            self.generation += 1

    def list_dir(self, path: str = ".") -> tuple[Entry, ...]:
        """What a folder holds, sorted by name."""
        return self.opened().list_dir(path)

    def diff(self) -> tuple[FsChange, ...]:
        """What has changed since the folder was made, or differs from the user's folder."""
        with self.lock:
            return self.kept.listed()

    def files(self) -> Mapping[str, bytes]:
        """Everything in the folder, to be put into a sandbox; nothing if it was never used."""
        with self.lock:
            root = self._root if self._place is None else self.opened()
        return PackedFiles(root) if root is not None else {}

    def keep(self, box: Rooted, changes: Sequence[FsChange], most: int = MAX_CHANGES) -> Sequence[Note]:
        """Bring changed files of a finished run in, at most so many; returns notes on what was not kept."""
        from sandbox_kernel.workspace.overlay.kept_changes import Room

        try:
            # A folder beyond what a sandbox can be given would end all later runs.
            left = self.take(box, standing(changes[:most]), Room(MAX_PACKED_BYTES, MAX_PACKED_FILES))
        except BackendUnavailable as error:
            # It has run: whatever is wrong with the host's disk, its result is not lost.
            return [notes.no_files_kept(error)]
        told = [notes.file_not_kept(display_name(item.path), item.type, item.reason) for item in left[:20]]
        for first in changes[most : most + 1]:
            why = f"of {len(changes)} changes a run keeps the first {most}"
            told.append(notes.file_not_kept(display_name(first.path), first.type, why))
        return told

    def take(self, source: Rooted, now: Now, room: Room, *began_ns: int) -> list[Skipped]:
        """Keep what a program left at these paths, since ``began_ns``; returns what could not be kept."""
        with self.lock:
            kept = self.kept
            for path in sorted((path for path, one in now.items() if one is not None and one.is_gone), reverse=True):
                kept.remove(path, *began_ns)
            for path in sorted(path for path, one in now.items() if one is None):
                kept.forget(path)
            there = sorted(path for path, one in now.items() if one is not None and not one.is_gone)
            put = (kept.put(source, path, room, *began_ns) for path in there)
            left = [skipped for skipped in put if skipped is not None]
            self.generation += bool(now)
        return left

    def give(self, path: str, box: Rooted, *, users: bool = False) -> None:
        """Make a path of a session's folder what is kept here, or with ``users`` nothing; a filled folder stays."""
        names = tuple(path.split("/"))
        if path in self.kept.entries and not users:
            entry, there = self.kept.present(path), box.entry_at(names)
            if there is not None and there.type != entry.type:
                box.remove(names)  # never with what only the session has in a folder
            box.put(entry._replace(mode=usable_mode(entry)), self.kept.root)
        elif box.entry_at(names) is not None:
            with contextlib.suppress(SandboxError):
                box.remove(names)

    def close(self) -> None:
        """Remove the folder, unless it was given; may be called twice."""
        with self.lock:
            end, self._end, root, self._root = self._end, None, self._root, None
            if self.project is None:
                self._kept = None  # changes to a folder of the user do not look as if there were none
        if end is not None:
            end()
        elif root is not None:
            root.close()

    def opened(self) -> Rooted:
        """The folder, made now if nobody needed it before; ``BackendUnavailable`` where there is no room for one."""
        import tempfile  # most sandboxes never need a folder on the host

        with self.lock:
            if self._root is None and self._place is not None:
                self._root = Rooted.at(self._place)
            if self._root is None:
                path = ""
                try:
                    path = tempfile.mkdtemp(prefix="sandbox-kernel-box-")
                    self._root = Rooted.at(path)
                except OSError as error:
                    if path:
                        os.rmdir(path)
                    raise BackendUnavailable(
                        f"the sandbox's own folder cannot be made: {error}; see to the host's disk and open files, or "
                        "name another folder in the environment variable TMPDIR"
                    ) from error
                self._end = weakref.finalize(self, _remove, path, self._root)
            return self._root


def _remove(path: str, root: Rooted) -> None:
    root.clear()
    root.close()
    os.rmdir(path)

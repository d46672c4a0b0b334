"""Keeps the work folder of one session and the folder of its sandbox in step.

A session has a work folder of its own, which rollback restores together with the state. Files are therefore copied
between cells: changes of a cell go into the folder of the sandbox, and other changes there (``write_file``, fresh runs,
other sessions) go into the session before its next cell. Large files are not shared, and the result says so; a notebook
keeps them for its next kernel (``large_files.py``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.limits import MIB
from sandbox_kernel.model import FsChange, Note, notes
from sandbox_kernel.workspace.changes import Snapshot, compare, snapshot
from sandbox_kernel.workspace.here.placing import look, place
from sandbox_kernel.workspace.large_files import LargeFiles
from sandbox_kernel.workspace.others_files import MOST_FILE, NO_STATES, OlderStates, OthersFiles, PutAgain, Version
from sandbox_kernel.workspace.transfer import Skipped, collect
from sandbox_kernel.workspace.tree.paths import display_name
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import FILE

if TYPE_CHECKING:
    from sandbox_kernel.workspace.box_folder import BoxFolder

Item = TypeVar("Item")

#: Limits of shared files. Every fresh run gets a copy of them, so a large data set would slow each run.
MAX_SHARED_FILE = 16 * MIB
MAX_SHARED_BYTES = 64 * MIB
MAX_SHARED_FILES = 5000
#: Most files that notes name.
_NAMED = 5


class FolderLink:
    """Links the work folder of one session to a ``BoxFolder``. Used only by the call that has the session's turn."""

    def __init__(self, folder: BoxFolder) -> None:
        self._folder = folder
        self._look = Snapshot()
        self._seen = 0
        self._others = OthersFiles(self)
        #: Where files that are not shared stay for the next kernel; None where they end with the session.
        self.large: LargeFiles | None = None
        self._large_given = False

    def another(self) -> FolderLink:
        """Return a link to the same folder for another session."""
        return FolderLink(self._folder)

    def begin(self) -> None:
        """Start with an empty session folder: every shared file counts as new."""
        self._look, self._seen, self._large_given = Snapshot(), 0, False
        self._others = OthersFiles(self)

    def push(self, box: Rooted, states: OlderStates = NO_STATES) -> tuple[bool, list[Note]]:
        """Copy changes of the sandbox's folder into the session. Returns whether there were any, and notes.

        ``states`` are those of the session.
        """
        changed, found = self._push_shared(box, states)
        if self.large is not None and not self._large_given:
            self._large_given = True
            found += self.large.give(box)
            changed = changed or len(self.large) > 0
        return changed, found

    def _push_shared(self, box: Rooted, states: OlderStates) -> tuple[bool, list[Note]]:
        folder = self._folder
        with folder.lock:
            if folder.generation == self._seen:
                return False, []
            root = folder.opened()
            before, self._look = self._look, snapshot(root, since=self._look)
            self._seen = folder.generation
            changes = compare(before, self._look)
            if not changes:
                return False, []
            left = collect(root, box, changes, MAX_SHARED_BYTES, MAX_SHARED_FILES, delete=True)
            self._others.came(_paths(changes), states)
        return True, _notes(left, "was not put into this session")

    def pull(self, box: Rooted, changes: Sequence[FsChange]) -> list[Note]:
        """Copy changes of the session's folder into the sandbox's folder. Returns notes on files that were left out."""
        if not changes:
            return []
        wanted = list(_shareable(changes))
        paths = _paths(changes)
        folder = self._folder
        with folder.lock:
            root = folder.opened()
            self._others.will_change(paths)
            others = snapshot(root, since=self._look)
            held = [entry.size for path, entry in others.entries.items() if path not in paths]
            room, more = max(0, MAX_SHARED_BYTES - sum(held)), max(0, MAX_SHARED_FILES - len(held))
            left = collect(box, root, wanted, room, more, delete=True, reusable=True)
            now = snapshot(root, since=self._look)
            alone = self._seen == folder.generation
            folder.generation += 1
            if alone:
                self._look, self._seen = now, folder.generation
            else:
                self._look = _merged(self._look, now, paths)
        large = [change.path for change in changes if _is_large(change)]
        lost: list[Note] = []
        if self.large is not None:
            lost = self.large.follow(box, changes, {*large, *(item.path for item in left if item.type == FILE)})
        most_mb = MAX_SHARED_FILE // MIB
        stays = [notes.large_file_not_shared(display_name(path), most_mb) for path in large[:_NAMED]]
        return stays + _notes(left, "is not shared with other runs") + lost

    def put_again(self, box: Rooted, node: int, written: Mapping[str, int] | None = None) -> PutAgain:
        """Put in again what others changed after a state that the session went back to.

        ``written``: the state was made by cells that ran again and wrote these paths; see ``OthersFiles.put_over``.
        """
        with self._folder.lock:
            if written is not None:
                return self._others.put_over(written, box, self.waiting())
            return self._others.put_again(node, box, self.waiting())

    def now_in(self, node: int, put: PutAgain) -> None:
        """Note that the copy of a state, and the sandbox's folder, have what was put in again."""
        with self._folder.lock:
            self._others.now_in(node, put)

    def waiting(self) -> set[str]:
        """Return the paths at which others have changed something that the session has not got yet."""
        if self._folder.generation == self._seen:
            return set()
        return _paths(compare(self._look, snapshot(self._folder.opened(), since=self._look)))

    def stamp(self, path: str) -> object:
        """See ``SharedFiles``."""
        entry = look(self._folder.opened(), tuple(path.split("/")))
        return None if entry is None else (entry.type, entry.inode, entry.size, entry.mode, entry.mtime_ns)

    def version(self, path: str) -> Version | None:
        """See ``SharedFiles``."""
        root, names = self._folder.opened(), tuple(path.split("/"))
        entry = root.stat(names)
        if entry.type == FILE and entry.size > MOST_FILE:
            return None
        data = root.read(names, MOST_FILE) if entry.type == FILE else b""
        return Version(entry.type, entry.mode & 0o777, entry.target, data)

    def give(self, path: str, box: Rooted, *, kept: bool = True) -> None:
        """See ``SharedFiles``. A folder that holds something else stays."""
        names, root = tuple(path.split("/")), self._folder.opened()
        entry = look(root, names) if kept else None
        if entry is not None:
            place(root, entry, box)
        elif look(box, names) is not None:
            with contextlib.suppress(SandboxError):
                box.remove(names)


def _paths(changes: Iterable[FsChange]) -> set[str]:
    return {path for change in changes for path in (change.path, change.renamed_from) if path is not None}


def _is_large(change: FsChange) -> bool:
    return change.kind != "deleted" and change.type == FILE and (change.size or 0) > MAX_SHARED_FILE


def _shareable(changes: Iterable[FsChange]) -> Iterable[FsChange]:
    """Turn the change of a file that is too large into a deletion, so that no outdated version stays shared."""
    for change in changes:
        if not _is_large(change):
            yield change
            continue
        yield replace(change, kind="deleted", renamed_from=None)
        if change.renamed_from is not None:
            yield replace(change, path=change.renamed_from, kind="deleted", renamed_from=None)


def _merged(old: Snapshot, now: Snapshot, paths: set[str]) -> Snapshot:
    """Return a snapshot with the new entries of ``paths`` and the old entries of all other paths."""

    def joined(before: Iterable[tuple[str, Item]], after: Iterable[tuple[str, Item]]) -> dict[str, Item]:
        kept = {path: item for path, item in before if path not in paths}
        return kept | {path: item for path, item in after if path in paths}

    return Snapshot(
        joined(old.entries.items(), now.entries.items()),
        joined(old.digests.items(), now.digests.items()),
        {**old.unseen, **now.unseen},
        old.taken_ns or now.taken_ns,
    )


def _notes(left: Sequence[Skipped], what: str) -> list[Note]:
    named = [notes.file_not_shared(display_name(item.path), item.type, what, item.reason) for item in left[:_NAMED]]
    return named + ([notes.more_files_not_shared(len(left) - _NAMED)] if len(left) > _NAMED else [])

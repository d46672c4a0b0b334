"""One session's share in the folder of its sandbox: what its cells do is done there too, and the other way round.

A session has a work folder of its own, which goes back with its state. So the files are not the same ones: between
cells, what a cell changed is copied into the sandbox's folder, and what anybody else changed there (``write_file``,
fresh runs, other sessions) is copied in before the next cell. Large files stay where they were made, and it is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from sandbox_kernel.limits import MIB
from sandbox_kernel.model import FsChange, Note, notes
from sandbox_kernel.workspace.changes import Snapshot, compare, snapshot
from sandbox_kernel.workspace.transfer import Skipped, collect
from sandbox_kernel.workspace.tree.paths import display_name
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import FILE

if TYPE_CHECKING:
    from sandbox_kernel.workspace.box_folder import BoxFolder

Item = TypeVar("Item")

#: Fresh runs get a copy of everything that is shared, so a data set in a session must not slow each of them.
MAX_SHARED_FILE = 16 * MIB
MAX_SHARED_BYTES = 64 * MIB
MAX_SHARED_FILES = 5000
#: How many files a note names.
_NAMED = 5


class FolderLink:
    """Joins one session's work folder to a ``BoxFolder``; used by whoever has the session's turn."""

    def __init__(self, folder: BoxFolder) -> None:
        self._folder = folder
        self._look = Snapshot()
        self._seen = 0
        #: What others gave to the session and its cells have not touched since.
        self._given: set[str] = set()

    def another(self) -> FolderLink:
        """A share in the same folder for another session."""
        return FolderLink(self._folder)

    def begin(self) -> None:
        """The session begins with an empty folder: all that is shared is new to it."""
        self._look, self._seen, self._given = Snapshot(), 0, set()

    def push(self, box: Rooted) -> tuple[bool, list[Note]]:
        """Bring in what others have changed since the last time; says whether anything was."""
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
        self._given |= {change.path for change in changes if change.kind != "deleted"}
        return True, _told(left, "was not put into this session")

    def pull(self, box: Rooted, changes: Sequence[FsChange]) -> list[Note]:
        """Do to the shared folder what the session's cells did to theirs; returns notes on what was left out."""
        if not changes:
            return []
        wanted = list(_shareable(changes))
        paths = {path for change in changes for path in (change.path, change.renamed_from) if path is not None}
        self._given -= paths
        folder = self._folder
        with folder.lock:
            root = folder.opened()
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
        most_mb = MAX_SHARED_FILE // MIB
        stays = [notes.large_file_not_shared(display_name(path), most_mb) for path in large[:_NAMED]]
        return stays + _told(left, "is not shared with other runs")

    def take_back(self, box: Rooted, changes: Sequence[FsChange]) -> bool:
        """An undo changed the session's folder: others follow, but what they gave is given again; says if it was."""
        gone = {change.path for change in changes} & self._given
        self.pull(box, [change for change in changes if change.path not in gone])
        again = [FsChange(path=path, kind="created", type=FILE) for path in sorted(gone)]
        if not again:
            return False
        with self._folder.lock:
            collect(self._folder.opened(), box, again, MAX_SHARED_BYTES, MAX_SHARED_FILES)
        self._given |= gone
        return True


def _is_large(change: FsChange) -> bool:
    return change.kind != "deleted" and change.type == FILE and (change.size or 0) > MAX_SHARED_FILE


def _shareable(changes: Iterable[FsChange]) -> Iterable[FsChange]:
    """A file that grew too large disappears for the others: an old version of it would be worse than none."""
    for change in changes:
        if not _is_large(change):
            yield change
            continue
        yield replace(change, kind="deleted", renamed_from=None)
        if change.renamed_from is not None:
            yield replace(change, path=change.renamed_from, kind="deleted", renamed_from=None)


def _merged(old: Snapshot, now: Snapshot, paths: set[str]) -> Snapshot:
    """A look that knows of these paths what stands there now, and of all others what it knew before."""

    def joined(before: Iterable[tuple[str, Item]], after: Iterable[tuple[str, Item]]) -> dict[str, Item]:
        kept = {path: item for path, item in before if path not in paths}
        return kept | {path: item for path, item in after if path in paths}

    return Snapshot(
        joined(old.entries.items(), now.entries.items()),
        joined(old.digests.items(), now.digests.items()),
        {**old.unseen, **now.unseen},
        old.taken_ns or now.taken_ns,
    )


def _told(left: Sequence[Skipped], what: str) -> list[Note]:
    named = [notes.file_not_shared(display_name(item.path), item.type, what, item.reason) for item in left[:_NAMED]]
    return named + ([notes.more_files_not_shared(len(left) - _NAMED)] if len(left) > _NAMED else [])

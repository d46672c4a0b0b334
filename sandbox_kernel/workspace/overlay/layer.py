"""What a program changed in a layer, found by looking at the layer and never at the whole folder.

A layer is overlayfs' upper folder: files that were changed or made, a character device 0:0 (a *whiteout*) where
something was removed, and an attribute on folders that were removed and made again (*opaque*: nothing of the folder
below shows through). All of it was made by the program: it is bounded and nothing in it is followed or opened but
regular files.

Where no layer can be mounted, programs work on a private copy of the user's folder instead: files, folders, empty ones
too, and links as they are, but nothing that is hidden. ``CopyLook`` looks at it before a program starts and after its
end.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.limits import MIB
from sandbox_kernel.model import FsChange, Note, notes
from sandbox_kernel.workspace.changes import Snapshot, compare, merged, same_file, snapshot
from sandbox_kernel.workspace.hidden import is_hidden
from sandbox_kernel.workspace.overlay.project import ProjectFolder, covered
from sandbox_kernel.workspace.tree.beneath import SCAN, in_folder
from sandbox_kernel.workspace.tree.paths import display_name
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import DEVICE, DIRECTORY, FILE, Entry, WalkLimits

#: Bounds of one look; it delays the result of a cell.
LOOK = WalkLimits(entries=50_000, seconds=2.0)
#: The most that is read, in one look, to find out that a file is the same as before.
SAME_READ_BYTES = 64 * MIB
_PAGE = 4096


class Now(Enum):
    """What stands at a path after a program: something of the layer, nothing, or what the folder has."""

    CHANGED = "changed"
    GONE = "gone"
    SAME = "same"


@dataclass(frozen=True)
class Delta:
    """A layer at one time: what stands above the folder, and which paths of the folder do not show any more.

    ``layer`` is everything in the layer, ``covers`` what nothing of the folder shows through or beneath.
    """

    above: Snapshot = field(default_factory=Snapshot)
    gone: frozenset[str] = frozenset()
    layer: Mapping[str, Entry] = field(default_factory=dict)
    covers: frozenset[str] = frozenset()


@dataclass(frozen=True)
class LayerChanges:
    """The changes since the last look, for the result; and what stands now at each path that they touch."""

    changes: tuple[FsChange, ...]
    now: Mapping[str, Now]
    truncated: bool


class LayerLook:
    """Looks at one layer again and again. ``hidden`` are paths that the host itself has removed in it.

    ``not_given`` are notes on kept changes that could not be put into it.
    """

    here = "layer"

    def __init__(self, layer: Rooted, project: ProjectFolder, *, shared: bool) -> None:
        self.layer = layer
        self._project = project
        self._shared = shared
        self._last = Delta()
        self.hidden: frozenset[str] = frozenset()
        self.not_given: list[Note] = []

    def settle(self, paths: Collection[str] | None = None) -> None:
        """Take what is there now as it should be, at and below these paths: the host has changed it. All without."""
        before, now = self._last, self._look()
        if paths is not None:
            # What programs have changed elsewhere in this moment is found by the next look.
            ours = frozenset(paths)

            def is_ours(path: str) -> bool:
                return covered(path, ours)

            entries = merged(before.above.entries, now.above.entries, is_ours)
            gone, covers = (
                frozenset(merged(dict.fromkeys(old), dict.fromkeys(new), is_ours))
                for old, new in ((before.gone, now.gone), (before.covers, now.covers))
            )
            layer = merged(before.layer, now.layer, is_ours)
            now = Delta(replace(now.above, entries=entries), gone, layer, covers)
        self._last = now

    def changes(self) -> LayerChanges:
        """Return what changed since the last look."""
        before, self._last = self._last, self._look()
        after = self._last
        found = {change.path: change for change in compare(before.above, after.above)}
        now: dict[str, Now] = {}
        budget = SAME_READ_BYTES
        told: dict[str, FsChange] = {}
        for path, change in found.items():
            if change.renamed_from is not None:
                now[change.renamed_from] = Now.GONE
            if change.kind == "deleted":
                now[path] = Now.GONE
                if path in after.gone or self._project.look(path) is None:
                    told[path] = change
                elif path not in before.gone:
                    now[path] = Now.SAME
                continue
            shows = path not in before.gone and path not in before.above.entries
            old = self._project.look(path)
            # Whether it is the same as a hidden file is nothing that a program may learn.
            if old is not None and change.type != DIRECTORY and budget >= change.size and not is_hidden(path):
                budget -= change.size
                if same_file(self.layer, self._project.root, path):
                    now[path] = Now.SAME
                    if path in before.above.entries or path in before.gone:
                        told[path] = change
                    continue
            now[path] = Now.CHANGED
            told[path] = replace(change, kind="modified") if shows and old is not None else change
        for path in before.gone - after.gone - set(now):
            # A folder of the user that was gone is there again, as the user has it; or the user has removed it too.
            now[path] = Now.SAME
            there = self._project.look(path)
            if there is not None:
                told[path] = FsChange(path=path, kind="created", type=there.type)
        for path in after.gone - before.gone - set(after.above.entries):
            now[path] = Now.GONE
            if path not in told and path not in before.above.entries:
                there = self._project.look(path)
                told[path] = FsChange(path=path, kind="deleted", type=FILE if there is None else there.type)
        changes = tuple(sorted(self._paired(told).values(), key=lambda change: change.path))
        return LayerChanges(changes, now, after.above.truncated)

    def _look(self) -> Delta:
        seen = snapshot(self.layer, LOOK, since=self._last.above, shared=self._shared)
        last = self._last
        gone: set[str] = set()
        covers: set[str] = set()
        above = dict(seen.entries)
        for path, entry in seen.entries.items():
            if entry.is_dir:
                if is_opaque(self.layer, path):
                    covers.add(path)
                    # What lies in the user's folder and not in the one that was made in its place.
                    gone.update(below.path for below in self._project.beneath(path) if below.path not in seen.entries)
                if self._is_as_before(path, entry):
                    # Whatever the user has there by now: no program has changed it.
                    if path not in last.above.entries:
                        del above[path]
                    gone.update({path} & last.gone)
                    continue
                old = self._project.look(path)
                if old is not None and not old.is_dir:
                    gone.add(path)
                elif old is not None and old.bits == entry.bits:
                    del above[path]
                continue
            covers.add(path)
            if entry.type == DEVICE:
                del above[path]
                gone.add(path)
            if entry.type == DEVICE or self._project.has_folder(path):
                gone.update(below.path for below in self._project.beneath(path))
        gone = {path for path in gone if not covered(path, self.hidden) and not self._was_unseen(path)}
        return Delta(replace(seen, entries=above), frozenset(gone), seen.entries, frozenset(covers))

    def _is_as_before(self, path: str, entry: Entry) -> bool:
        """Whether a folder of the layer is the one of the last look."""
        known = self._last.layer.get(path)
        return known is not None and (known.type, known.inode, known.mode) == (entry.type, entry.inode, entry.mode)

    def _was_unseen(self, path: str) -> bool:
        """Whether the user has put something in where a program had removed or replaced what was there before.

        No program has seen it, so none has removed it.
        """
        last = self._last
        return path not in last.gone and path not in last.layer and covered(path, last.covers)

    def _paired(self, told: dict[str, FsChange]) -> dict[str, FsChange]:
        """Tell a file that was moved as one: overlayfs keeps size and time of a file that it copies up."""
        lost = {}
        for path, change in told.items():
            there = self._project.look(path) if change.kind == "deleted" and change.type == FILE else None
            if there is not None and there.size:
                lost[there.size, there.mtime_ns] = path
        for path, change in list(told.items()):
            entry = self._last.above.entries.get(path)
            if change.kind != "created" or entry is None or not entry.is_file:
                continue
            origin = lost.pop((entry.size, entry.mtime_ns), None)
            if origin is not None:
                told[path] = replace(change, kind="renamed", renamed_from=origin)
                del told[origin]
        return told


def is_opaque(layer: Rooted, path: str) -> bool:
    """Whether a folder of a layer was made anew, so that nothing of the folder below shows through."""
    try:
        with in_folder(layer.fileno(), tuple(path.split("/")), SCAN) as fd:
            return os.getxattr(fd, "user.overlay.opaque") == b"y"
    except OSError:
        return False


class CopyLook:
    """Looks at a private copy as ``LayerLook`` does at a layer. ``not_given`` are notes on what is not in it."""

    here = "copy"

    def __init__(self, box: Rooted, project: ProjectFolder) -> None:
        self.layer = box
        self._project = project
        self._last = Snapshot()
        self.not_given: list[Note] = []

    def settle(self) -> None:
        """Take what is there now as it should be."""
        self._last = snapshot(self.layer, LOOK)

    def changes(self) -> LayerChanges:
        """Return what changed since the last look."""
        before, self._last = self._last, snapshot(self.layer, LOOK, since=self._last)
        found = as_found(compare(before, self._last), self.layer, self._project)
        return LayerChanges(found.changes, found.now, before.truncated or self._last.truncated)


def copy_folder(
    project: ProjectFolder, box: Rooted, room: int | None = None
) -> tuple[dict[str, Entry | None], list[Note]]:
    """Put a copy of the user's folder into a work folder; returns the versions, and notes on what could not be copied.

    Raises ``InvalidRequest`` when it is more than a copy may hold, or than ``room`` in bytes.
    """
    entries = project.copied()
    taken = sum(-(-entry.size // _PAGE) * _PAGE for entry in entries if entry.is_file)
    if room is not None and taken > room:
        raise InvalidRequest(
            f"{project.path!r} can only be copied here, not shown copy-on-write, and its {taken / MIB:.0f} MB do not "
            f"fit into the work folder, which takes {room / MIB:.0f} MB: raise limits.disk_mb and memory_mb (--disk, "
            "--memory), or name a smaller folder"
        )
    failed = box.put_tree(entries, project.root)
    missing = [notes.file_not_copied(display_name(path), error) for path, error in failed.items()]
    return {entry.path: entry for entry in entries}, missing


def as_found(changes: Iterable[FsChange], copy: Rooted, project: ProjectFolder) -> LayerChanges:
    """Return changes of a private copy in the form of a look at a layer."""
    listed = tuple(changes)
    now: dict[str, Now] = {}
    for change in listed:
        if change.renamed_from is not None:
            now[change.renamed_from] = Now.GONE
        if change.kind == "deleted":
            now[change.path] = Now.GONE
        else:
            # Whether it is the same as a hidden file is nothing that a program may learn.
            same = not is_hidden(change.path) and _is_users(copy, project, change)
            now[change.path] = Now.SAME if same else Now.CHANGED
    return LayerChanges(listed, now, False)


def _is_users(copy: Rooted, project: ProjectFolder, change: FsChange) -> bool:
    if change.type != DIRECTORY:
        return same_file(copy, project.root, change.path)
    users, now = project.look(change.path), copy.look(tuple(change.path.split("/")))
    return users is not None and now is not None and users.is_dir and users.bits == now.bits

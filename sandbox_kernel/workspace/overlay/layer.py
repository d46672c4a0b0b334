"""What a program changed in a layer, found by looking at the layer and never at the whole folder.

A layer is overlayfs' upper folder: files that were changed or made, a character device 0:0 (a *whiteout*) where
something was removed, and an attribute on folders that were removed and made again (*opaque*: nothing of the folder
below shows through). All of it was made by the program: it is bounded and nothing in it is followed or opened but
regular files.

Where no layer can be mounted, programs work on a private copy of the user's folder instead: files, folders, empty ones
too, and links as they are, but nothing that is hidden. ``CopyTracker`` finds what changed in it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.limits import MIB
from sandbox_kernel.model import FsChange, Note, notes
from sandbox_kernel.workspace.changes import LayerChanges, Snapshot, compare, same_entry, snapshot, standing
from sandbox_kernel.workspace.hidden import is_hidden
from sandbox_kernel.workspace.overlay.project import ProjectFolder, covered
from sandbox_kernel.workspace.tree.beneath import SCAN, in_folder
from sandbox_kernel.workspace.tree.paths import display_name, folders_above
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import DEVICE, FILE, Entry, WalkLimits

#: Bounds of one snapshot; it delays the result of a cell.
WALK = WalkLimits(entries=50_000, seconds=2.0)
#: The most that is read, each time, to find out that a file is the same as before.
SAME_READ_BYTES = 64 * MIB
_PAGE = 4096


class CopyTracker:
    """Finds what programs have changed in a private copy, or in a work folder (without a project), since the last time.

    ``root`` is the folder with what they have changed. ``shared``: they run on between two snapshots. ``not_given`` are
    notes on what could not be put into it.
    """

    here = "copy"

    def __init__(self, root: Rooted, project: ProjectFolder | None, *, shared: bool, limits: WalkLimits = WALK) -> None:
        self.root = root
        self._project = project
        self._shared = shared
        self._limits = limits
        self._seen = Snapshot()
        self.not_given: list[Note] = []

    def settle(self, paths: Collection[str] | None = None) -> None:
        """Take what is there now as it should be, at, above and below these paths: the host has changed it."""
        now = self._snapshot()
        if paths is not None:
            paths = frozenset(paths)  # asked for each name of every path
            above = {folder for path in paths for folder in folders_above(path)}
            now = self._seen.taking(now, lambda path: path in above or covered(path, paths))
        self._seen = now

    def forget(self, paths: Iterable[str]) -> None:
        """Let the next ``changes`` find these paths again: a mode that no file has differs from every other."""
        entries, again = self._seen.entries, frozenset(paths)
        marked = {path: entry._replace(mode=-1) if path in again else entry for path, entry in entries.items()}
        self._seen = replace(self._seen, entries=marked)

    def changes(self) -> LayerChanges:
        """Return what changed since the last snapshot."""
        before, self._seen = self._seen, self._snapshot()
        found = {change.path: change for change in self._compared(before, self._seen)}
        now, project = standing(found.values()), self._project
        budget = SAME_READ_BYTES
        for path, change in list(found.items()):
            if project is None:
                break
            same = path not in self._seen.entries  # the user's own shows again
            # Whether it is the same as a hidden file is nothing that a program may learn.
            if not same and change.size <= budget and not is_hidden(path) and project.entry_at(path) is not None:
                budget -= change.size
                same = same_entry(self.root, project.root, path)
            if same and change.kind != "deleted":
                now[path] = None  # as the user has it
                if self._showed(path, change, before):
                    del found[path]
        return LayerChanges(tuple(found.values()), now, before.truncated or self._seen.truncated)

    def _snapshot(self) -> Snapshot:
        return snapshot(self.root, self._limits, since=self._seen, shared=self._shared)

    def _compared(self, before: Snapshot, after: Snapshot) -> tuple[FsChange, ...]:
        return compare(before, after)

    def _showed(self, path: str, change: FsChange, before: Snapshot) -> bool:
        """Whether the program saw the user's own version before."""
        return False


class LayerTracker(CopyTracker):
    """The same for a layer: compares what programs saw through it, at the paths that it covers or has covered."""

    here = "layer"

    def _snapshot(self) -> Snapshot:
        seen = super()._snapshot()
        marked = {
            path: entry._replace(opaque=is_opaque(self.root, path)) if entry.is_dir else entry
            for path, entry in seen.entries.items()
        }
        return replace(seen, entries=marked)

    def _compared(self, before: Snapshot, after: Snapshot) -> tuple[FsChange, ...]:
        then, now = LayerView(self._project, before.entries), LayerView(self._project, after.entries)
        paths = [path for path in touched(then, now) if before.knows(path) and after.knows(path)]
        merged = [
            replace(seen, entries={path: entry for path in paths if (entry := view.at(path)) is not None})
            for seen, view in ((before, then), (after, now))
        ]
        found = {change.path: change for change in compare(*merged)}
        # A file of the user that was moved is told as one: overlayfs keeps size and time of a file that it copies up.
        lost: dict[tuple[int, int], str] = {}
        for path, change in found.items():
            if change.kind == "deleted" and change.type == FILE and change.size and path not in before.entries:
                lost[change.size, merged[0].entries[path].mtime_ns] = path
        for path, change in list(found.items()):
            entry = after.entries.get(path)
            if change.kind == "created" and entry is not None and entry.is_file:
                origin = lost.pop((entry.size, entry.mtime_ns), None)
                if origin is not None:
                    found[path] = replace(change, kind="renamed", renamed_from=origin)
                    del found[origin]
        return tuple(found.values())

    def _showed(self, path: str, change: FsChange, before: Snapshot) -> bool:
        return change.kind == "modified" and path not in before.entries


def is_opaque(layer: Rooted, path: str) -> bool:
    """Whether a folder of a layer was made anew, so that nothing of the folder below shows through."""
    try:
        with in_folder(layer.fileno(), tuple(path.split("/")), SCAN) as fd:
            return os.getxattr(fd, "user.overlay.opaque") == b"y"
    except OSError:
        return False


class LayerView:
    """What programs saw with a copy of a layer: where that has nothing, the user's own file, in its present version.

    Without a project, the copy is one of a plain work folder, and nothing shows through.
    """

    def __init__(self, project: ProjectFolder | None, entries: Mapping[str, Entry]) -> None:
        self.project = project
        self.entries = entries
        self._ways: dict[str, bool | None] = {"": project is not None}

    def _shows_in(self, folder: str) -> bool | None:
        """Whether the user's own files show in a folder; None where programs saw no folder there."""
        if folder not in self._ways:
            there, shows = self.entries.get(folder), self._shows_in(folder.rpartition("/")[0])
            if there is not None and shows is not None:
                shows = (shows and not there.opaque) if there.is_dir else None
            self._ways[folder] = shows
        return self._ways[folder]

    def at(self, path: str) -> Entry | None:
        """Return what stands at a path; None for nothing. A hidden file of the user never shows."""
        shows, there = self._shows_in(path.rpartition("/")[0]), self.entries.get(path)
        if shows is None:
            return None
        if there is None and shows and self.project is not None and not is_hidden(path):
            there = self.project.entry_at(path)
        return None if there is None or there.type == DEVICE else there


def touched(before: LayerView, after: LayerView) -> set[str]:
    """Return the paths at which two views of one folder may differ."""
    paths, project = {*before.entries, *after.entries}, before.project
    below: set[str] = set()
    for path in paths if project is not None else ():
        sides = [view.entries.get(path) for view in (before, after)]
        # What only one of them covers; what both cover shows in neither.
        if len({side is not None and (not side.is_dir or side.opaque) for side in sides}) == 2 and project is not None:
            below.update(entry.path for entry in project.beneath(path))
    return paths | below


def copy_folder(project: ProjectFolder, box: Rooted, room: int | None) -> tuple[dict[str, Entry], list[Note]]:
    """Put a copy of the user's folder into a work folder, within ``room`` bytes; returns entries, and notes on gaps."""
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

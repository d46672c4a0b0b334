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
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.limits import MIB
from sandbox_kernel.model import FsChange, Note, notes
from sandbox_kernel.workspace.changes import Snapshot, compare, merged, same_entry, snapshot
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


class CopyLook:
    """Looks at a private copy again and again. ``root`` is the folder with what programs have changed.

    ``shared``: programs run on between looks. ``not_given`` are notes on what could not be put into it.
    """

    here = "copy"

    def __init__(self, root: Rooted, project: ProjectFolder, *, shared: bool) -> None:
        self.root = root
        self._project = project
        self._shared = shared
        self._seen = Snapshot()
        self.not_given: list[Note] = []

    def settle(self, paths: Collection[str] | None = None) -> None:
        """Take what is there now as it should be: the host has changed it.

        In a layer at and below these paths: what programs have changed elsewhere is found by the next look.
        """
        self._seen = snapshot(self.root, LOOK, since=self._seen, shared=self._shared)

    def changes(self) -> LayerChanges:
        """Return what changed since the last look."""
        before, self._seen = self._seen, snapshot(self.root, LOOK, since=self._seen, shared=self._shared)
        changes = compare(before, self._seen)
        now: dict[str, Now] = {}
        for change in changes:
            if change.renamed_from is not None:
                now[change.renamed_from] = Now.GONE
            if change.kind == "deleted":
                now[change.path] = Now.GONE
                continue
            # Whether it is the same as a hidden file is nothing that a program may learn.
            same = not is_hidden(change.path) and same_entry(self.root, self._project.root, change.path)
            now[change.path] = Now.SAME if same else Now.CHANGED
        return LayerChanges(changes, now, before.truncated or self._seen.truncated)


class LayerLook(CopyLook):
    """Looks at one layer. ``hidden`` are paths that the host itself has removed in it."""

    here = "layer"

    def __init__(self, layer: Rooted, project: ProjectFolder, *, shared: bool) -> None:
        super().__init__(layer, project, shared=shared)
        self._last = Delta()
        self.hidden: frozenset[str] = frozenset()

    def settle(self, paths: Collection[str] | None = None) -> None:
        """See ``CopyLook``."""
        before, now = self._last, self._look()
        if paths is not None:

            def is_ours(path: str) -> bool:
                return covered(path, paths)

            gone, covers = (
                frozenset(merged(dict.fromkeys(old), dict.fromkeys(new), is_ours))
                for old, new in ((before.gone, now.gone), (before.covers, now.covers))
            )
            layer = merged(before.layer, now.layer, is_ours)
            now = Delta(before.above.taking(now.above, is_ours), gone, layer, covers)
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
                if same_entry(self.root, self._project.root, path):
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
        seen = snapshot(self.root, LOOK, since=self._last.above, shared=self._shared)
        last = self._last
        gone: set[str] = set()
        covers: set[str] = set()
        above = dict(seen.entries)
        for path, entry in seen.entries.items():
            if entry.is_dir:
                if is_opaque(self.root, path):
                    covers.add(path)
                    # What lies in the user's folder and not in the one that was made in its place.
                    gone.update(below.path for below in self._project.beneath(path) if below.path not in seen.entries)
                known = last.layer.get(path)
                if known and (known.type, known.inode, known.mode) == (entry.type, entry.inode, entry.mode):
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


class LayerView:
    """What programs saw with a copy of a layer: where that has nothing, the user's own file, in its present version.

    Without a project, the copy is one of a plain work folder, and nothing shows through.
    """

    def __init__(self, project: ProjectFolder | None, entries: Mapping[str, Entry]) -> None:
        self.project = project
        self.entries = entries

    def touched(self) -> Iterator[str]:
        """Yield the paths at which the view may differ from the user's folder."""
        for path, entry in self.entries.items():
            yield path
            if self.project is not None and (not entry.is_dir or entry.opaque):
                yield from (below.path for below in self.project.beneath(path))

    def at(self, path: str) -> Entry | None:
        """Return what stands at a path; None for nothing. A hidden file of the user never shows."""
        shows = not is_hidden(path)
        for at in (at for at, sign in enumerate(path) if sign == "/"):
            above = self.entries.get(path[:at])
            if above is not None and not above.is_dir:
                return None
            shows = shows and (above is None or not above.opaque)
        there = self.entries.get(path)
        if there is None and shows and self.project is not None:
            there = self.project.look(path)
        return None if there is None or there.type == DEVICE else there


def copy_folder(project: ProjectFolder, box: Rooted, room: int | None) -> tuple[dict[str, Entry], list[Note]]:
    """Put a copy of the user's folder into a work folder; returns the entries, and notes on what could not be copied.

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

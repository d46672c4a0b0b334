"""What a program changed in a layer, found by looking at the layer and never at the whole folder.

A layer is overlayfs' upper folder: files that were changed or made, a character device 0:0 (a *whiteout*) where
something was removed, and an attribute on folders that were removed and made again (*opaque*: nothing of the folder
below shows through). All of it was made by the program: it is bounded and nothing in it is followed or opened but
regular files.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.limits import MIB
from sandbox_kernel.model import FsChange, Note
from sandbox_kernel.workspace.changes import Snapshot, compare, snapshot
from sandbox_kernel.workspace.here.hidden import is_hidden
from sandbox_kernel.workspace.here.project_folder import ProjectFolder, covered
from sandbox_kernel.workspace.tree.beneath import open_folder
from sandbox_kernel.workspace.tree.rooted import Rooted, chunks
from sandbox_kernel.workspace.tree.walk import DEVICE, DIRECTORY, FILE, SYMLINK, TreeEntry, WalkLimits

#: Bounds of one look; it delays the result of a cell.
LOOK = WalkLimits(entries=50_000, seconds=2.0)
#: The most that is read, in one look, to find out that a file is the same as before.
SAME_READ_BYTES = 64 * MIB


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
    layer: Mapping[str, TreeEntry] = field(default_factory=dict)
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
            entries = {path: entry for path, entry in before.above.entries.items() if not covered(path, ours)}
            entries |= {path: entry for path, entry in now.above.entries.items() if covered(path, ours)}
            layer = {path: entry for path, entry in before.layer.items() if not covered(path, ours)}
            layer |= {path: entry for path, entry in now.layer.items() if covered(path, ours)}
            gone, covers = (
                frozenset(
                    [path for path in old if not covered(path, ours)] + [path for path in new if covered(path, ours)]
                )
                for old, new in ((before.gone, now.gone), (before.covers, now.covers))
            )
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
                if path in after.gone or self._project.mark(path) is None:
                    told[path] = change
                elif path not in before.gone:
                    now[path] = Now.SAME
                continue
            shows = path not in before.gone and path not in before.above.entries
            old = self._project.mark(path)
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
            if self._project.mark(path) is not None:
                told[path] = FsChange(path=path, kind="created", type=self._type(path))
        for path in after.gone - before.gone - set(after.above.entries):
            now[path] = Now.GONE
            if path not in told and path not in before.above.entries:
                told[path] = FsChange(path=path, kind="deleted", type=self._type(path))
        changes = tuple(sorted(self._paired(told).values(), key=lambda change: change.path))
        return LayerChanges(changes, now, after.above.truncated)

    def _look(self) -> Delta:
        seen = snapshot(self.layer, LOOK, since=self._last.above, shared=self._shared)
        last = self._last
        gone: set[str] = set()
        covers: set[str] = set()
        above = dict(seen.entries)
        for path, entry in seen.entries.items():
            if entry.type == DIRECTORY:
                if is_opaque(self.layer, path):
                    covers.add(path)
                    gone.update(self._covered_by(path, seen))
                if self._is_as_before(path, entry):
                    # Whatever the user has there by now: no program has changed it.
                    if path not in last.above.entries:
                        del above[path]
                    gone.update({path} & last.gone)
                    continue
                old = self._project.mark(path)
                if old is not None and not old.is_folder:
                    gone.add(path)
                elif old is not None and old.mode & 0o777 == entry.mode & 0o777:
                    del above[path]
                continue
            covers.add(path)
            if entry.type == DEVICE:
                del above[path]
                gone.add(path)
            if entry.type == DEVICE or ((old := self._project.mark(path)) is not None and old.is_folder):
                gone.update(below.path for below in self._project.beneath(path))
        gone = {path for path in gone if not covered(path, self.hidden) and not self._was_unseen(path)}
        return Delta(replace(seen, entries=above), frozenset(gone), seen.entries, frozenset(covers))

    def _is_as_before(self, path: str, entry: TreeEntry) -> bool:
        """Whether a folder of the layer is the one of the last look."""
        known = self._last.layer.get(path)
        return known is not None and (known.type, known.inode, known.mode) == (entry.type, entry.inode, entry.mode)

    def _was_unseen(self, path: str) -> bool:
        """Whether the user has put something in where a program had removed or replaced what was there before.

        No program has seen it, so none has removed it.
        """
        last = self._last
        return path not in last.gone and path not in last.layer and covered(path, last.covers)

    def _covered_by(self, folder: str, seen: Snapshot) -> Iterator[str]:
        """Yield what lies in a folder of the host and not in the folder that was made in its place."""
        for entry in self._project.beneath(folder):
            if entry.path not in seen.entries:
                yield entry.path

    def _type(self, path: str) -> str:
        mark = self._project.mark(path)
        if mark is None or mark.is_folder:
            return DIRECTORY if mark is not None else FILE
        return SYMLINK if self._project.read_link(path) is not None else FILE

    def _paired(self, told: dict[str, FsChange]) -> dict[str, FsChange]:
        """Tell a file that was moved as one: overlayfs keeps size and time of a file that it copies up."""
        lost = {}
        for path, change in told.items():
            mark = self._project.mark(path) if change.kind == "deleted" and change.type == FILE else None
            if mark is not None and mark.size:
                lost[mark.size, mark.mtime_ns] = path
        for path, change in list(told.items()):
            entry = self._last.above.entries.get(path)
            if change.kind != "created" or entry is None or entry.type != FILE:
                continue
            origin = lost.pop((entry.size, entry.mtime_ns), None)
            if origin is not None:
                told[path] = replace(change, kind="renamed", renamed_from=origin)
                del told[origin]
        return told


def is_opaque(layer: Rooted, path: str) -> bool:
    """Whether a folder of a layer was made anew, so that nothing of the folder below shows through."""
    try:
        fd = open_folder(layer.fileno(), tuple(path.split("/")))
    except OSError:
        return False
    try:
        return os.getxattr(fd, "user.overlay.opaque") == b"y"
    except OSError:
        return False
    finally:
        os.close(fd)


def same_file(one: Rooted, other: Rooted, path: str) -> bool:
    """Whether a path is a file with the same content and mode in both, or the same link."""
    names = tuple(path.split("/"))
    try:
        mine, theirs = one.stat(names), other.stat(names)
        if mine.type == SYMLINK:
            return mine.target == theirs.target
        if mine.type != FILE or (mine.type, mine.size, mine.mode & 0o777) != (
            theirs.type,
            theirs.size,
            theirs.mode & 0o777,
        ):
            return False
        return _digest(one, names) == _digest(other, names)
    except SandboxError:
        return False


def _digest(root: Rooted, names: tuple[str, ...]) -> bytes:
    fd = root.open_file(names)
    try:
        state = hashlib.blake2b()
        for piece in chunks(fd, 1 << 40):
            state.update(piece)
        return state.digest()
    finally:
        os.close(fd)

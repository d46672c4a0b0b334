"""Copies of a layer, one for each checkpoint of a session: a rollback or an undo restores the files too.

A copy costs what was changed and not what is in the folder. Nothing may be written into a layer while it is mounted
(the kernel goes on with what it knew, and later writes are lost), so a copy is put back through the merged folder: what
the layer had, or what the user's folder has. Copies are in the host's memory and bounded. Everything in the layer was
made by a program: no link is followed, and only regular files are opened.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Collection
from dataclasses import dataclass, field

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.limits import MIB
from sandbox_kernel.workspace.here.hidden import is_hidden
from sandbox_kernel.workspace.here.layer_look import LOOK, is_opaque
from sandbox_kernel.workspace.here.placing import look, place_folder, place_link, take_away, write_in_place
from sandbox_kernel.workspace.here.project_folder import ProjectFolder
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import DEVICE, DIRECTORY, FILE, SYMLINK, TreeEntry
from sandbox_kernel.workspace.writers import open_for_writing, tells_who_writes

#: The most that one copy, and all copies of a session together, hold.
MOST_COPY_BYTES = 64 * MIB
MOST_BYTES = 192 * MIB
#: File times have the resolution of the kernel's clock: a younger file can change and keep its time.
_CLOCK_STEP_NS = 50_000_000
_NO_COPY = "no copy of them was kept"


@dataclass(frozen=True)
class CopiedFile:
    """One path of a layer: its entry, the content of a file, and whether a folder hides what is below it."""

    entry: TreeEntry
    data: bytes = b""
    opaque: bool = False


@dataclass
class LayerCopy:
    """A layer at one moment. ``problem`` says why it has no content; empty when it has."""

    taken_ns: int
    entries: dict[str, CopiedFile] = field(default_factory=dict)
    problem: str = ""


class LayerCopies:
    """The copies of one layer, by the number of the cell after which they were taken."""

    def __init__(self, box: Rooted, layer: Rooted, project: ProjectFolder) -> None:
        self._box, self._layer, self._project = box, layer, project
        self._copies: dict[int, LayerCopy] = {}
        self._last = LayerCopy(0)
        #: Inodes of files that a process could write to when the last copy was taken: their times tell nothing.
        self._open: set[int] = set()
        self._tells = tells_who_writes(layer.fileno())

    def take(self, cell: int) -> None:
        """Copy the layer as it is now. Files that did not change since the last copy are not read again."""
        copy = LayerCopy(time.time_ns())
        try:
            self._read(copy)
        except (SandboxError, OSError) as error:
            copy.entries, copy.problem = {}, f"they could not be read: {error}"
        self._copies[cell], self._last = copy, copy
        held = {id(item.data): len(item.data) for each in self._copies.values() for item in each.entries.values()}
        for number in sorted(self._copies):
            if sum(held.values()) <= MOST_BYTES or self._copies[number] is copy:
                break
            old = self._copies[number]
            old.entries, old.problem = {}, f"older copies of them were deleted at {MOST_BYTES >> 20} MB"
            held = {id(item.data): len(item.data) for each in self._copies.values() for item in each.entries.values()}

    def keep_only(self, cells: Collection[int]) -> None:
        """Delete the copies of all other cells."""
        self._copies = {cell: copy for cell, copy in self._copies.items() if cell in cells}

    def restore(self, cell: int) -> str:
        """Restore the folder from the copy of a cell. Returns an empty string, or why it could not be restored."""
        copy = self.of(cell)
        if copy.problem:
            return copy.problem
        now = LayerCopy(time.time_ns())
        try:
            self._read(now)
            _Restoring(self._box, self._project, copy.entries, now.entries).run()
        except (SandboxError, OSError) as error:
            return f"they could not all be restored: {error}"
        finally:
            self._last = LayerCopy(0)
        return ""

    def of(self, cell: int) -> LayerCopy:
        """Return the copy of a cell; one with a problem when there is none."""
        return self._copies.get(cell) or LayerCopy(0, problem=_NO_COPY)

    def _read(self, copy: LayerCopy) -> None:
        size = 0
        still_open: set[int] = set()
        walk = self._layer.walk(LOOK)
        for entry in walk:
            data, opaque = b"", False
            if entry.type == FILE:
                size += entry.size
                if size > MOST_COPY_BYTES:
                    raise OSError(f"the changed files are larger than {MOST_COPY_BYTES >> 20} MB")
                data = self._content(entry, still_open)
            elif entry.type == DIRECTORY:
                opaque = is_opaque(self._layer, entry.path)
            copy.entries[entry.path] = CopiedFile(entry, data, opaque)
        if walk.truncated:
            raise OSError("there are too many")
        self._open = still_open

    def _content(self, entry: TreeEntry, still_open: set[int]) -> bytes:
        before = self._last.entries.get(entry.path)
        young = entry.ctime_ns >= self._last.taken_ns - _CLOCK_STEP_NS
        if before is not None and before.entry == entry and not young and entry.inode not in self._open:
            return before.data
        fd = self._layer.open_file(entry.names)
        try:
            if open_for_writing(fd, tells=self._tells):
                still_open.add(entry.inode)
        finally:
            os.close(fd)
        return self._layer.read(entry.names, max_bytes=MOST_COPY_BYTES)


class _Restoring:
    """One restoring: goes through every path of which the copy or the present layer knows something."""

    def __init__(
        self, box: Rooted, project: ProjectFolder, then: dict[str, CopiedFile], now: dict[str, CopiedFile]
    ) -> None:
        self._box, self._project, self._then, self._now = box, project, then, now
        self._children: dict[str, set[str]] = {}
        for path in (*then, *now):
            above, _, name = path.rpartition("/")
            self._children.setdefault(above, set()).add(name)

    def run(self) -> None:
        """Restore the whole folder."""
        self._folder("", shows=True, anew=False)

    def _folder(self, path: str, *, shows: bool, anew: bool) -> None:
        """Restore what is in a folder. ``shows``: the user's shows through; ``anew``: it was made empty just now."""
        names = set(self._children.get(path, ()))
        if shows:
            names |= self._below(path)
        for name in sorted(names):
            self._place(f"{path}/{name}" if path else name, shows, anew)

    def _place(self, path: str, shows: bool, anew: bool) -> None:
        then, now = self._then.get(path), self._now.get(path)
        there = look(self._box, tuple(path.split("/")))
        if then is None and now is None and shows and not anew and there is not None:
            return
        wanted, through = self._wanted(path, then, shows)
        if there is not None and (wanted is None or there.type != wanted.entry.type):
            take_away(self._box, there.names)
            there, anew = None, True
        if wanted is None:
            return
        entry = wanted.entry
        if entry.type == DIRECTORY:
            place_folder(self._box, entry.names, entry.mode & 0o777 | 0o700)
            self._folder(path, shows=through, anew=anew or there is None)
            place_folder(self._box, entry.names, entry.mode & 0o777)
        elif entry.type == SYMLINK and entry.target is not None:
            if there is None or there.target != entry.target:
                place_link(self._box, entry.names, entry.target)
        elif entry.type == FILE and (there is None or then is None or now is None or not _same(then, now)):
            data = wanted.data if then is not None else self._project.root.read(entry.names, MOST_COPY_BYTES)
            write_in_place(self._box, entry.names, data, entry.mode & 0o777)

    def _wanted(self, path: str, then: CopiedFile | None, shows: bool) -> tuple[CopiedFile | None, bool]:
        """Return what shall stand at a path, and whether the user's folder shows through there."""
        if then is not None:
            if then.entry.type == DEVICE:
                return None, False
            return then, shows and not then.opaque
        # A hidden file of the user is never put in: it may have come after the copy was taken.
        entry = look(self._project.root, tuple(path.split("/"))) if shows and not is_hidden(path) else None
        return (None, False) if entry is None else (CopiedFile(entry), True)

    def _below(self, path: str) -> set[str]:
        try:
            return {entry.name for entry in self._project.root.list_dir(tuple(path.split("/")) if path else ".")}
        except SandboxError:
            return set()


def _same(then: CopiedFile, now: CopiedFile) -> bool:
    return stat.S_IMODE(then.entry.mode) == stat.S_IMODE(now.entry.mode) and then.data == now.data

"""The layer of one session's worker: what it shows of the user's folder, the looks at it, and its copies.

A copy is taken for each checkpoint, so that a rollback or an undo restores the files too. It costs what was changed and
not what is in the folder. Nothing may be written into a layer while it is mounted (the kernel goes on with what it
knew, and later writes are lost), so a copy is put back through the merged folder: what the layer had, or what the
user's folder has. Copies are in the host's memory and bounded. Everything in the layer was made by a program: no link
is followed, and only regular files are opened.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.limits import MIB
from sandbox_kernel.workspace.changes import FileDiff, open_for_writing, tells_who_writes
from sandbox_kernel.workspace.here.here_folder import HereFolder
from sandbox_kernel.workspace.here.layer_look import LOOK, is_opaque
from sandbox_kernel.workspace.here.project_folder import ProjectFolder
from sandbox_kernel.workspace.hidden import is_hidden
from sandbox_kernel.workspace.tree.beneath import SCAN, in_folder, libc
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import DEVICE, Entry

#: How often a running session looks for secrets that were put into a large folder meanwhile, in seconds.
HIDE_AGAIN_S = 2.0
#: The most that one copy, and all copies of a session together, hold.
MOST_COPY_BYTES = 64 * MIB
MOST_BYTES = 192 * MIB
#: File times have the resolution of the kernel's clock: a younger file can change and keep its time.
_CLOCK_STEP_NS = 50_000_000
_NO_COPY = "no copy of them was kept"
#: The system call has the same number on every architecture.
_FSCONFIG, _RECONFIGURE = 431, 7


def forget_names(settings_fd: int) -> bool:
    """Have the kernel forget which names of a jail's folder it has looked up; returns whether it did.

    Overlayfs remembers for good what it found under a name in the folder below: a file that the user saves by renaming
    another over it, or puts there after a program looked for it, is not seen. A remount without any change drops all
    names that nobody holds open. The jail gave us the settings of its own mount (``gate/namespaces.py``); the owner of
    its user namespace may do this from outside, root or not.
    """
    return settings_fd >= 0 and libc().syscall(_FSCONFIG, settings_fd, _RECONFIGURE, None, None, 0) == 0


class SessionLayer:
    """The layer of one worker: the looks at it, and its copies for rollback. Belongs to the worker's jail."""

    def __init__(self, folder: HereFolder, box_fd: int, layer_fd: int, settings_fd: int) -> None:
        self._box = Rooted(box_fd)
        self._settings_fd = settings_fd
        layer = Rooted(layer_fd)
        #: When the program could first look at the folder.
        self.began_ns = time.time_ns()
        #: The stamps of the changes that were put in when the worker started.
        self.given = folder.kept.stamps()
        self.look = folder.fill_layer(self._box, layer, shared=True)
        self._copies = LayerCopies(self._box, layer, folder.project)
        self._project = folder.project
        self._hidden_at = time.monotonic()
        #: The number of the last look at the user's folder after which held names were let go.
        self._looked = 0
        #: The secrets that were found when they were hidden last.
        self._found: tuple[str, ...] | None = None

    def take(self, cell: int, others: Collection[int]) -> None:
        """Copy the layer for the checkpoint of a cell; ``others`` are the cells whose copies are kept."""
        self._copies.take(cell, others)

    def restore(self, cell: int) -> str:
        """Restore the folder as it was after a cell. Returns why not; empty when it was restored."""
        return self._copies.restore(cell)

    def compare(self, before: int, after: int) -> tuple[list[FileDiff], str]:
        """Return how the folder differs between the states after two cells, and what could not be found out."""
        from sandbox_kernel.workspace.here.patch import compare_layers  # brings difflib

        first, second = self._copies.of(before), self._copies.of(after)
        problem = first.problem or second.problem
        return ([], problem) if problem else compare_layers(self._project, first.entries, second.entries)

    def renew(self) -> bool:
        """Let programs see the user's folder as it is now; returns whether that is possible here."""
        return forget_names(self._settings_fd)

    def to_hide(self) -> list[str]:
        """Return secrets that the user has put into the folder since, and that show."""
        if time.monotonic() - self._hidden_at < HIDE_AGAIN_S and not self._project.hidden_files.is_small:
            return []
        self._hidden_at = time.monotonic()
        found = self._project.hidden_files.find()
        if found == self._found:
            return []
        self._found = found
        self.look.hidden |= set(found)
        # What the program itself has put there is its own, and covers what the user has put there since.
        names = {path: tuple(path.split("/")) for path in found}
        return [path for path in found if not self.look.layer.look(names[path]) and self._box.look(names[path])]

    def let_go(self) -> None:
        """Let names show the user's present file where the session holds the one before it open.

        Such a name survives ``renew``. It is removed through the merged folder, which has the kernel forget it, and
        then the whiteout that this made is removed from the layer.
        """
        self._looked, files = self._project.hidden_files.relisted(self._looked)
        layer = self.look.layer
        for path, inode in files.items():
            names = tuple(path.split("/"))
            shown = self._box.look(names)
            if shown is None or not shown.is_file or shown.inode == inode or layer.look(names) is not None:
                continue
            self._box.take_away(names)
            made = layer.look(names)
            if made is not None and made.type == DEVICE:
                layer.remove(names)
                self.renew()

    def hide(self, paths: Collection[str]) -> None:
        """Hide these secrets from the session."""
        for path in paths:
            self._box.take_away(tuple(path.split("/")))

    def show_through(self, path: str) -> None:
        """Let the user's folder show through one that the program had made and that was applied; never a secret."""
        secrets = self._project.hidden_files.find()
        secret = is_hidden(path) or any(one.startswith(f"{path}/") for one in secrets)
        if is_opaque(self.look.layer, path) and not secret:
            with in_folder(self.look.layer.fileno(), tuple(path.split("/")), SCAN) as fd:
                os.removexattr(fd, "user.overlay.opaque")
            self._found = None


@dataclass
class LayerCopy:
    """A layer at one moment, with the contents of its files. ``problem`` says why it has none; empty when it has."""

    taken_ns: int = 0
    entries: dict[str, Entry] = field(default_factory=dict)
    problem: str = ""


class LayerCopies:
    """The copies of one layer, by the number of the cell after which they were taken."""

    def __init__(self, box: Rooted, layer: Rooted, project: ProjectFolder) -> None:
        self._box, self._layer, self._project = box, layer, project
        self._copies: dict[int, LayerCopy] = {}
        self._last = LayerCopy()
        #: Inodes of files that a process could write to when the last copy was taken: their times tell nothing.
        self._open: set[int] = set()
        self._tells = tells_who_writes(layer.fileno())

    def take(self, cell: int, others: Collection[int]) -> None:
        """Copy the layer as it is now, and delete the copies of all cells but this one and ``others``.

        Files that did not change since the last copy are not read again.
        """
        copy = LayerCopy(time.time_ns())
        try:
            self._read(copy)
        except (SandboxError, OSError) as error:
            copy.entries, copy.problem = {}, f"they could not be read: {error}"
        self._copies = {known: old for known, old in self._copies.items() if known in others} | {cell: copy}
        self._last = copy
        for number in sorted(self._copies):
            # Copies share what did not change.
            every = (entry.data for each in self._copies.values() for entry in each.entries.values() if entry.data)
            if sum({id(data): len(data) for data in every}.values()) <= MOST_BYTES or self._copies[number] is copy:
                break
            problem = f"older copies of them were deleted at {MOST_BYTES >> 20} MB"
            self._copies[number] = LayerCopy(problem=problem)

    def restore(self, cell: int) -> str:
        """Restore the folder from the copy of a cell. Returns an empty string, or why it could not be restored."""
        copy = self.of(cell)
        if copy.problem:
            return copy.problem
        now = LayerCopy(time.time_ns())
        try:
            self._read(now)
            _Restoring(self._box, self._project, copy.entries, now.entries).restore("", shows=True, anew=False)
        except (SandboxError, OSError) as error:
            return f"they could not all be restored: {error}"
        finally:
            self._last = LayerCopy()
        return ""

    def of(self, cell: int) -> LayerCopy:
        """Return the copy of a cell; one with a problem when there is none."""
        return self._copies.get(cell) or LayerCopy(problem=_NO_COPY)

    def _read(self, copy: LayerCopy) -> None:
        size = 0
        still_open: set[int] = set()
        walk = self._layer.walk(LOOK)
        for entry in walk:
            if entry.is_file:
                size += entry.size
                if size > MOST_COPY_BYTES:
                    raise OSError(f"the changed files are larger than {MOST_COPY_BYTES >> 20} MB")
                entry = entry._replace(data=self._content(entry, still_open))
            elif entry.is_dir:
                entry = entry._replace(opaque=is_opaque(self._layer, entry.path))
            copy.entries[entry.path] = entry
        if walk.truncated:
            raise OSError("there are too many")
        self._open = still_open

    def _content(self, entry: Entry, still_open: set[int]) -> bytes:
        before = self._last.entries.get(entry.path)
        young = entry.ctime_ns >= self._last.taken_ns - _CLOCK_STEP_NS
        same = before is not None and before._replace(data=None) == entry
        if same and before is not None and before.data is not None and not young and entry.inode not in self._open:
            return before.data
        with self._layer.reading(entry.names) as fd:
            if open_for_writing(fd, tells=self._tells):
                still_open.add(entry.inode)
        return self._layer.read(entry.names, max_bytes=MOST_COPY_BYTES)


class _Restoring:
    """One restoring: goes through every path of which the copy or the present layer knows something."""

    def __init__(self, box: Rooted, project: ProjectFolder, then: dict[str, Entry], now: dict[str, Entry]) -> None:
        self._box, self._project, self._then, self._now = box, project, then, now
        self._children: dict[str, set[str]] = {}
        for path in (*then, *now):
            self._children.setdefault(path.rpartition("/")[0], set()).add(path)

    def restore(self, folder: str, *, shows: bool, anew: bool) -> None:
        """Restore what is in a folder. ``shows``: the user's shows through; ``anew``: it was made empty just now."""
        paths = set(self._children.get(folder, ()))
        if shows:
            with suppress(SandboxError):
                listed = self._project.root.list_dir(tuple(folder.split("/")) if folder else ".")
                paths |= {entry.path for entry in listed}
        for path in sorted(paths):
            self._place(path, shows, anew)

    def _place(self, path: str, shows: bool, anew: bool) -> None:
        then, now, names = self._then.get(path), self._now.get(path), tuple(path.split("/"))
        there = self._box.look(names)
        if then is None and now is None and shows and not anew and there is not None:
            return
        wanted, through = self._wanted(path, then, shows)
        if there is not None and (wanted is None or there.type != wanted.type):
            self._box.take_away(names)
            there, anew = None, True
        if wanted is None:
            return
        if wanted.is_dir:
            self._box.put(wanted._replace(mode=wanted.mode | 0o700))
            self.restore(path, shows=through, anew=anew or there is None)
            self._box.put(wanted)
        elif not wanted.is_file:
            if there is None or there.target != wanted.target:
                self._box.put(wanted)
        elif there is None or then is None or now is None or (then.bits, then.data) != (now.bits, now.data):
            if then is None:
                wanted = wanted._replace(data=self._project.root.read(names, MOST_COPY_BYTES))
            self._box.put(wanted, in_place=True)

    def _wanted(self, path: str, then: Entry | None, shows: bool) -> tuple[Entry | None, bool]:
        """Return what shall stand at a path, and whether the user's folder shows through there."""
        if then is not None:
            return (None, False) if then.type == DEVICE else (then, shows and not then.opaque)
        # A hidden file of the user is never put in: it may have come after the copy was taken.
        entry = self._project.look(path) if shows and not is_hidden(path) else None
        return entry, entry is not None

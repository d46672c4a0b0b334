"""A session's share in the user's folder: the layer of its worker, with its looks and copies, and ``HereLink``.

A copy is taken for each checkpoint, so that a rollback or an undo restores the files too. It costs what was changed and
not what is in the folder. Nothing may be written into a layer while it is mounted (the kernel goes on with what it
knew, and later writes are lost), so a copy is put back through the merged folder: what the layer had, or what the
user's folder has. Copies are in the host's memory and bounded. Everything in the layer was made by a program: no link
is followed, and only regular files are opened.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.limits import MIB
from sandbox_kernel.model import Note, notes
from sandbox_kernel.workspace.box_folder import NO_STATES, FolderLink, OlderStates, with_content
from sandbox_kernel.workspace.changes import FileDiff, open_for_writing, tells_who_writes
from sandbox_kernel.workspace.hidden import is_hidden
from sandbox_kernel.workspace.overlay.layer import LOOK, CopyLook, LayerChanges, LayerView, is_opaque
from sandbox_kernel.workspace.overlay.overlay_folder import HereFolder
from sandbox_kernel.workspace.overlay.patch import compare_layers
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


@dataclass
class LayerCopy:
    """A layer at one moment, with the contents of its files. ``problem`` says why it has none; empty when it has."""

    taken_ns: int = 0
    entries: dict[str, Entry] = field(default_factory=dict)
    problem: str = ""


class SessionLayer:
    """The layer of one worker: the looks at it, and its copies for rollback. Belongs to the worker's jail."""

    def __init__(self, folder: HereFolder, box_fd: int, layer_fd: int, settings_fd: int) -> None:
        self._box = Rooted(box_fd)
        self._settings_fd = settings_fd
        #: When the program could first look at the folder.
        self.began_ns = time.time_ns()
        #: The stamps of the changes that were put in when the worker started.
        self.given = folder.kept.stamps()
        self.look = folder.fill_layer(self._box, layer_fd, shared=True)
        self._project = folder.project
        #: The copies of the layer, by the number of the cell after which they were taken, and the last one.
        self._copies: dict[int, LayerCopy] = {}
        self._last = LayerCopy()
        #: Inodes of files that a process could write to when the last copy was taken: their times tell nothing.
        self._open: set[int] = set()
        self._tells = tells_who_writes(layer_fd)
        self._hidden_at = time.monotonic()
        #: The number of the last look at the user's folder after which held names were let go.
        self._looked = 0
        #: The secrets that were found when they were hidden last.
        self._found: tuple[str, ...] | None = None

    def compare(self, before: int, after: int) -> tuple[list[FileDiff], str]:
        """Return how the folder differs between the states after two cells, and what could not be found out."""
        first, second = self._copy_of(before), self._copy_of(after)
        problem = first.problem or second.problem
        if problem:
            return [], problem
        return compare_layers(LayerView(self._project, first.entries), LayerView(self._project, second.entries))

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
        return [path for path in found if not self.look.root.look(names[path]) and self._box.look(names[path])]

    def let_go(self) -> None:
        """Let names show the user's present file where the session holds the one before it open.

        Such a name survives ``renew``. It is removed through the merged folder, which has the kernel forget it, and
        then the whiteout that this made is removed from the layer.
        """
        self._looked, files = self._project.hidden_files.relisted(self._looked)
        layer = self.look.root
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
        if is_opaque(self.look.root, path) and not secret:
            with in_folder(self.look.root.fileno(), tuple(path.split("/")), SCAN) as fd:
                os.removexattr(fd, "user.overlay.opaque")
            self._found = None

    def take(self, cell: int, others: Collection[int]) -> None:
        """Copy the layer for the checkpoint of a cell, and delete the copies of all cells but this one and ``others``.

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
        """Restore the folder as it was after a cell. Returns an empty string, or why it could not be restored."""
        copy = self._copy_of(cell)
        if copy.problem:
            return copy.problem
        now = LayerCopy(time.time_ns())
        try:
            self._read(now)
            self._put_back(LayerView(self._project, copy.entries), LayerView(self._project, now.entries))
        except (SandboxError, OSError) as error:
            return f"they could not all be restored: {error}"
        finally:
            self._last = LayerCopy()
        return ""

    def _put_back(self, then: LayerView, now: LayerView) -> None:
        """Make the merged folder what it was, at every path of which a copy or the present layer knows something."""
        folders: list[Entry] = []
        for path in sorted({*then.touched(), *now.touched()}):
            names, wanted = tuple(path.split("/")), then.at(path)
            old, new, there = then.entries.get(path), now.entries.get(path), self._box.look(names)
            if there is not None and (wanted is None or there.type != wanted.type):
                self._box.take_away(names)
                there = None
            if wanted is None or (there is not None and old is None and new is None):
                continue
            if wanted.is_dir:
                folders.append(wanted)
                self._box.put(wanted._replace(mode=wanted.mode | 0o700))
            elif not wanted.is_file:
                if there is None or there.target != wanted.target:
                    self._box.put(wanted)
            elif there is None or old is None or new is None or (old.bits, old.data) != (new.bits, new.data):
                data = self._project.root.read(names, MOST_COPY_BYTES) if old is None else old.data
                self._box.put(wanted._replace(data=data), in_place=True)
        for folder in reversed(folders):
            self._box.put(folder)

    def _copy_of(self, cell: int) -> LayerCopy:
        """Return the copy of a cell; one with a problem when there is none."""
        return self._copies.get(cell) or LayerCopy(problem=_NO_COPY)

    def _read(self, copy: LayerCopy) -> None:
        size = 0
        still_open: set[int] = set()
        walk = self.look.root.walk(LOOK)
        for entry in walk:
            if entry.is_file:
                size += entry.size
                if size > MOST_COPY_BYTES:
                    raise OSError(f"the changed files are larger than {MOST_COPY_BYTES >> 20} MB")
                entry = entry._replace(data=self._content(entry, still_open))
            elif entry.is_dir:
                entry = entry._replace(opaque=is_opaque(self.look.root, entry.path))
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
        with self.look.root.reading(entry.names) as fd:
            if open_for_writing(fd, tells=self._tells):
                still_open.add(entry.inode)
        return self.look.root.read(entry.names, max_bytes=MOST_COPY_BYTES)


class HereLink(FolderLink):
    """A session's share in a ``HereFolder``. Used only by the call that has the session's turn.

    ``why_copied`` says why the session works on a private copy; empty when it has a layer.
    """

    def __init__(self, folder: HereFolder) -> None:
        super().__init__(folder)
        self.here = folder
        self.why_copied = ""
        self._seen_stamps: dict[str, int] = {}
        self._began_ns = time.time_ns()
        self._layer: SessionLayer | None = None
        #: The looks at what the session changes; set when its worker begins.
        self.look: CopyLook
        #: Versions of the user's files that the session has as copies, and not through its layer.
        self._copied: dict[str, Entry | None] = {}

    def another(self) -> HereLink:
        """See ``FolderLink``."""
        return HereLink(self.here)

    def begin_over(self, layer: SessionLayer | None, box: Rooted) -> list[Note]:
        """Start with a new worker: its layer holds what was kept when it started.

        Without a layer, a private copy of the user's folder is put into its work folder. Returns notes on gaps.
        """
        self._seen, self._layer, self._others = -1, layer, {}
        with self.here.lock:
            if layer is not None:
                self.look, self._seen_stamps, self._copied = layer.look, dict(layer.given), {}
            else:
                self._seen_stamps = self.here.kept.stamps()
                self.look, copied = self.here.fill_copy(box, shared=True)
                self._copied = dict(copied)
        return self.look.not_given[:5]

    def bring_in(
        self, box: Rooted, before: Callable[[], None], states: OlderStates = NO_STATES
    ) -> tuple[list[str], list[Note]]:
        """Let the session see the folder as it is: the user's files, changes of others, and no new secrets.

        ``before`` is called before the first path is written, so that what programs have changed since the last look is
        not taken for ours. ``states`` are those of the session. Returns the paths that were written, and notes on those
        that could not be.
        """
        began_ns = time.time_ns()
        folder, layer = self.here, self._layer
        missing: list[Note] = []
        with folder.lock:
            renewed = layer is not None and layer.renew()
            differing = {*self.waiting(), *self._of_user()}
            secrets = layer.to_hide() if layer is not None else []
            if differing or secrets:
                before()
            # Without renewal a session may have looked at any version of a file since it began.
            self._began_ns = began_ns if renewed or layer is None else layer.began_ns
            if layer is not None:
                layer.hide(secrets)
                layer.let_go()
            if differing:
                self._seen_stamps = folder.kept.stamps()
            self._seen = folder.generation
            for path in sorted(differing):
                try:
                    self.give(path, box)
                except (SandboxError, OSError) as error:
                    missing.append(notes.no_files_brought_in(error))
            self._show_folders_above(differing)
            self._came(differing, states)
            if differing and layer is not None:
                layer.renew()
        return [*differing, *secrets], missing[:5]

    def _show_folders_above(self, paths: Iterable[str]) -> None:
        """Let the user's files show again in folders that the session had made anew and that hold no change now."""
        if self._layer is None:
            return
        kept = self.here.kept.entries
        above = {path[:at] for path in paths for at, sign in enumerate(path) if sign == "/"}
        for folder in sorted(above):
            if self.here.project.has_folder(folder) and not any(path.startswith(f"{folder}/") for path in kept):
                self._layer.show_through(folder)

    def waiting(self) -> set[str]:
        """See ``FolderLink``: also what was applied or dropped."""
        if self.here.generation == self._seen:
            return set()
        now = self.here.kept.stamps()
        return {path for path in {*now, *self._seen_stamps} if now.get(path) != self._seen_stamps.get(path)}

    def _of_user(self) -> list[str]:
        """Return the copies of the user's files of which the user has another version by now."""
        kept = self.here.kept.entries
        if self._layer is None:
            users: dict[str, Entry | None] = {entry.path: entry for entry in self.here.project.copied()}
        else:
            users = {path: self.here.project.look(path) for path in self._copied}
        paths = [path for path in {*users, *self._copied} if path not in kept]
        return [path for path in paths if not _same(users.get(path), self._copied.get(path))]

    def put_in(self, paths: Collection[str]) -> None:
        """See ``FolderLink``."""
        if paths and self._layer is not None:
            self._layer.renew()

    def stamp(self, path: str) -> object:
        """See ``FolderLink``: None for a path that is as the user has it."""
        kept = self.here.kept.entries.get(path)
        return None if kept is None else kept.stamp

    def version(self, path: str) -> Entry | None:
        """See ``FolderLink``."""
        kept = self.here.kept.entries[path]
        return kept.entry if kept.is_gone else with_content(self.here.kept.root, self.here.kept.present(path))

    def give(self, path: str, box: Rooted, *, kept: bool = True) -> None:
        """See ``FolderLink``: without ``kept``, the user's own version."""
        folder = self.here
        self._copied.pop(path, None)
        if not kept or path not in folder.kept.entries:
            if self._layer is not None and folder.project.has_folder(path):
                if not any(known.startswith(f"{path}/") for known in folder.kept.entries):
                    self._layer.show_through(path)
            else:
                self._copied[path] = folder.project.look(path)
        folder.give(path, box, users=not kept)

    def keep_changes(self, found: LayerChanges) -> list[Note]:
        """Keep what the session changed; returns notes on what could not be kept."""
        folder = self.here
        with folder.lock:
            alone = folder.generation == self._seen
            self._will_change(found.now)
            missing = folder.take(self.look.root, found, self._began_ns)
            for path in found.now:
                kept = folder.kept.entries.get(path)
                if kept is None:
                    self._seen_stamps.pop(path, None)
                else:
                    self._seen_stamps[path] = kept.stamp
            if alone:
                self._seen = folder.generation
        return missing


def _same(one: Entry | None, other: Entry | None) -> bool:
    """Whether two versions are the same for a session; a folder changes with what is in it, which is looked at too."""
    if one is None or other is None:
        return one is other
    return one.mode == other.mode if one.is_dir and other.is_dir else one == other

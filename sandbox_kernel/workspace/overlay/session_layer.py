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

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.limits import MIB
from sandbox_kernel.model import Note, notes
from sandbox_kernel.workspace.box_folder import NO_STATES, FolderLink, OlderStates, with_content
from sandbox_kernel.workspace.changes import tells_who_writes
from sandbox_kernel.workspace.folder_copies import FolderCopies, FolderCopy
from sandbox_kernel.workspace.hidden import is_hidden
from sandbox_kernel.workspace.overlay.layer import LOOK, CopyLook, LayerChanges, LayerView, is_opaque, touched
from sandbox_kernel.workspace.overlay.overlay_folder import HereFolder
from sandbox_kernel.workspace.overlay.project import ProjectFolder
from sandbox_kernel.workspace.tree.beneath import SCAN, in_folder, libc
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import DEVICE, Entry

#: How often a running session looks for secrets that were put into a large folder meanwhile, in seconds.
HIDE_AGAIN_S = 2.0
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


class SessionLayer(FolderCopies):
    """The layer of one worker: the looks at it, and its copies for rollback. Belongs to the worker's jail."""

    most_copy_bytes, most_bytes, limits = 64 * MIB, 192 * MIB, LOOK

    def __init__(self, folder: HereFolder, box_fd: int, layer_fd: int, settings_fd: int) -> None:
        super().__init__(Rooted(box_fd))
        self._settings_fd = settings_fd
        #: When the program could first look at the folder.
        self.began_ns = time.time_ns()
        #: The stamps of the changes that were put in when the worker started.
        self.given = folder.kept.stamps()
        self.look = folder.fill_layer(self._box, layer_fd, shared=True)
        self._source = self.look.root
        self._tells = tells_who_writes(layer_fd)
        self._project: ProjectFolder = folder.project
        self._hidden_at = time.monotonic()
        #: The number of the last look at the user's folder after which held names were let go.
        self._looked = 0
        #: The secrets that were found when they were hidden last.
        self._found: tuple[str, ...] | None = None

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

    def _put_back(self, copy: FolderCopy) -> None:
        """Make the merged folder what it was, at every path of which a copy or the present layer knows something."""
        walk = self._source.walk(self.limits)
        present = {entry.path: self._seen(entry) for entry in walk}
        self._refuse_part(walk.unseen)
        then, now = LayerView(self._project, copy.entries), LayerView(self._project, present)
        folders: list[Entry] = []
        for path in sorted(touched(then, now)):
            names, wanted = tuple(path.split("/")), then.at(path)
            there = self._box.look(names)
            if there is not None and (wanted is None or there.type != wanted.type):
                self._box.take_away(names)
                there = None
            if wanted is None or (there is not None and path not in then.entries and path not in present):
                continue
            if wanted.is_file and path not in then.entries:
                wanted = wanted._replace(data=self._project.root.read(names, self.most_copy_bytes))
            self._put(wanted, {}, set())
            folders += [wanted] if wanted.is_dir else []
        for folder in reversed(folders):
            self._finish(folder)

    def _seen(self, entry: Entry) -> Entry:
        return entry._replace(opaque=is_opaque(self.look.root, entry.path)) if entry.is_dir else entry


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

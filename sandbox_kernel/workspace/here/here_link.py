"""Keeps the folder of one session in step with the user's folder and the changes that its sandbox keeps."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Sequence

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.model import FsChange, Note, notes
from sandbox_kernel.workspace.here.here_folder import HereFolder, as_found
from sandbox_kernel.workspace.here.layer_copies import LayerCopies
from sandbox_kernel.workspace.here.layer_look import LayerChanges, is_opaque
from sandbox_kernel.workspace.here.placing import look, place, take_away
from sandbox_kernel.workspace.here.project_folder import Mark
from sandbox_kernel.workspace.here.renewal import forget_names
from sandbox_kernel.workspace.shared_folder import FolderLink
from sandbox_kernel.workspace.tree.beneath import open_folder
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import DEVICE, FILE

#: How often a running session looks for secrets that were put into a large folder meanwhile, in seconds.
HIDE_AGAIN_S = 2.0


class SessionLayer:
    """The layer of one worker: the looks at it, and its copies for rollback. Belongs to the worker's jail."""

    def __init__(self, folder: HereFolder, box_fd: int, layer_fd: int, settings_fd: int) -> None:
        self._box = Rooted(box_fd)
        self._settings_fd = settings_fd
        layer = Rooted(layer_fd)
        #: When the program could first look at the folder.
        self.began_ns = time.time_ns()
        #: The stamps of the changes that were put in when the worker started.
        self.given = {path: kept.stamp for path, kept in folder.kept.entries.items()}
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
        self._copies.keep_only({cell, *others})
        self._copies.take(cell)

    def restore(self, cell: int) -> str:
        """Restore the folder as it was after a cell. Returns why not; empty when it was restored."""
        return self._copies.restore(cell)

    def renew(self) -> bool:
        """Let programs see the user's folder as it is now; returns whether that is possible here."""
        return forget_names(self._settings_fd)

    def to_hide(self) -> list[str]:
        """Return secrets that the user has put into the folder since, and that show."""
        if time.monotonic() - self._hidden_at < HIDE_AGAIN_S and not self._project.hidden_files.is_small:
            return []
        self._hidden_at = time.monotonic()
        found = self._project.hidden_files.find()
        if found is self._found:
            return []
        self._found = found
        self.look.hidden |= set(found)
        # What the program itself has put there is its own, and covers what the user has put there since.
        names = {path: tuple(path.split("/")) for path in found}
        return [path for path in found if look(self.look.layer, names[path]) is None and look(self._box, names[path])]

    def let_go(self) -> None:
        """Let names show the user's present file where the session holds the one before it open.

        Such a name survives ``renew``. It is removed through the merged folder, which has the kernel forget it, and
        then the whiteout that this made is removed from the layer.
        """
        self._looked, files = self._project.hidden_files.relisted(self._looked)
        for path, inode in files.items():
            names = tuple(path.split("/"))
            shown = look(self._box, names)
            if shown is None or shown.type != FILE or shown.inode == inode or look(self.look.layer, names) is not None:
                continue
            take_away(self._box, names)
            made = look(self.look.layer, names)
            if made is not None and made.type == DEVICE:
                self.look.layer.remove(names)
                self.renew()

    def hide(self, paths: Collection[str]) -> None:
        """Hide these secrets from the session."""
        for path in paths:
            take_away(self._box, tuple(path.split("/")))

    def show_through(self, path: str) -> None:
        """Let the user's folder show through one that the program had made and that was applied."""
        names = tuple(path.split("/"))
        if is_opaque(self.look.layer, path) and not any(one.startswith(f"{path}/") for one in self._hidden_now()):
            fd = open_folder(self.look.layer.fileno(), names)
            try:
                os.removexattr(fd, "user.overlay.opaque")
            finally:
                os.close(fd)
            self._found = None

    def _hidden_now(self) -> tuple[str, ...]:
        return self._project.hidden_files.find()


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
        #: Versions of the user's files that the session has as copies, and not through its layer.
        self._copied: dict[str, Mark | None] = {}

    def another(self) -> HereLink:
        """See ``FolderLink``."""
        return HereLink(self.here)

    def begin_over(self, layer: SessionLayer | None) -> None:
        """Start with a new worker: its layer holds what was kept when it started; a private copy holds nothing."""
        self._seen = -1
        self._seen_stamps = dict(layer.given) if layer is not None else {}
        self._layer = layer
        self._copied = {}

    def bring_in(self, box: Rooted, before: Callable[[], None]) -> tuple[list[str], list[Note]]:
        """Let the session see the folder as it is: the user's files, changes of others, and no new secrets.

        ``before`` is called before the first path is written, so that what programs have changed since the last look is
        not taken for ours. Returns the paths that were written, and notes on those that could not be.
        """
        began_ns = time.time_ns()
        folder, layer = self.here, self._layer
        missing: list[Note] = []
        with folder.lock:
            renewed = layer is not None and layer.renew()
            differing = {*self._of_others(), *self._of_user()}
            secrets = layer.to_hide() if layer is not None else []
            if differing or secrets:
                before()
            # Without renewal a session may have looked at any version of a file since it began.
            self._began_ns = began_ns if renewed or layer is None else layer.began_ns
            if layer is not None:
                layer.hide(secrets)
                layer.let_go()
            now = {path: kept.stamp for path, kept in folder.kept.entries.items()}
            if differing:
                self._seen_stamps = now
            self._seen = folder.generation
            for path in sorted(differing):
                try:
                    self._give(path, box)
                except (SandboxError, OSError) as error:
                    missing.append(notes.no_files_brought_in(error))
            if differing and layer is not None:
                layer.renew()
        return [*differing, *secrets], missing[:5]

    def _of_others(self) -> list[str]:
        """Return the paths at which something was changed, applied or dropped by others."""
        if self.here.generation == self._seen:
            return []
        now = {path: kept.stamp for path, kept in self.here.kept.entries.items()}
        return [path for path in {*now, *self._seen_stamps} if now.get(path) != self._seen_stamps.get(path)]

    def _of_user(self) -> list[str]:
        """Return the copies of the user's files of which the user has another version by now."""
        kept = self.here.kept.entries
        if self._layer is None:
            entries = self.here.project.copied()
            marks: dict[str, Mark | None] = {entry.path: Mark.of_entry(entry) for entry in entries}
        else:
            marks = {path: self.here.project.mark(path) for path in self._copied}
        paths = [path for path in {*marks, *self._copied} if path not in kept]
        return [path for path in paths if not _same(marks.get(path), self._copied.get(path))]

    def _give(self, path: str, box: Rooted) -> None:
        folder = self.here
        self._copied.pop(path, None)
        if path not in folder.kept.entries:
            mark = folder.project.mark(path)
            below = f"{path}/"
            if self._layer is not None and mark is not None and mark.is_folder:
                if not any(known.startswith(below) for known in folder.kept.entries):
                    self._layer.show_through(path)
            else:
                self._copied[path] = mark
        folder.give(path, box)

    def copy_in(self, box: Rooted) -> None:
        """Put a private copy of the user's folder into a work folder that has no layer."""
        with self.here.lock:
            for entry in self.here.project.copied():
                place(self.here.project.root, entry, box)
                self._copied[entry.path] = Mark.of_entry(entry)

    def keep_changes(self, source: Rooted, found: LayerChanges) -> list[Note]:
        """Keep what the session changed; returns notes on what could not be kept."""
        folder = self.here
        with folder.lock:
            alone = folder.generation == self._seen
            missing = folder.take(source, found, self._began_ns)
            for path in found.now:
                kept = folder.kept.entries.get(path)
                if kept is None:
                    self._seen_stamps.pop(path, None)
                else:
                    self._seen_stamps[path] = kept.stamp
            if alone:
                self._seen = folder.generation
        return missing

    def pull(self, box: Rooted, changes: Sequence[FsChange]) -> list[Note]:
        """See ``FolderLink``: for a session on a private copy."""
        return self.keep_changes(box, as_found(changes, box, self.here.project))

    def take_back(self, box: Rooted, changes: Sequence[FsChange]) -> bool:
        """See ``FolderLink``."""
        self.pull(box, changes)
        return False


def _same(one: Mark | None, other: Mark | None) -> bool:
    """Whether two versions are the same for a session; a folder changes with what is in it, which is looked at too."""
    if one is None or other is None:
        return one is other
    if one.is_folder and other.is_folder:
        return one.mode == other.mode
    return one == other

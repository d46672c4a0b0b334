"""Keeps the folder of one session in step with the changes that its sandbox keeps (``HereFolder``)."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.model import FsChange, Note, notes
from sandbox_kernel.workspace.here.here_folder import HereFolder, as_found
from sandbox_kernel.workspace.here.layer_copies import LayerCopies
from sandbox_kernel.workspace.here.layer_look import LayerChanges
from sandbox_kernel.workspace.here.placing import place, take_away
from sandbox_kernel.workspace.shared_folder import FolderLink
from sandbox_kernel.workspace.tree.rooted import Rooted

#: How often a running session looks for secrets that were put into the folder meanwhile, in seconds.
HIDE_AGAIN_S = 2.0


class SessionLayer:
    """The layer of one worker: the looks at it, and its copies for rollback. Belongs to the worker's jail."""

    def __init__(self, folder: HereFolder, box_fd: int, layer_fd: int) -> None:
        self._box = Rooted(box_fd)
        layer = Rooted(layer_fd)
        #: The stamps of the changes that were put in when the worker started.
        self.given = {path: kept.stamp for path, kept in folder.kept.entries.items()}
        self.look = folder.fill_layer(self._box, layer, shared=True)
        self._copies = LayerCopies(self._box, layer, folder.project)
        self._project = folder.project
        self._hidden_at = time.monotonic()

    def take(self, cell: int, others: Collection[int]) -> None:
        """Copy the layer for the checkpoint of a cell; ``others`` are the cells whose copies are kept."""
        self._copies.keep_only({cell, *others})
        self._copies.take(cell)

    def restore(self, cell: int) -> str:
        """Restore the folder as it was after a cell. Returns why not; empty when it was restored."""
        return self._copies.restore(cell)

    def hide_again(self) -> bool:
        """Hide secrets that the user has put into the folder since; returns whether there were any."""
        if time.monotonic() - self._hidden_at < HIDE_AGAIN_S:
            return False
        self._hidden_at = time.monotonic()
        new = set(self._project.hidden_files.find()) - self.look.hidden
        for path in new:
            take_away(self._box, tuple(path.split("/")))
        self.look.hidden |= new
        return bool(new)


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

    def another(self) -> HereLink:
        """See ``FolderLink``."""
        return HereLink(self.here)

    def begin_over(self, layer: SessionLayer | None) -> None:
        """Start with a new worker: its layer holds what was kept when it started; a private copy holds nothing."""
        self._seen = -1
        self._seen_stamps = dict(layer.given) if layer is not None else {}

    def push(self, box: Rooted) -> tuple[bool, list[Note]]:
        """See ``FolderLink``: brings in changes of others, and the user's version of what was applied or dropped."""
        self._began_ns = time.time_ns()
        folder = self.here
        with folder.lock:
            if folder.generation == self._seen:
                return False, []
            self._seen = folder.generation
            now = {path: kept.stamp for path, kept in folder.kept.entries.items()}
            differing = [path for path in {*now, *self._seen_stamps} if now.get(path) != self._seen_stamps.get(path)]
            self._seen_stamps = now
            missing: list[Note] = []
            for path in sorted(differing):
                try:
                    folder.give(path, box)
                except (SandboxError, OSError) as error:
                    missing.append(notes.no_files_brought_in(error))
        return bool(differing), missing[:5]

    def copy_in(self, box: Rooted) -> None:
        """Put a private copy of the user's folder into a work folder that has no layer."""
        with self.here.lock:
            for entry in self.here.project.copied():
                place(self.here.project.root, entry, box)

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

"""The layer of one session's worker: what it shows of the user's folder, the looks at it, and its copies."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from typing import TYPE_CHECKING

from sandbox_kernel.workspace.here.here_folder import HereFolder
from sandbox_kernel.workspace.here.hidden import is_hidden
from sandbox_kernel.workspace.here.layer_copies import LayerCopies
from sandbox_kernel.workspace.here.layer_look import is_opaque
from sandbox_kernel.workspace.here.placing import look, take_away
from sandbox_kernel.workspace.here.renewal import forget_names
from sandbox_kernel.workspace.tree.beneath import open_folder
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import DEVICE, FILE

if TYPE_CHECKING:
    from sandbox_kernel.workspace.here.showing.states_diff import FileChange

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

    def compare(self, before: int, after: int) -> tuple[list[FileChange], str]:
        """Return how the folder differs between the states after two cells, and what could not be found out."""
        from sandbox_kernel.workspace.here.showing.states_diff import compare_layers  # brings difflib

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
        """Let the user's folder show through one that the program had made and that was applied; never a secret."""
        names = tuple(path.split("/"))
        secret = is_hidden(path) or any(one.startswith(f"{path}/") for one in self._hidden_now())
        if is_opaque(self.look.layer, path) and not secret:
            fd = open_folder(self.look.layer.fileno(), names)
            try:
                os.removexattr(fd, "user.overlay.opaque")
            finally:
                os.close(fd)
            self._found = None

    def _hidden_now(self) -> tuple[str, ...]:
        return self._project.hidden_files.find()

"""Keeps the folder of one session in step with the user's folder and the changes that its sandbox keeps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.model import FsChange, Note, notes
from sandbox_kernel.workspace.overlay.layer import LayerChanges, as_found, copy_folder
from sandbox_kernel.workspace.overlay.overlay_folder import HereFolder
from sandbox_kernel.workspace.overlay.session_layer import SessionLayer
from sandbox_kernel.workspace.shared_folder import NO_STATES, FolderLink, OlderStates, PutAgain, with_content
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import Entry


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
        self._copied: dict[str, Entry | None] = {}

    def another(self) -> HereLink:
        """See ``FolderLink``."""
        return HereLink(self.here)

    def begin_over(self, layer: SessionLayer | None) -> None:
        """Start with a new worker: its layer holds what was kept when it started; a private copy holds nothing."""
        self._seen = -1
        self._seen_stamps = dict(layer.given) if layer is not None else {}
        self._layer = layer
        self._copied = {}
        self._others = {}

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

    def put_again(self, box: Rooted, node: int, written: Mapping[str, int] | None = None) -> PutAgain:
        """See ``FolderLink``."""
        with self.here.lock:
            put = super().put_again(box, node, written)
            if not put.is_empty and self._layer is not None:
                self._layer.renew()
        return put

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

    def copy_in(self, box: Rooted) -> list[Note]:
        """Put a private copy of the user's folder into a work folder that has no layer; returns notes on gaps."""
        with self.here.lock:
            self._copied, missing = copy_folder(self.here.project, box)
        return missing[:5]

    def keep_changes(self, source: Rooted, found: LayerChanges) -> list[Note]:
        """Keep what the session changed; returns notes on what could not be kept."""
        folder = self.here
        with folder.lock:
            alone = folder.generation == self._seen
            self._will_change(found.now)
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
        return self.keep_changes(box, self.found(box, changes))

    def found(self, box: Rooted, changes: Sequence[FsChange]) -> LayerChanges:
        """Return changes of a private copy in the form of a look at a layer."""
        return as_found(changes, box, self.here.project)


def _same(one: Entry | None, other: Entry | None) -> bool:
    """Whether two versions are the same for a session; a folder changes with what is in it, which is looked at too."""
    if one is None or other is None:
        return one is other
    return one.mode == other.mode if one.is_dir and other.is_dir else one == other

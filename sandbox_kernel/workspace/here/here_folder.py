"""``HereFolder``: the files of a sandbox that works on a folder of the user, copy-on-write.

Takes the place of ``BoxFolder``. Every run gets a layer over the user's folder, into which the host puts what earlier
runs changed; what the run changes is kept here (``kept_changes.py``). Where no layer can be mounted, a run gets a
private copy of the folder instead. The user's folder itself is written by ``apply`` alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import NoReturn

from sandbox_kernel.errors import InvalidRequest, NotAsShown, SandboxError
from sandbox_kernel.model import FsChange, Note, notes
from sandbox_kernel.workspace.box_folder import BoxFolder
from sandbox_kernel.workspace.changes import displayed
from sandbox_kernel.workspace.here.applying.apply import apply_changes
from sandbox_kernel.workspace.here.applying.recovery import recover_all, strange_stages
from sandbox_kernel.workspace.here.applying.selection import select, select_to_apply
from sandbox_kernel.workspace.here.change_log import ChangeLog
from sandbox_kernel.workspace.here.hidden import is_hidden
from sandbox_kernel.workspace.here.kept_changes import KeptChanges
from sandbox_kernel.workspace.here.layer_look import LayerChanges, LayerLook, Now
from sandbox_kernel.workspace.here.placing import place, take_away
from sandbox_kernel.workspace.here.private_copy import CopyLook, copy_folder
from sandbox_kernel.workspace.here.project_folder import ProjectFolder
from sandbox_kernel.workspace.here.seen_files import SeenFiles
from sandbox_kernel.workspace.here.showing.patch import WholePatch, make_patch, make_whole_patch
from sandbox_kernel.workspace.here.tracked_secrets import git_notes
from sandbox_kernel.workspace.outcome import MAX_CHANGES, Left, incomplete
from sandbox_kernel.workspace.tree.paths import display_name
from sandbox_kernel.workspace.tree.rooted import Rooted, encoded
from sandbox_kernel.workspace.tree.walk import DirEntry


class HereFolder(BoxFolder):
    """See the module; thread-safe like ``BoxFolder``.

    Args:
        path: The user's folder.
        log: Where the changes stay when the sandbox ends; None for a place that is removed with it.

    """

    def __init__(self, path: str | os.PathLike[str], log: ChangeLog | None = None) -> None:
        super().__init__(None if log is None else log.files)
        self.project = ProjectFolder(path)
        recover_all(self.project.root)
        #: Folders in the user's that look like stages of ours and are not.
        self.strange = strange_stages(self.project.root)
        self._log = log
        self._kept: KeptChanges | None = None if log is None else KeptChanges(self.opened(), self.project, log)
        #: How many changes of an earlier kernel are there.
        self.found = 0 if self._kept is None else len(self._kept.entries)

    @property
    def path(self) -> str:
        """The real path of the user's folder."""
        return self.project.path

    def identity(self) -> tuple[int, int]:
        """Return device and inode of the folder. Raises ``InvalidRequest`` when another one is at its path by now."""
        return self.project.identity()

    @property
    def kept(self) -> KeptChanges:
        """The changes so far."""
        with self.lock:
            if self._kept is None:
                self._kept = KeptChanges(self.opened(), self.project)
            return self._kept

    def keep_in(self, place: str) -> None:
        """Copy the changes to a private folder of the host, where the next kernel finds them."""
        with self.lock, closing(ChangeLog(place)) as log:
            self.kept.copy_to(log)

    def close(self) -> None:
        """See ``BoxFolder``."""
        super().close()
        if self._log is not None:
            self._log.close()

    # What the user sees.

    def diff(self) -> tuple[FsChange, ...]:
        """See ``BoxFolder``: what differs from the user's folder."""
        with self.lock:
            return self.kept.listed()

    def patch(self, paths: Iterable[str] | None = None) -> str:
        """Return the changes as a unified diff; a line for each file that is not text."""
        with self.lock:
            return make_patch(self.project.root, self.kept.root, select(self.kept.entries, paths))

    def whole_patch(self, paths: Iterable[str] | None = None) -> WholePatch:
        """Return the changes as a patch that also has the files that are not text."""
        with self.lock:
            return make_whole_patch(self.project.root, self.kept.root, select(self.kept.entries, paths))

    def digest(self) -> str:
        """Return what tells this state of the changes from every other. Take it before what is shown to the user."""
        with self.lock:
            return self.kept.digest()

    def apply(
        self, paths: Iterable[str] | None = None, *, by_user: bool = True, shown: str | None = None
    ) -> tuple[FsChange, ...]:
        """Write changes to the user's folder, all or nothing; returns what was written. Raises ``Conflict``.

        Without ``by_user``, what needs the user's naming is left out although it is named. Raises ``NotAsShown`` when
        the digest is no longer the one of what was ``shown``.
        """
        with self.lock:
            if shown is not None and shown != self.kept.digest():
                raise NotAsShown
            recover_all(self.project.root)
            chosen = select_to_apply(self.kept.entries, paths, self.project, by_user=by_user)
            told = tuple(change for change in self.kept.listed() if change.path in chosen.entries)
            apply_changes(self.project.root, self.kept.root, chosen)
            for path in sorted(chosen.entries, reverse=True):
                self.kept.forget(path)
            self.generation += 1
            return told

    def left_out(self) -> tuple[str, ...]:
        """Return the changes that ``apply`` writes only when they are named."""
        with self.lock:
            return select_to_apply(self.kept.entries, None, self.project).left_out

    def discard(self, paths: Iterable[str] | None = None) -> tuple[FsChange, ...]:
        """Drop changes; returns what was dropped. Sessions see the user's own version again."""
        with self.lock:
            chosen = select(self.kept.entries, paths)
            told = tuple(change for change in self.kept.listed() if change.path in chosen)
            for path in sorted(chosen, reverse=True):
                self.kept.forget(path)
            self.generation += 1
            return told

    # Files, as methods of ``Sandbox`` read and write them.

    def read(self, path: str) -> bytes:
        """See ``BoxFolder``: the changed version of a file, else the user's."""
        return self._seen.where(path).read(path)

    def read_part(self, path: str, offset: int, most: int) -> tuple[bytes, int]:
        """See ``BoxFolder``."""
        return self._seen.where(path).read_part(path, offset, most)

    def write(self, path: str, data: bytes | str) -> None:
        """See ``BoxFolder``: a change like one of a program; a file that is there keeps its mode."""
        with self.lock:
            self._seen.write(path, encoded(path, data))
            self.generation += 1

    def remove(self, path: str) -> None:
        """See ``BoxFolder``: a change like one of a program."""
        with self.lock:
            self._seen.remove(path)
            self.generation += 1

    def changing(self) -> NoReturn:
        """See ``BoxFolder``. Raises ``InvalidRequest``: what fills an empty work folder does not fit the user's."""
        raise InvalidRequest(
            f"this sandbox works on {self.path!r}; a manifest or a tar file fills a new one: Sandbox()"
        )

    def list_dir(self, path: str = ".") -> tuple[DirEntry, ...]:
        """See ``BoxFolder``: the user's folder with the changes in it."""
        return self._seen.list_dir(path)

    @property
    def _seen(self) -> SeenFiles:
        return SeenFiles(self.lock, self.kept, self.project)

    # One run.

    def fill(self, box_fd: int, layer_fd: int, files: Mapping[str, bytes | str]) -> LayerLook:
        """Prepare the folder of a jail for one run, before its program starts; returns the look at its layer.

        ``files`` are for this run alone.
        """
        with Rooted(box_fd) as box:
            look = self.fill_layer(box, Rooted(layer_fd), shared=False)
            if files:
                for path, data in files.items():
                    box.write(path, encoded(path, data))
                look.settle()
            return look

    def fill_copy(self, box_fd: int, files: Mapping[str, bytes | str], room: int) -> CopyLook:
        """Prepare the folder of a jail that has no layer: put a private copy of the user's folder into it.

        Raises ``InvalidRequest`` when it does not fit into ``room`` bytes.
        """
        box = Rooted(box_fd)
        try:
            look = CopyLook(box, self.project)
            with self.lock:
                look.not_given += copy_folder(self.project, box, room)[1]
                self._give_kept(box, look.not_given)
            for path, data in files.items():
                box.write(path, encoded(path, data))
            look.settle()
        except BaseException:
            box.close()
            raise
        return look

    def fill_layer(self, box: Rooted, layer: Rooted, *, shared: bool) -> LayerLook:
        """Hide secrets and put in what earlier runs changed. ``shared``: programs run on between looks."""
        look = LayerLook(layer, self.project, shared=shared)
        hidden = self.project.hidden_files.find()
        for path in hidden:
            take_away(box, tuple(path.split("/")))
        look.hidden = frozenset(hidden)
        self._give_kept(box, look.not_given)
        look.settle()
        return look

    def _give_kept(self, box: Rooted, told: list[Note]) -> None:
        """Put in what earlier runs changed; adds notes on what could not be put in."""
        with self.lock:
            for path in sorted(self.kept.entries if self._kept is not None else ()):
                try:
                    self.give(path, box)
                except (SandboxError, OSError) as error:
                    # It stays kept. A smaller disk limit than that of the run that made it must not end all later ones.
                    told.append(notes.change_not_given(display_name(path), error))
        told += [notes.strange_stage(display_name(name)) for name in self.strange]
        self.strange = ()

    def give(self, path: str, box: Rooted, *, users: bool = False) -> None:
        """Make a path of a jail's folder what it is here: the change, or the user's version where there is none.

        With ``users``, the user's version in any case.
        """
        names = tuple(path.split("/"))
        kept = None if users else self.kept.entries.get(path)
        if kept is None:
            # A hidden file of the user is never put in, whatever took its place before.
            if is_hidden(path) or self.project.mark(path) is None:
                take_away(box, names)
            else:
                place(self.project.root, self.project.root.stat(names), box)
        elif kept.is_gone:
            take_away(box, names)
        else:
            place(self.kept.root, self.kept.root.stat(names)._replace(mode=kept.mode), box)

    def keep_run(self, look: LayerLook | CopyLook, began_ns: int, *, kept: bool) -> Left:
        """Tell what a finished run changed, and keep it unless the run was stopped (``kept`` is False)."""
        found = look.changes()
        told = displayed(found.changes[:MAX_CHANGES])
        more: list[Note] = [*look.not_given[:5], *incomplete(found.truncated, len(found.changes))]
        more += git_notes(self.project, found.changes)
        if told and not kept:
            more.append(notes.stopped_run_keeps_no_files())
        else:
            more += self.take(look.layer, found, began_ns)
        look.layer.close()
        return Left(told, tuple(more), look.here)

    def take(self, source: Rooted, found: LayerChanges, began_ns: int) -> list[Note]:
        """Keep changes of a jail; returns notes on what could not be kept."""
        missing: list[Note] = []
        if not found.now:
            return missing
        with self.lock:
            kept = self.kept
            for path in sorted((path for path, now in found.now.items() if now is Now.GONE), reverse=True):
                kept.remove(path, began_ns)
            for path in sorted(path for path, now in found.now.items() if now is Now.SAME):
                kept.forget(path)
            for path in sorted(path for path, now in found.now.items() if now is Now.CHANGED):
                skipped = kept.put(source, path, began_ns)
                if skipped is not None:
                    missing.append(notes.file_not_kept(display_name(path), skipped.type, skipped.reason))
            self.generation += 1
        return missing[:20]

"""``HereFolder``: the files of a sandbox that works on a folder of the user, copy-on-write.

Takes the place of ``BoxFolder``. Every run gets a layer over the user's folder, into which the host puts what earlier
runs changed; what the run changes is kept here (``kept_changes.py``). Where no layer can be mounted, a run gets a
private copy of the folder instead. The user's folder itself is written by ``apply`` alone.

What is hidden from programs is hidden from every method here too, with everything below it: they answer programs and
agents.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from contextlib import closing

from sandbox_kernel.errors import InvalidRequest, NotAsShown, SandboxError
from sandbox_kernel.model import FsChange, Note, notes
from sandbox_kernel.workspace.box_folder import BoxFolder
from sandbox_kernel.workspace.changes import Left, Now
from sandbox_kernel.workspace.hidden import is_hidden
from sandbox_kernel.workspace.overlay.apply import apply_changes, recover_all, strange_stages
from sandbox_kernel.workspace.overlay.kept_changes import MOST_KEPT_BYTES, MOST_KEPT_FILES, ChangeLog, Room
from sandbox_kernel.workspace.overlay.layer import CopyTracker, LayerTracker, copy_folder
from sandbox_kernel.workspace.overlay.patch import WholePatch, make_patch
from sandbox_kernel.workspace.overlay.project import ProjectFolder
from sandbox_kernel.workspace.overlay.selection import Obeyed, select, select_to_apply
from sandbox_kernel.workspace.tree.paths import display_name, names_beneath
from sandbox_kernel.workspace.tree.rooted import Rooted, encoded
from sandbox_kernel.workspace.tree.walk import Entry

#: Most changes that notes name.
MOST_NOTED = 20


class HereFolder(BoxFolder):
    """See the module; thread-safe like ``BoxFolder``. Changes end with the sandbox unless there is a ``log``."""

    def __init__(self, path: str | os.PathLike[str], log: ChangeLog | None = None) -> None:
        super().__init__(None if log is None else log.files, log)
        self.project: ProjectFolder = ProjectFolder(path)
        recover_all(self.project.root)
        #: Folders in the user's that look like stages of ours and are not.
        self.strange = strange_stages(self.project.root)
        #: How many changes of an earlier kernel are there.
        self.found = 0 if log is None else len(self.kept.entries)

    @property
    def path(self) -> str:
        """The real path of the user's folder."""
        return self.project.path

    def keep_in(self, place: str) -> None:
        """Copy the changes to a private folder of the host, where the next kernel finds them."""
        with self.lock, closing(ChangeLog(place)) as log, Rooted.at(log.files) as files:
            for _, kept in sorted(self.kept.entries.items()):
                if not kept.is_gone:
                    files.put(self.kept.root.stat(kept.entry.names), self.kept.root)
            log.rewrite({**log.read(), **self.kept.entries})

    def close(self) -> None:
        """See ``BoxFolder``."""
        super().close()
        if self._log is not None:
            self._log.close()

    # What the user sees.

    def patch(self, paths: Iterable[str] | None = None) -> str:
        """Return the changes as a unified diff; a line for each file that is not text."""
        with self.lock:
            return make_patch(self.project.root, self.kept.root, select(self.kept.entries, paths)).text

    def whole_patch(self, paths: Iterable[str] | None = None) -> WholePatch:
        """Return the changes as a patch that also has the files that are not text."""
        with self.lock:
            return make_patch(self.project.root, self.kept.root, select(self.kept.entries, paths), binary=True)

    def digest(self) -> str:
        """See ``BoxFiles``: a text that is the same as long as no change is added, dropped or made again."""
        with self.lock:
            stamps = repr(sorted(self.kept.stamps().items()))
        return hashlib.sha256(stamps.encode(errors="surrogatepass")).hexdigest()[:32]

    def apply(
        self, paths: Iterable[str] | None = None, *, by_user: bool = True, shown: str | None = None
    ) -> tuple[FsChange, ...]:
        """See ``BoxFiles``."""
        with self.lock:
            if shown is not None and shown != self.digest():
                raise NotAsShown
            recover_all(self.project.root)
            chosen = select_to_apply(self.kept.entries, paths, self.project, by_user=by_user)
            told = tuple(change for change in self.kept.listed() if change.path in chosen)
            apply_changes(self.project.root, self.kept.root, chosen)
            self.forget(chosen)
            return told

    def left_out(self) -> tuple[str, ...]:
        """Return the changes that ``apply`` writes only when they are named."""
        with self.lock:
            entries = self.kept.entries
            return tuple(sorted(entries.keys() - select_to_apply(entries, None, self.project).keys()))

    def why_left_out(self) -> str:
        """Return why sources are among what ``left_out`` lists, as a sentence; empty where none is."""
        with self.lock:
            obeyed = Obeyed(self.kept.entries, self.project)
            return obeyed.why if any(map(obeyed.may_run, self.kept.entries)) else ""

    def discard(self, paths: Iterable[str] | None = None) -> tuple[FsChange, ...]:
        """Drop changes; returns what was dropped. Sessions see the user's own version again."""
        with self.lock:
            chosen = select(self.kept.entries, paths)
            told = tuple(change for change in self.kept.listed() if change.path in chosen)
            self.forget(chosen)
            return told

    # Files, as methods of ``Sandbox`` read and write them.

    def holding(self, path: str) -> Rooted:
        """See ``BoxFolder``: the changed version of a file, else the user's. Raises ``InvalidRequest``."""
        name = "/".join(names_beneath(path))
        with self.lock:
            if name in self.kept.entries:
                return self.kept.root
            if is_hidden(name):
                raise InvalidRequest(
                    f"{display_name(name)!r} is hidden from programs, as other names under which secrets are kept: "
                    "%sandbox policy and the report list them; read a copy of another name"
                )
            return self.project.root

    def list_dir(self, path: str = ".") -> tuple[Entry, ...]:
        """See ``BoxFolder``: the user's folder with the changes in it."""
        folder = "/".join(names_beneath(path, folder=True))
        with self.lock:
            kept = self.kept.entries
            own = {name: each.entry for name, each in kept.items() if name and name.rpartition("/")[0] == folder}
            found = {name: entry for name, entry in own.items() if not entry.is_gone}
            if folder and is_hidden(folder) and folder not in kept:
                raise InvalidRequest(f"there is no folder {display_name(path)!r}")
            try:
                users = self.project.root.list_dir(path)
            except SandboxError:
                if not found:
                    raise
                users = ()
            found |= {entry.path: entry for entry in users if entry.path not in own and not is_hidden(entry.path)}
            return tuple(sorted(found.values()))

    # One run.

    def fill(self, box_fd: int, layer_fd: int, files: Mapping[str, bytes | str], room: int) -> CopyTracker:
        """Prepare the folder of a jail for one run, before its program starts; returns its tracker.

        Without a layer (-1) a private copy of the user's folder is put into it; raises ``InvalidRequest`` when that
        does not fit into ``room`` bytes. ``files`` are for this run alone.
        """
        with Rooted(box_fd) as box:
            tracker = self.fill_layer(box, layer_fd, shared=False) if layer_fd >= 0 else self.fill_copy(box, room)[0]
            if files:
                for path, data in files.items():
                    box.write(path, encoded(path, data))
                tracker.settle()
            return tracker

    def fill_copy(
        self, box: Rooted, room: int | None = None, *, shared: bool = False
    ) -> tuple[CopyTracker, dict[str, Entry]]:
        """Put a private copy of the user's folder into a work folder; returns its tracker, and what was copied."""
        with self.lock:
            tracker = CopyTracker(Rooted(box.fileno()), self.project, shared=shared)
            entries, tracker.not_given = copy_folder(self.project, box, room)
            self._give_kept(box, tracker.not_given)
            tracker.settle()
        return tracker, entries

    def fill_layer(self, box: Rooted, layer_fd: int, *, shared: bool) -> LayerTracker:
        """Hide secrets and put in what earlier runs changed. ``shared``: programs run on between looks."""
        tracker = LayerTracker(Rooted(layer_fd), self.project, shared=shared)
        for path in self.project.hidden_files.find():
            box.take_away(tuple(path.split("/")))
        self._give_kept(box, tracker.not_given)
        tracker.settle()
        return tracker

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
        """Make a path of a jail's folder what it is here; with ``users``, or without a change, the user's version."""
        kept = None if users else self.kept.entries.get(path)
        if kept is not None and not kept.is_gone:
            box.put(self.kept.present(path), self.kept.root)
            return
        # A hidden file of the user is never put in, whatever took its place before.
        there = self.project.entry_at(path) if kept is None and not is_hidden(path) else None
        if there is None:
            box.take_away(tuple(path.split("/")))
        else:
            box.put(there, self.project.root)

    def keep_run(self, tracker: CopyTracker, began_ns: int, *, kept: bool) -> Left:
        """Tell what a finished run changed, and keep it unless the run was stopped (``kept`` is False)."""
        found = tracker.changes()
        left = Left.of(
            found.changes, found.truncated, lambda: self.take_noting(tracker.root, found.now, began_ns), kept=kept
        )
        tracker.root.close()
        more = (*tracker.not_given[:5], *left.notes, *self.project.git_notes(found.changes))
        return left._replace(notes=more, here=tracker.here)

    def take_noting(self, source: Rooted, now: Now, began_ns: int) -> list[Note]:
        """Keep changes of a jail; returns notes on what could not be kept."""
        left = self.take(source, now, Room(MOST_KEPT_BYTES, MOST_KEPT_FILES), began_ns)
        return [notes.file_not_kept(display_name(one.path), one.type, one.reason) for one in left[:MOST_NOTED]]

"""The host's view of a session's files: finds what a cell changed, and exchanges files with the box's shared folder.

The session's processes may change the folder at the same time, so every scan is bounded and never leaves the folder's
descriptor. Used only by the thread that has the session's turn.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from sandbox_kernel.errors import InvalidRequest, SandboxError
from sandbox_kernel.model import FsChange, Note, notes
from sandbox_kernel.session.worker.worker import JailedWorker
from sandbox_kernel.workspace.box_folder import FolderLink, LargeFiles, OlderStates
from sandbox_kernel.workspace.changes import MAX_CHANGES, Snapshot, compare, displayed, incomplete, snapshot
from sandbox_kernel.workspace.overlay.session_layer import HereLink
from sandbox_kernel.workspace.transfer import FolderState, take_folder
from sandbox_kernel.workspace.tree.paths import Names
from sandbox_kernel.workspace.tree.rooted import Rooted, encoded
from sandbox_kernel.workspace.tree.walk import NO_TIME, DirEntry, WalkLimits

#: Bounds of one scan; a scan delays the result of a cell.
_LIMITS = WalkLimits(entries=5000, seconds=0.5)


class WorkFiles:
    """Remembers the last scan of the present worker's work folder and compares the next one with it."""

    def __init__(self, share: FolderLink | None) -> None:
        self._share = share
        self._look = Snapshot()
        self._told = False
        self._worker: weakref.ref[JailedWorker] | None = None

    def keep_large(self, place: str) -> None:
        """Keep files that are too large to be shared at a place of the host, and put those that are there in again."""
        if self._share is not None:
            self._share.large = LargeFiles(place)

    def bring(self, worker: JailedWorker) -> list[Note]:
        """Copy new files of the shared folder into the work folder, before a cell. Returns notes on failures."""
        found: list[Note] = []
        if self._is_new(worker):
            if self._share is not None:
                self._share.begin()
            # A loaded session starts with files.
            found += self.after(worker)[1]
        if self._share is not None:
            with Rooted(worker.jail.box_fd) as box:
                try:
                    changed, more = self._share.push(box, older_states(worker))
                except (OSError, SandboxError) as error:
                    return [*found, notes.no_files_brought_in(error)]
                found += more
                if changed:
                    self._settle(worker, box)
        return found

    def before_loading(self, worker: JailedWorker) -> None:
        """Prepare the work folder for the files of a saved session, which are put into it next."""

    def after(self, worker: JailedWorker) -> tuple[tuple[FsChange, ...], list[Note]]:
        """Return the changes since the last scan, and notes on them; copies the changes to the shared folder."""
        with Rooted(worker.jail.box_fd) as box:
            changes = self._compare(box)
            try:
                found = self._share.pull(box, changes) if self._share is not None else []
            except (OSError, SandboxError) as error:
                # The cell has run: an error in the host's folder must not lose its result.
                found = [notes.no_files_shared(error)]
        # A folder that is too large is told once, and again in cells that changed it.
        truncated = self._look.truncated and (bool(changes) or not self._told)
        self._told = self._look.truncated
        found += incomplete(truncated, len(changes))
        return displayed(changes[:MAX_CHANGES]), found

    def rolled_back(self, worker: JailedWorker) -> None:
        """Scan the folder again after a rollback: the content is that of before the cell, but inodes may differ."""
        with Rooted(worker.jail.box_fd) as box:
            self._look = snapshot(box, _LIMITS, shared=True)

    def undone(self, worker: JailedWorker, written: Mapping[str, int] | None = None) -> None:
        """Undo the changes in the shared folder too, after an undo has restored the work folder.

        ``written``: cells ran again instead, and wrote these paths; what others changed since then is put over them.
        """
        with Rooted(worker.jail.box_fd) as box:
            if self._share is None:
                self._compare(box)
                return
            share = self._share

            def keep(is_others: Callable[[str], bool]) -> None:
                share.pull(box, list(_own(self._compare(box), is_others)))

            if share.undo(box, worker.tree.present, written, keep):
                self._settle(worker, box)

    def read(self, worker: JailedWorker, path: str) -> bytes:
        """Return the content of a file."""
        self.bring(worker)
        with Rooted(worker.jail.box_fd) as box:
            return box.read(path)

    def write(self, worker: JailedWorker, path: str, data: bytes | str) -> None:
        """Create or replace a file. It belongs to the present state, so a rollback of the next cell keeps it."""
        self.bring(worker)
        with Rooted(worker.jail.box_fd) as box:
            box.write(path, encoded(path, data))
            self._keep_own(worker, box)

    def clear(self, worker: JailedWorker) -> None:
        """Remove all files, also those that are too large to be shared; undo brings them back."""
        with Rooted(worker.jail.box_fd) as box:
            box.clear()
            self._keep_own(worker, box)

    def _keep_own(self, worker: JailedWorker, box: Rooted) -> None:
        changes = self._compare(box)
        if self._share is not None:
            self._share.pull(box, changes)
        worker.keep_files()

    def list_dir(self, worker: JailedWorker, path: str) -> tuple[DirEntry, ...]:
        """Return the entries of a folder, sorted by name."""
        self.bring(worker)
        with Rooted(worker.jail.box_fd) as box:
            return box.list_dir(path)

    def state(self, worker: JailedWorker) -> FolderState:
        """Return the work folder, to be saved; raises ``InvalidRequest`` when it is too large."""
        with Rooted(worker.jail.box_fd) as box:
            return take_folder(box)

    def here(self, worker: JailedWorker) -> str:
        """Return how the session sees the user's folder: ``layer``, ``copy``, or empty when it does not."""
        return ""

    def _is_new(self, worker: JailedWorker) -> bool:
        """Whether this worker was not seen before; its work folder is then looked at anew."""
        if self._worker is not None and self._worker() is worker:
            return False
        self._worker = weakref.ref(worker)
        self._look = Snapshot()
        return True

    def _compare(self, box: Rooted) -> tuple[FsChange, ...]:
        before, self._look = self._look, snapshot(box, _LIMITS, since=self._look, shared=True)
        return compare(before, self._look)

    def _settle(self, worker: JailedWorker, box: Rooted) -> None:
        worker.keep_files()
        self._look = snapshot(box, _LIMITS, shared=True)


def older_states(worker: JailedWorker) -> OlderStates:
    """Return the states of a session when something new is put into its folder, of which the present one has it."""
    tree = worker.tree
    living = frozenset(each.id for each in tree.living() if each.id != tree.present)
    return OlderStates(living, next(reversed(tree.records)))  # the newest record is the last one


def _own(changes: Iterable[FsChange], is_others: Callable[[str], bool]) -> Iterator[FsChange]:
    """Yield those changes of an undo that are not what others have changed."""
    for change in changes:
        if not is_others(change.path):
            yield change
        elif change.renamed_from is not None and not is_others(change.renamed_from):
            yield FsChange(path=change.renamed_from, kind="deleted")


class HereFiles(WorkFiles):
    """See ``WorkFiles``; used only by the thread that has the session's turn."""

    def __init__(self, share: HereLink) -> None:
        super().__init__(share)
        self._link = share
        #: What was changed between two cells: the next cell's result tells it.
        self._early: tuple[FsChange, ...] = ()
        self._early_missing: list[Note] = []

    def here(self, worker: JailedWorker) -> str:
        """See ``WorkFiles``."""
        return "layer" if worker.layer is not None else "copy"

    def state(self, worker: JailedWorker) -> FolderState:
        """See ``WorkFiles``: only what was changed, the folder itself is the user's."""
        self._keep_early(worker)
        with Rooted(worker.jail.box_fd) as box, self._link.here.lock:

            def changed_ns(names: Names) -> int:
                there = box.look(names)
                return NO_TIME if there is None else there.mtime_ns

            return self._link.here.kept.state(changed_ns)

    def keep_large(self, place: str) -> None:
        """See ``WorkFiles``. Does nothing: changes of every size are kept with the others of the user's folder."""

    def bring(self, worker: JailedWorker) -> list[Note]:
        """See ``WorkFiles``."""
        found: list[Note] = []
        with Rooted(worker.jail.box_fd) as box:
            if self._is_new(worker):
                found += self._link.begin_over(worker.layer, box)
                if worker.layer is None:
                    found.insert(0, notes.folder_copied(self._link.why_copied))
                    worker.keep_files()
            try:
                written, more = self._link.bring_in(box, lambda: self._keep_early(worker), older_states(worker))
            except (OSError, SandboxError) as error:
                return [*found, notes.no_files_brought_in(error)]
            if written:
                worker.keep_files()
                self._link.look.settle(written)
        return [*found, *more]

    def before_loading(self, worker: JailedWorker) -> None:
        """See ``WorkFiles``: a private copy of the user's folder comes first, not over the state at the first cell."""
        if worker.layer is None:
            self._early_missing += self.bring(worker)

    def _keep_early(self, worker: JailedWorker) -> None:
        """Keep what programs have changed between two cells, before the host writes into their folder."""
        changes, missing = self.after(worker)
        self._early = (*self._early, *changes)
        self._early_missing += missing

    def after(self, worker: JailedWorker) -> tuple[tuple[FsChange, ...], list[Note]]:
        """See ``WorkFiles``."""
        early, missing = self._early, self._early_missing
        self._early, self._early_missing = (), []
        seen = self._link.look.changes()
        changes = displayed(seen.changes[:MAX_CHANGES])
        more = [*self._link.keep_changes(seen), *incomplete(seen.truncated, len(seen.changes))]
        more += self._link.here.project.git_notes(changes)
        told = {change.path for change in changes}
        return (*(change for change in early if change.path not in told), *changes), [*missing, *more]

    def rolled_back(self, worker: JailedWorker) -> None:
        """See ``WorkFiles``."""
        self._link.look.settle()

    def undone(self, worker: JailedWorker, written: Mapping[str, int] | None = None) -> None:
        """See ``WorkFiles``."""

        def keep(is_others: Callable[[str], bool]) -> None:
            found = self._link.look.changes()
            own = {path: now for path, now in found.now.items() if not is_others(path)}
            self._link.keep_changes(replace(found, now=own))

        with Rooted(worker.jail.box_fd) as box:
            if self._link.undo(box, worker.tree.present, written, keep):
                worker.keep_files()

    def _keep_own(self, worker: JailedWorker, box: Rooted) -> None:
        self._link.keep_changes(self._link.look.changes())
        worker.keep_files()

    def clear(self, worker: JailedWorker) -> None:
        """See ``WorkFiles``. Raises ``InvalidRequest``: the folder is the user's."""
        raise InvalidRequest("the session works on a folder of yours, which is not emptied; discard drops its changes")

"""The host's view of a session's files: finds what a cell changed, and exchanges files with the box's shared folder.

The session's processes may change the folder at the same time, so every look is bounded and never leaves the folder's
descriptor. Used only by the thread that has the session's turn.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from sandbox_kernel.errors import PolicyViolation, SandboxError
from sandbox_kernel.model import FsChange, Note, notes
from sandbox_kernel.session.worker.jailed_worker import JailedWorker
from sandbox_kernel.workspace.changes import MAX_CHANGES, displayed, incomplete
from sandbox_kernel.workspace.folder_link import PLAIN, FolderLink, LargeFiles, OlderStates
from sandbox_kernel.workspace.overlay.layer import CopyTracker
from sandbox_kernel.workspace.transfer import FolderState, take_folder
from sandbox_kernel.workspace.tree.paths import Names
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import NO_TIME


class WorkFiles:
    """Looks at the present worker's work folder, and shares it by ``share``; None when nobody else has the files."""

    def __init__(self, share: FolderLink | None) -> None:
        self._share = share
        self._tracker: CopyTracker | None = None
        self._told = False
        self._worker: weakref.ref[JailedWorker] | None = None
        #: What was changed between two cells: the next cell's result tells it.
        self._early: tuple[FsChange, ...] = ()
        self._early_missing: list[Note] = []

    def keep_large(self, place: str) -> None:
        """Keep files that are too large to be shared at a place of the host, and put those that are there in again."""
        if self._share is not None and self._share.here is None:
            self._share.large = LargeFiles(place)

    def bring(self, worker: JailedWorker) -> list[Note]:
        """Let the session see the shared folder as it is, before a cell. Returns notes on failures."""
        found: list[Note] = []
        share, box = self._share, worker.copies.box
        if share is not None and share.here is not None:
            self._begin(worker, found)  # without the user's folder no cell runs
        try:
            tracker = self._begin(worker, found)
            if share is not None:
                written, more = share.bring_in(box, lambda: self._keep_early(worker), lambda: older_states(worker))
                found += more
                if written:
                    worker.keep_files()
                    tracker.settle(written)
        except PolicyViolation:
            raise  # a secret would show: no cell runs
        except (OSError, SandboxError) as error:
            found.append(notes.no_files_brought_in(error))
        return found

    def _begin(self, worker: JailedWorker, found: list[Note]) -> CopyTracker:
        """Return the tracker of this worker's folder, which begins when it was not seen before."""
        if self._tracker is not None and self._worker is not None and self._worker() is worker:
            return self._tracker
        share, box = self._share, worker.copies.box
        self._tracker, self._worker = None, weakref.ref(worker)  # it tracked the worker before
        if share is None:
            self._tracker = CopyTracker(box, None, shared=True, limits=PLAIN)
            self._tracker.settle()
            return self._tracker
        told = share.begin_over(worker.layer, box)
        self._tracker = share.tracker
        if share.here is not None and worker.layer is None:
            found.append(notes.folder_copied(share.why_copied))
            worker.keep_files()
        found += told
        return self._tracker

    def before_loading(self, worker: JailedWorker) -> None:
        """Prepare the work folder for a saved session's files: a private copy of the user's comes before them."""
        if self.here(worker) == "copy":
            self._early_missing += self.bring(worker)

    def loaded(self, worker: JailedWorker, saved_ns: int) -> None:
        """Keep what a saved state has changed in the user's folder: it is based on the files as they were then."""
        if self._share is not None and self._share.here is not None:
            self._begin(worker, self._early_missing)
            self._share.began_ns = saved_ns
            self._keep_early(worker)

    def _keep_early(self, worker: JailedWorker) -> None:
        """Keep what programs have changed between two cells, before the host writes into their folder."""
        self._early, self._early_missing = self.after(worker)

    def after(
        self, worker: JailedWorker, is_enough: Callable[[], bool] = lambda: False
    ) -> tuple[tuple[FsChange, ...], list[Note]]:
        """Return the changes since the last time, and notes on them; copies them to the shared folder, and not more
        than ``is_enough``.
        """
        early, missing = self._early, self._early_missing
        self._early, self._early_missing = (), []
        seen = self._begin(worker, missing).changes()
        try:
            missing += self._share.keep_changes(seen, is_enough) if self._share is not None else []
        except (OSError, SandboxError) as error:
            # The cell has run: an error in the host's folder must not lose its result.
            missing.append(notes.no_files_shared(error))
        # A folder that is too large is told once, and again in cells that changed it.
        missing += incomplete(seen.truncated and (bool(seen.changes) or not self._told), len(seen.changes))
        self._told = seen.truncated
        if self._share is not None and self._share.here is not None:
            missing += self._share.here.project.git_notes(seen.changes)
        return displayed(seen.changes[:MAX_CHANGES], early), missing

    def rolled_back(self, worker: JailedWorker) -> None:
        """Look at the folder again after a rollback: the content is that of before the cell, but inodes may differ."""
        self._begin(worker, []).settle()

    def undone(self, worker: JailedWorker, written: Mapping[str, int] | None = None) -> None:
        """Undo the changes in the shared folder too, after an undo has restored the work folder.

        ``written``: cells ran again instead, and wrote these paths; what others changed since then is put over them.
        """
        share, tracker = self._share, self._begin(worker, [])
        if share is None:
            tracker.settle()
            return

        def keep(is_others: Callable[[str], bool]) -> None:
            found = tracker.changes()
            own = {path: now for path, now in found.now.items() if not is_others(path)}
            changes = tuple(change for change in found.changes if change.path in own)
            share.keep_changes(replace(found, changes=changes, now=own))

        if share.undo(worker.copies.box, worker.tree.present, written, keep):
            worker.keep_files()

    def brought(self, worker: JailedWorker) -> Rooted:
        """Return the work folder, with what others have put into it."""
        self.bring(worker)
        return worker.copies.box

    @contextlib.contextmanager
    def changing(self, worker: JailedWorker) -> Iterator[Rooted]:
        """The work folder while the host changes it: that belongs to the present state, which a rollback keeps."""
        yield self.brought(worker)
        found = self._begin(worker, []).changes()
        if self._share is not None:
            self._share.keep_changes(found)
        worker.keep_files()

    def state(self, worker: JailedWorker) -> FolderState:
        """Return the work folder, to be saved: of the user's folder the changes. ``InvalidRequest`` if too large."""
        box, here = worker.copies.box, self._share.here if self._share is not None else None
        if here is None:
            return take_folder(box)
        self._keep_early(worker)

        def changed_ns(names: Names) -> int:
            there = box.entry_at(names)
            return NO_TIME if there is None else there.mtime_ns

        with here.lock:
            return here.kept.state(changed_ns)

    def here(self, worker: JailedWorker) -> str:
        """Return how the session sees the user's folder: ``layer``, ``copy``, or empty when it does not."""
        if self._share is None or self._share.here is None:
            return ""
        return "layer" if worker.layer is not None else "copy"


def older_states(worker: JailedWorker) -> OlderStates:
    """Return the states of a session when something new is put into its folder, of which the present one has it."""
    tree = worker.tree
    living = frozenset(each.id for each in tree.living() if each.id != tree.present)
    return OlderStates(living, next(reversed(tree.records)))  # the newest record is the last one

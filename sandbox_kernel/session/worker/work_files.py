"""The files of a session as the host sees them: what a cell changed, and what is shared with the rest of the sandbox.

The session's own processes may be at work in the folder meanwhile, so every look is bounded and goes beneath the
folder's descriptor. Used by whoever has the session's turn.
"""

from __future__ import annotations

import weakref

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.model import FsChange, Note, notes
from sandbox_kernel.session.worker.worker import JailedWorker
from sandbox_kernel.workspace.changes import Snapshot, compare, displayed, snapshot
from sandbox_kernel.workspace.outcome import MAX_CHANGES, incomplete
from sandbox_kernel.workspace.shared_folder import FolderLink
from sandbox_kernel.workspace.tree.rooted import Rooted, encoded
from sandbox_kernel.workspace.tree.walk import DirEntry, WalkLimits

#: A look stands between a cell and its result.
_LIMITS = WalkLimits(entries=5000, seconds=0.5)


class WorkFiles:
    """Remembers the last look at the work folder of the present life."""

    def __init__(self, share: FolderLink | None) -> None:
        self._share = share
        self._look = Snapshot()
        self._life: weakref.ref[JailedWorker] | None = None

    def bring(self, live: JailedWorker) -> list[Note]:
        """Before a cell: what others have put into the shared folder is there; returns what could not be."""
        told: list[Note] = []
        if self._life is None or self._life() is not live:
            self._life = weakref.ref(live)
            self._look = Snapshot()
            if self._share is not None:
                self._share.begin()
            # A session that was loaded brings files along.
            told += self.after(live)[1]
        if self._share is not None:
            with Rooted(live.jail.box_fd) as box:
                try:
                    changed, more = self._share.push(box)
                except (OSError, SandboxError) as error:
                    return [*told, notes.no_files_brought_in(error)]
                told += more
                if changed:
                    self._settle(live, box)
        return told

    def after(self, live: JailedWorker) -> tuple[tuple[FsChange, ...], list[Note]]:
        """What has changed since the last look, and notes on it; the shared folder follows."""
        with Rooted(live.jail.box_fd) as box:
            changes = self._compare(box)
            try:
                told = self._share.pull(box, changes) if self._share is not None else []
            except (OSError, SandboxError) as error:
                # The cell has run: whatever is wrong with the host's folder, its result is not lost.
                told = [notes.no_files_shared(error)]
        told += incomplete(self._look.truncated, len(changes))
        return displayed(changes[:MAX_CHANGES]), told

    def rolled_back(self, live: JailedWorker) -> None:
        """The folder is as it was before the cell, in files that are new to the eye."""
        with Rooted(live.jail.box_fd) as box:
            self._look = snapshot(box, _LIMITS, shared=True)

    def undone(self, live: JailedWorker) -> None:
        """The folder has gone back with the state; so does what was shared of it."""
        with Rooted(live.jail.box_fd) as box:
            changes = self._compare(box)
            if self._share is not None and self._share.take_back(box, changes):
                self._settle(live, box)

    def read(self, live: JailedWorker, path: str) -> bytes:
        """The content of a file."""
        self.bring(live)
        with Rooted(live.jail.box_fd) as box:
            return box.read(path)

    def write(self, live: JailedWorker, path: str, data: bytes | str) -> None:
        """Make or replace a file; it belongs to the present state, which a failed cell goes back to."""
        self.bring(live)
        with Rooted(live.jail.box_fd) as box:
            box.write(path, encoded(path, data))
            changes = self._compare(box)
            if self._share is not None:
                self._share.pull(box, changes)
        live.keep_files()

    def list_dir(self, live: JailedWorker, path: str) -> tuple[DirEntry, ...]:
        """What a folder holds, by name."""
        self.bring(live)
        with Rooted(live.jail.box_fd) as box:
            return box.list_dir(path)

    def _compare(self, box: Rooted) -> tuple[FsChange, ...]:
        before, self._look = self._look, snapshot(box, _LIMITS, since=self._look, shared=True)
        return compare(before, self._look)

    def _settle(self, live: JailedWorker, box: Rooted) -> None:
        live.keep_files()
        self._look = snapshot(box, _LIMITS, shared=True)

"""The files of a session that works on a folder of the user: found by its layer, kept until the user applies them.

Takes the place of ``WorkFiles``. A worker without a layer (``JailedWorker.layer``) works on a private copy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from sandbox_kernel.errors import InvalidRequest, SandboxError
from sandbox_kernel.model import FsChange, Note, notes
from sandbox_kernel.session.worker.work_files import WorkFiles, older_states
from sandbox_kernel.session.worker.worker import JailedWorker
from sandbox_kernel.workspace.changes import MAX_CHANGES, displayed, incomplete
from sandbox_kernel.workspace.overlay.session_layer import HereLink
from sandbox_kernel.workspace.transfer import FolderState
from sandbox_kernel.workspace.tree.paths import Names
from sandbox_kernel.workspace.tree.rooted import Rooted, encoded
from sandbox_kernel.workspace.tree.walk import NO_TIME


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
        layer = worker.layer
        found: list[Note] = []
        if self._is_new(worker):
            self._link.begin_over(layer)
            if layer is None:
                found.append(notes.folder_copied(self._link.why_copied))
                with Rooted(worker.jail.box_fd) as box:
                    found += self._link.copy_in(box)
                    self._settle(worker, box)
            else:
                found += layer.look.not_given[:5]
        with Rooted(worker.jail.box_fd) as box:
            try:
                written, more = self._link.bring_in(box, lambda: self._keep_early(worker), older_states(worker))
            except (OSError, SandboxError) as error:
                return [*found, notes.no_files_brought_in(error)]
            if written and layer is not None:
                worker.keep_files()
                layer.look.settle(written)
            elif written:
                self._settle(worker, box)
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
        layer = worker.layer
        early, missing = self._early, self._early_missing
        self._early, self._early_missing = (), []
        if layer is None:
            changes, more = super().after(worker)
        else:
            seen = layer.look.changes()
            more = self._link.keep_changes(layer.look.layer, seen)
            changes = displayed(seen.changes[:MAX_CHANGES])
            more += incomplete(seen.truncated, len(seen.changes))
        more += self._link.here.project.git_notes(changes)
        told = {change.path for change in changes}
        return (*(change for change in early if change.path not in told), *changes), [*missing, *more]

    def rolled_back(self, worker: JailedWorker) -> None:
        """See ``WorkFiles``."""
        if worker.layer is None:
            super().rolled_back(worker)
        else:
            worker.layer.look.settle()

    def undone(self, worker: JailedWorker, written: Mapping[str, int] | None = None) -> None:
        """See ``WorkFiles``."""
        layer, node = worker.layer, worker.tree.present
        with Rooted(worker.jail.box_fd) as box, self._link.here.lock:
            put = self._link.put_again(box, node, written)
            found = self._link.found(box, self._compare(box)) if layer is None else layer.look.changes()
            own = {path: now for path, now in found.now.items() if not put.is_others(path)}
            self._link.keep_changes(box if layer is None else layer.look.layer, replace(found, now=own))
            self._link.now_in(node, put)
        if not put.is_empty:
            worker.keep_files()

    def write(self, worker: JailedWorker, path: str, data: bytes | str) -> None:
        """See ``WorkFiles``."""
        if worker.layer is None:
            super().write(worker, path, data)
            return
        self.bring(worker)
        with Rooted(worker.jail.box_fd) as box:
            box.write(path, encoded(path, data))
        self._link.keep_changes(worker.layer.look.layer, worker.layer.look.changes())
        worker.keep_files()

    def clear(self, worker: JailedWorker) -> None:
        """See ``WorkFiles``. Raises ``InvalidRequest``: the folder is the user's."""
        raise InvalidRequest("the session works on a folder of yours, which is not emptied; discard drops its changes")

    def _settle(self, worker: JailedWorker, box: Rooted) -> None:
        if worker.layer is None:
            super()._settle(worker, box)
        else:
            worker.keep_files()
            worker.layer.look.settle()

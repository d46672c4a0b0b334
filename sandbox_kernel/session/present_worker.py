"""The present worker of a session, and the lock (the *turn*) that lets one thread at a time use it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from sandbox_kernel.errors import SandboxError, SessionError
from sandbox_kernel.limits import MIB
from sandbox_kernel.model import Note
from sandbox_kernel.session.cell.request import SessionSpec
from sandbox_kernel.session.files import HereFiles, WorkFiles
from sandbox_kernel.session.session_rights import SessionRights
from sandbox_kernel.session.tree.state_tree import StateTree
from sandbox_kernel.session.worker.worker import JailedWorker
from sandbox_kernel.workspace.box_folder import FolderLink
from sandbox_kernel.workspace.overlay.session_layer import HereLink


class StillBusy(SessionError):
    """Raised when the turn did not come in the time that the caller would wait."""


class PresentWorker:
    """Holds the worker that a session has now, starts and ends it."""

    def __init__(
        self,
        spec: SessionSpec,
        begin: Callable[[], JailedWorker],
        share: FolderLink | None = None,
        rights: SessionRights | None = None,
    ) -> None:
        self.spec = spec
        self.files = HereFiles(share) if isinstance(share, HereLink) else WorkFiles(share)
        self.rights = rights
        #: Whether the last cell was rolled back.
        self.just_rolled_back = False
        self.closed = False
        self.memory_mb = spec.memory_mb
        self.live: JailedWorker | None = begin()
        self._start = begin
        self._lock = threading.Lock()
        self._owner: int | None = None
        #: Notes for the result of the next cell.
        self._pending_notes: list[Note] = []
        #: The history of the worker before this one.
        self._past: StateTree | None = None

    def _begin(self) -> JailedWorker:
        worker = self._start()
        if self._past is not None:
            worker.take_history(self._past)
        worker.limit_memory(self.memory_mb * MIB)
        return worker

    def end(self) -> None:
        """End the present worker. May be called twice, and without the turn: garbage collection calls it."""
        worker, self.live = self.live, None
        if worker is not None:
            worker.destroy()

    def kill(self) -> None:
        """Kill the jail, so that a running cell ends and gives up the turn; may be called from any thread."""
        worker = self.live
        if worker is not None:
            worker.jail.kill()

    def forget(self) -> None:
        """Close the descriptors and end nothing; called in a forked child of the host."""
        self.closed = True
        worker, self.live = self.live, None
        if worker is not None:
            worker.jail.forget()

    def again(self, *, forget: bool = False) -> None:
        """End the worker and start a new one. If the start fails, the next turn tries again and raises the reason.

        The history stays unless ``forget``; of its states only the beginning lives, and its cells can be run again.
        """
        if forget:
            self._past = None
        elif self.live is not None:
            self._past = self.live.tree
        self.end()
        self._pending_notes = []
        if not self.closed:
            with contextlib.suppress(SandboxError):
                self.live = self._begin()

    @contextlib.contextmanager
    def lock(self, patience_s: float | None = None) -> Iterator[None]:
        """Wait for the turn and hold it; raises ``SessionError`` on the thread that already has it.

        With ``patience_s``, raises ``StillBusy`` when the turn has not come after that time, or cannot come.
        """
        if self._owner == threading.get_ident():
            if patience_s is not None:
                raise StillBusy(f"session {self.spec.name!r} runs a cell on this thread")
            raise SessionError(
                f"session {self.spec.name!r} is already running a cell on this thread; wait for its result first"
            )
        if not self._lock.acquire(timeout=-1 if patience_s is None else patience_s):
            raise StillBusy(f"session {self.spec.name!r} runs a cell; ask again when it has ended")
        try:
            self._owner = threading.get_ident()
            yield
        finally:
            self._owner = None
            self._lock.release()

    @contextlib.contextmanager
    def lock_after_kill(self) -> Iterator[None]:
        """Kill the jail, which ends a running cell, then hold the turn."""
        self.kill()
        with self.lock():
            yield

    def refuse_if_closed(self) -> None:
        """Raise ``SessionError`` if the session is closed."""
        if self.closed:
            name, language = self.spec.name, str(self.spec.language)
            raise SessionError(f"session {name!r} is closed; open a new one with box.session({language!r})")

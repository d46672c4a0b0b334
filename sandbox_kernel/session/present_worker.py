"""The present life of a session, and whose turn it is to use it: one thread at a time."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from sandbox_kernel.errors import SandboxError, SessionError
from sandbox_kernel.limits import MIB
from sandbox_kernel.model import Note
from sandbox_kernel.session.opening.spec import SessionSpec
from sandbox_kernel.session.worker.work_files import WorkFiles
from sandbox_kernel.session.worker.worker import JailedWorker
from sandbox_kernel.workspace.shared_folder import FolderLink


class PresentWorker:
    """The life that a session has now. ``end`` needs nobody's turn: garbage collection calls it."""

    def __init__(self, spec: SessionSpec, begin: Callable[[], JailedWorker], share: FolderLink | None = None) -> None:
        self.spec = spec
        self.files = WorkFiles(share)
        self.closed = False
        self.memory_mb = spec.memory_mb
        self.live: JailedWorker | None = begin()
        self._start = begin
        self._lock = threading.Lock()
        self._owner: int | None = None
        #: What the next cell's result is to tell.
        self._news: list[Note] = []

    @property
    def busy(self) -> bool:
        """Whether somebody has the turn."""
        return self._lock.locked()

    def _begin(self) -> JailedWorker:
        live = self._start()
        live.limit_memory(self.memory_mb * MIB)
        return live

    def end(self) -> None:
        """End the present life; may be called twice."""
        live, self.live = self.live, None
        if live is not None:
            live.destroy()

    def kill(self) -> None:
        """End the jail under a running cell, so that its turn ends; from any thread."""
        live = self.live
        if live is not None:
            live.jail.kill()

    def forget(self) -> None:
        """In a forked child: let go of the descriptors, end nothing."""
        self.closed = True
        live, self.live = self.live, None
        if live is not None:
            live.jail.forget()

    def again(self) -> None:
        """End the present life and begin a new one; if that fails, whoever has the next turn is told why."""
        self.end()
        self._news = []
        if not self.closed:
            with contextlib.suppress(SandboxError):
                self.live = self._begin()

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Wait for the turn."""
        if self._owner == threading.get_ident():
            raise SessionError(
                f"session {self.spec.name!r} is running a cell on this very thread; wait for its result first"
            )
        with self._lock:
            self._owner = threading.get_ident()
            try:
                yield
            finally:
                self._owner = None

    @contextlib.contextmanager
    def lock_after_kill(self) -> Iterator[None]:
        """End a running cell with its jail, and have the turn that it leaves."""
        self.kill()
        with self.lock():
            yield

    def refuse_if_closed(self) -> None:
        """``SessionError`` on a closed session."""
        if self.closed:
            name, language = self.spec.name, str(self.spec.language)
            raise SessionError(f"session {name!r} is closed; open a new one with box.session({language!r})")

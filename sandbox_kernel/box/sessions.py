"""The session methods of ``Sandbox``: open, load, and prepare a language for WebAssembly."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from sandbox_kernel.box.runs import BoxRuns, named_files
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.limits import (
    DEFAULT_CHECKPOINTS,
    DEFAULT_SESSION_MEMORY_MB,
    FunctionLimits,
    Limits,
    check_memory_mb,
)
from sandbox_kernel.model import Language

if TYPE_CHECKING:
    from sandbox_kernel.backends.functions.host_function import HostFunctions
    from sandbox_kernel.backends.wasm.prepare import OnProgress
    from sandbox_kernel.session.session import Session


class _LoadSession:
    """Makes ``box.load_session(path)`` and ``Sandbox.load_session(path)`` both work; the latter makes a new sandbox."""

    def __get__(self, box: BoxSessions | None, owner: type[BoxSessions]) -> Callable[..., Session]:
        def load_session(
            path: str | os.PathLike[str], *, name: str | None = None, memory_mb: int = DEFAULT_SESSION_MEMORY_MB
        ) -> Session:
            """Load a session that ``save`` wrote, on this or another machine with the same versions.

            Variables are made again inside the sandbox only. What could not be stored is named in ``restored``. The
            session has ``memory_mb`` at most, and less where it was saved with less: a file cannot raise its own limit.
            Raises ``InvalidRequest`` for a file that is damaged, of other versions, or needs more memory.
            """
            return (box if box is not None else owner())._load_session(path, name=name, memory_mb=memory_mb)

        return load_session


class BoxSessions(BoxRuns):
    """The session methods of ``Sandbox``."""

    _function_limits: FunctionLimits
    _sessions: weakref.WeakSet[Session]

    def session(
        self,
        language: str | Language = Language.PYTHON,
        *,
        name: str | None = None,
        memory_mb: int = DEFAULT_SESSION_MEMORY_MB,
        checkpoints: int = DEFAULT_CHECKPOINTS,
        python: str | None = None,
        limits: Limits | None = None,
        backend: str | None = None,
        files: Mapping[str, bytes | str] | None = None,
        here: str | os.PathLike[str] | None = None,
        functions: Mapping[str, Callable[..., object]] | None = None,
    ) -> Session:
        """Open a session. Its variables stay from cell to cell; a cell that a limit ended is rolled back.

        The session shares the work folder with runs and other sessions of this sandbox; changes are exchanged between
        cells. With ``backend="wasm"`` it can also be forked (``s.fork()``) and saved (``s.save(path)``).

        Args:
            language: The language of the cells.
            name: A name for the session, shown in messages.
            memory_mb: Memory limit in MB of the whole session.
            checkpoints: How many earlier states are kept for ``undo``. With 0, state is lost if a limit ends a cell.
            python: As for ``run``; not with ``backend="wasm"``.
            limits: As for ``run``.
            backend: ``process`` or ``wasm``; the sandbox's own by default.
            files: Contents by path, written to the work folder before the session starts.
            here: As for ``Sandbox``. A new sandbox works on the folder from now on; one that has run already, or works
                on another folder, refuses.
            functions: Functions that cells may call, in addition to those of the sandbox.

        Returns:
            The open session. ``close`` ends it, and so does ``destroy`` of the sandbox.

        Raises:
            InvalidRequest: An argument is wrong, or the backend has no sessions in this language.
            PolicyViolation: The session is one of commands, and the policy lets no process be started.
            SessionError: The worker of the session could not be started.
        """
        self._check_alive()
        chosen = self._backends.named(backend)
        if chosen == "dask":
            raise InvalidRequest("sessions live on this machine, not on a cluster; use backend='process' or 'wasm'")
        if here is not None:
            self.work_on(here)
        offered = checked_functions(functions, self._function_limits, self._functions)
        for path, data in named_files(files).items():
            self.write_file(path, data)
        if chosen == "wasm":
            if python is not None:
                raise InvalidRequest("python chooses an interpreter of the host, which backend='wasm' does not run")
            from sandbox_kernel.session.open_wasm import open_wasm_session

            return open_wasm_session(
                self._backends.wasm(),
                language,
                name=name,
                memory_mb=memory_mb,
                checkpoints=checkpoints,
                limits=limits,
                on_open=self._sessions.add,
                share=self._link(),
                functions=offered,
            )
        from sandbox_kernel.session.open_session import open_session

        opened = open_session(
            self.backend,
            language,
            name=name,
            memory_mb=memory_mb,
            checkpoints=checkpoints,
            python=python,
            limits=limits,
            share=self._link(),
            chosen=self._backends.why(Language.parse(language), backend),
            functions=offered,
        )
        self._sessions.add(opened)
        return opened

    def is_ready(self, language: str | Language, *, session: bool = False) -> bool:
        """Return whether a run, or a ``session``, needs no ``prepare`` first; always unless the backend is ``wasm``."""
        self._check_alive()
        if self._backends.default != "wasm":
            return True
        return self._backends.wasm().is_ready(Language.parse(language), session=session)

    def prepare(self, language: str | Language, *, on_progress: OnProgress | None = None) -> None:
        """Prepare a language for WebAssembly, once on this machine. Takes seconds to minutes.

        The first run prepares its language too, before its time limit starts. Does nothing unless the sandbox's backend
        is ``wasm``. ``on_progress`` is called with a ``PrepareProgress`` after each step. Raises
        ``BackendUnavailable`` for what cannot be found or made.
        """
        self._check_alive()
        if self._backends.default == "wasm":
            self._backends.wasm().make_ready(Language.parse(language), on_progress)

    load_session = _LoadSession()

    def _load_session(self, path: str | os.PathLike[str], *, name: str | None, memory_mb: int) -> Session:
        self._check_alive()
        from sandbox_kernel.session.open_wasm import load_wasm_session
        from sandbox_kernel.session.python_state import PythonSession, read_python

        check_memory_mb(memory_mb)
        saved = read_python(path, memory_mb)
        if saved is not None:
            opened = self.session(name=name, memory_mb=min(saved.header.memory_mb, memory_mb), backend="process")
            assert isinstance(opened, PythonSession), "a Python session of processes"
            opened.load(saved)
            return opened
        return load_wasm_session(
            self._backends.wasm(),
            path,
            name=name,
            memory_mb=memory_mb,
            on_open=self._sessions.add,
            share=self._link(),
            functions=self._functions,
        )


def checked_functions(
    functions: Mapping[str, Callable[..., object]] | None, limits: FunctionLimits, before: HostFunctions | None = None
) -> HostFunctions | None:
    """Return the given functions with their checks; imports what that needs only when there are some."""
    if functions is None:
        return before
    from sandbox_kernel.backends.functions.host_function import make_functions

    return make_functions(functions, limits, before=before)

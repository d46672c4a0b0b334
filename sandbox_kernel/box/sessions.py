"""The sessions of a ``Sandbox``, opened and loaded, and what WebAssembly must make ready before one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from sandbox_kernel.box.given_files import named_files
from sandbox_kernel.box.state import BoxState
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.limits import DEFAULT_SESSION_MEMORY_MB, Limits
from sandbox_kernel.model import Language

if TYPE_CHECKING:
    from sandbox_kernel.backends.wasm.prepare import OnProgress
    from sandbox_kernel.session.session import Session


class _LoadSession:
    """``box.load_session(path)``, and ``Sandbox.load_session(path)`` for a session with a sandbox of its own."""

    def __get__(self, box: BoxSessions | None, owner: type[BoxSessions]) -> Callable[..., Session]:
        def load_session(path: str | os.PathLike[str], *, name: str | None = None) -> Session:
            """Go on with a session that ``save`` wrote, here or on another machine with the same versions."""
            return (box if box is not None else owner())._load_session(path, name=name)

        return load_session


class BoxSessions(BoxState):
    """The part of the facade that is about state between runs."""

    def session(
        self,
        language: str | Language = Language.PYTHON,
        *,
        name: str | None = None,
        memory_mb: int = DEFAULT_SESSION_MEMORY_MB,
        checkpoints: int = 5,
        python: str | None = None,
        limits: Limits | None = None,
        backend: str | None = None,
        files: Mapping[str, bytes | str] | None = None,
    ) -> Session:
        """Open a session: state lives on from run to run, and a run that is stopped is taken back.

        Its work folder is shared, between cells, with the sandbox's runs and other sessions; ``files`` are put there.
        With ``backend="wasm"`` it can also be forked (``s.fork()``) and saved (``s.save(path)``).
        """
        self._check_alive()
        chosen = self._backends.named(backend)
        if chosen == "dask":
            raise InvalidRequest("sessions live on this machine, not on a cluster; use backend='process' or 'wasm'")
        for path, data in named_files(files).items():
            self.write_file(path, data)
        if chosen == "wasm":
            if python is not None:
                raise InvalidRequest("python chooses an interpreter of the host, which backend='wasm' does not run")
            from sandbox_kernel.session.opening.open_wasm import open_wasm_session

            return open_wasm_session(
                self._backends.wasm(),
                language,
                name=name,
                memory_mb=memory_mb,
                checkpoints=checkpoints,
                limits=limits,
                on_open=self._sessions.add,
                share=self._folder.link(),
            )
        from sandbox_kernel.session.opening.open_session import open_session

        opened = open_session(
            self.backend,
            language,
            name=name,
            memory_mb=memory_mb,
            checkpoints=checkpoints,
            python=python,
            limits=limits,
            share=self._folder.link(),
            chosen=self._backends.why(Language.parse(language), backend),
        )
        self._sessions.add(opened)
        return opened

    def is_ready(self, language: str | Language, *, check: bool = False, session: bool = False) -> bool:
        """Whether the first run or ``session`` in a language has nothing to wait for; see ``prepare``."""
        self._check_alive()
        if self._backends.default != "wasm":
            return True
        return self._backends.wasm(check).is_ready(Language.parse(language), session=session)

    def prepare(self, language: str | Language, *, check: bool = False, on_progress: OnProgress | None = None) -> None:
        """Make ready what WebAssembly needs for a language, once on this machine: seconds to minutes.

        The first run does the same, before its clock starts; ``on_progress`` hears how far it is, on this thread.
        """
        self._check_alive()
        if self._backends.default == "wasm":
            self._backends.wasm(check).make_ready(Language.parse(language), on_progress)

    load_session = _LoadSession()

    def _load_session(self, path: str | os.PathLike[str], *, name: str | None = None) -> Session:
        self._check_alive()
        from sandbox_kernel.session.opening.open_wasm import load_wasm_session

        return load_wasm_session(
            self._backends.wasm(), path, name=name, on_open=self._sessions.add, share=self._folder.link()
        )

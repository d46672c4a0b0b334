"""The facade: one object that runs code, keeps its files and sessions, and says what it enforces.

Its parts are in ``box/`` and, for its files, in ``box/files.py``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING

from sandbox_kernel.backends.choice import BACKENDS
from sandbox_kernel.box.fetching import BoxFetching
from sandbox_kernel.box.runs import BoxRuns
from sandbox_kernel.box.sessions import BoxSessions
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.jail.kinds.reaper import wait_buried
from sandbox_kernel.languages.support.recipe import ProcessConfig
from sandbox_kernel.policy import SandboxPolicy

if TYPE_CHECKING:
    from sandbox_kernel.backends.measured.canaries import OnProgress
    from sandbox_kernel.net.audit import AuditSink
    from sandbox_kernel.net.resolve import Resolver
    from sandbox_kernel.net.secret_headers import Secret
    from sandbox_kernel.report.capability_report import CapabilityReport

__all__ = ["BACKENDS", "Sandbox"]


class Sandbox(BoxRuns, BoxSessions, BoxFetching):
    """Runs programs under one policy. Use it as a context manager, or call ``destroy`` when done.

    Each run is a sandbox of its own; what runs and sessions share is the folder /box, whose files live as long as this
    object.
    """

    def __init__(
        self,
        policy: SandboxPolicy | None = None,
        backend: str = "auto",
        *,
        config: ProcessConfig | None = None,
        require: Iterable[str] = (),
        audit: AuditSink | str | os.PathLike[str] | None = None,
        allow_private_for: Iterable[str] = (),
        resolver: Resolver | None = None,
        secrets: Iterable[Secret] = (),
    ) -> None:
        """``require`` fails closed: no sandbox unless these areas or lines of its report are enforced here.

        ``audit`` is a file to which every decision about the network is appended as a JSON line, or a function.
        ``allow_private_for`` names hosts of the policy that may have private addresses; ``resolver`` resolves names.
        ``secrets`` never enter: programs have placeholders, and the host puts the values into headers on their way out.
        """
        super().__init__(
            policy,
            backend,
            config=config,
            audit=audit,
            allow_private_for=allow_private_for,
            resolver=resolver,
            secrets=secrets,
        )
        if require:
            self.report(require=require)

    def __enter__(self) -> Sandbox:
        self._check_alive()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.destroy()

    def report(
        self,
        *,
        again: bool = False,
        fresh: bool = False,
        require: Iterable[str] = (),
        on_progress: OnProgress | None = None,
        backend: str | None = None,
    ) -> CapabilityReport:
        """What is enforced here, measured in the jail that is really used; kept until the next boot.

        ``again`` (or ``fresh``) measures anew. ``require`` names areas or lines that must be enforced, else
        ``PolicyViolation`` quotes the one that is not. ``on_progress`` hears how many canaries of how many are back.
        ``backend`` is whose walls they are, the sandbox's own if it is not given; processes for ``auto``.
        """
        self._check_alive()
        if isinstance(require, str):
            raise InvalidRequest(f"require takes a list of areas or lines, got {require!r}; write [{require!r}]")
        from sandbox_kernel.backends.measured.capabilities import group_notes
        from sandbox_kernel.report.capability_report import make_report, summed_report

        name = self._backends.named(backend)
        if name == "wasm":
            wasm = self._backends.wasm()
            wasm.measure(again=again or fresh, on_progress=on_progress)
            report = summed_report(wasm, weaknesses=(*wasm.enforcer.weaknesses, *group_notes())).require(*require)
            return replace(report, again=lambda told: self.report(again=True, on_progress=told, backend="wasm"))
        if name == "dask":
            report = summed_report(self._backends.dask(), host="a worker of the cluster")
            return report.require(*require)
        return make_report(self.backend, again=again or fresh, on_progress=on_progress).require(*require)

    def destroy(self) -> None:
        """End everything that this sandbox holds; every later call raises ``SandboxDestroyed``."""
        self._destroyed = True
        for session in list(self._sessions):
            session.close()
        if self._owns_folder:
            self._folder.close()
        wait_buried()

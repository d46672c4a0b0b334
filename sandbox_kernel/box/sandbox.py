"""``Sandbox``, the entry point of the library: runs code, holds files and sessions, reports what it enforces.

Its methods come from base classes: ``runs.py``, ``sessions.py``, ``fetching.py`` and ``files.py``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING

from sandbox_kernel.backends.choice import BACKENDS
from sandbox_kernel.box.fetching import BoxFetching
from sandbox_kernel.box.runs import BoxRuns
from sandbox_kernel.box.sessions import BoxSessions
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.jail.spawner import wait_buried
from sandbox_kernel.languages.recipe import ProcessConfig
from sandbox_kernel.model import Language
from sandbox_kernel.policy import SandboxPolicy

if TYPE_CHECKING:
    from sandbox_kernel.backends.measured.canaries import OnProgress
    from sandbox_kernel.limits import FunctionLimits
    from sandbox_kernel.net.egress import AuditSink
    from sandbox_kernel.net.resolve import Resolver
    from sandbox_kernel.net.secret_headers import Secret
    from sandbox_kernel.report.capability_report import CapabilityReport

__all__ = ["BACKENDS", "Sandbox"]


class Sandbox(BoxRuns, BoxSessions, BoxFetching):
    """Runs programs under one policy. Use it as a context manager, or call ``destroy`` when done.

    Each run gets a new jail. Runs and sessions of one ``Sandbox`` share only the work folder ``/box``, which exists
    until the ``Sandbox`` is destroyed.
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
        here: str | os.PathLike[str] | None = None,
        functions: Mapping[str, Callable[..., object]] | None = None,
        function_limits: FunctionLimits | None = None,
        wheels: Iterable[str | os.PathLike[str]] = (),
    ) -> None:
        """Create a sandbox. The first run starts its first process.

        Args:
            policy: What programs may read, write, reach and start; the preset ``standard`` by default.
            backend: What runs the programs: ``process``, ``wasm``, ``dask``, or ``auto`` (wasm modules on ``wasm``,
                everything else on ``process``).
            config: Which interpreters and compilers to use, and how many jails to keep ready.
            require: Areas or lines of the report that must be enforced on this host.
            audit: A file to which every network decision is appended as a JSON line, or a function that is called
                with each decision.
            allow_private_for: Hosts of the policy that may resolve to private addresses.
            resolver: A function ``resolver(host, port)`` that returns IP addresses, used instead of the system's.
            secrets: Values that programs never see: programs get placeholders, and the host replaces these in the
                headers of outgoing requests.
            here: A folder of the host that programs work on. They see it as it is, without the secrets in it, as their
                working directory; what they change stays in the sandbox until ``apply``.
            functions: Functions of this process, by name, that programs may call: ``from host import name``. Each call
                is checked against the signature and its type hints, and written to ``result.calls``.
            function_limits: How many calls, bytes and seconds the functions may take in one run or cell.
            wheels: Wheels of pure Python, or folders of them, that Python of ``backend="wasm"`` can import. They are
                checked now, imported once at the first use, and kept by their content.

        Raises:
            InvalidRequest: An argument has a wrong type or value.
            PolicyViolation: The policy is not valid, or something in ``require`` is not enforced on this host.

        """
        super().__init__(
            policy,
            backend,
            config=config,
            audit=audit,
            allow_private_for=allow_private_for,
            resolver=resolver,
            secrets=secrets,
            here=here,
            functions=functions,
            function_limits=function_limits,
            wheels=wheels,
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
        """Measure what is enforced on this host, in the same jail that runs use. Results are kept until the next boot.

        Args:
            again: Measure again instead of returning the kept results.
            fresh: The same as ``again``.
            require: Areas or lines of the report that must be enforced.
            on_progress: Called as ``on_progress(done, total)`` after each canary.
            backend: Which backend to measure; the sandbox's own by default, and ``process`` for ``auto``.

        Returns:
            The report: one line for each attempt of a canary, with the evidence.

        Raises:
            PolicyViolation: Something in ``require`` is not enforced; the message quotes the line.
            InvalidRequest: ``require`` is a text instead of a list, or ``backend`` is unknown.

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
            from sandbox_kernel.report.wasm_python_lines import python_lines

            weaknesses = (*wasm.enforcer.weaknesses, *group_notes())
            report = summed_report(wasm, weaknesses=weaknesses, more=python_lines(wasm)).require(*require)
            return replace(report, again=lambda progress: self.report(again=True, on_progress=progress, backend="wasm"))
        if name == "dask":
            report = summed_report(self._backends.dask(), host="a worker of the cluster")
            return report.require(*require)
        measured = make_report(self.backend, again=again or fresh, on_progress=on_progress).require(*require)
        if self.here is None:
            return measured
        from sandbox_kernel.workspace.here.hidden import HIDDEN

        return replace(measured, hidden=HIDDEN)

    def describe_functions(self, language: str | Language = Language.PYTHON) -> str:
        """Return what a model needs to know about the host functions: declarations and documentation.

        Args:
            language: The language of the programs: Python gets signatures, JavaScript and TypeScript get types, the
                shell gets command lines.

        """
        from sandbox_kernel.backends.functions.describe import describe_functions

        return describe_functions(self._functions, Language.parse(language))

    def destroy(self) -> None:
        """Close all sessions and remove the work folder. Every later call raises ``SandboxDestroyed``."""
        self._destroyed = True
        for session in list(self._sessions):
            session.close()
        if self._owns_folder:
            self._folder.close()
        wait_buried()

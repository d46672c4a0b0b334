"""``Sandbox``, the entry point of the library. Its methods come from ``files.py``, ``runs.py`` and ``sessions.py``."""

from __future__ import annotations

import copy
import os
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from sandbox_kernel.backends.choice import BACKENDS, Backends, known_backend
from sandbox_kernel.backends.process import ProcessConfig
from sandbox_kernel.box.sessions import BoxSessions, checked_functions
from sandbox_kernel.errors import InvalidRequest, NetworkingDisabled
from sandbox_kernel.jail.spawner import wait_buried
from sandbox_kernel.limits import FunctionLimits, quoted
from sandbox_kernel.model import Language
from sandbox_kernel.net.egress import Egress, with_placeholders
from sandbox_kernel.policy import SandboxPolicy, check_policy

if TYPE_CHECKING:
    from sandbox_kernel.backends.probes.canaries import OnProgress as OnMeasured
    from sandbox_kernel.backends.wasm.prepare import OnProgress
    from sandbox_kernel.backends.wasm.wheels import Wheels
    from sandbox_kernel.net.audit import AuditRecord, AuditSink
    from sandbox_kernel.net.fetch_messages import FetchRequest, FetchResponse
    from sandbox_kernel.net.resolve import Resolver
    from sandbox_kernel.net.safe_client import SafeClient
    from sandbox_kernel.net.secret_headers import Secret
    from sandbox_kernel.report.capability_report import CapabilityReport

__all__ = ["BACKENDS", "Sandbox"]


class Sandbox(BoxSessions):
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
                checked now, and kept by their content.

        Raises:
            InvalidRequest: An argument has a wrong type or value.
            PolicyViolation: The policy is not valid, or something in ``require`` is not enforced on this host.
        """
        super().__init__(here)
        limits = FunctionLimits.given(function_limits)
        self._functions = checked_functions(functions, limits)
        self._function_limits = limits
        known_backend(backend)
        check_policy(policy)
        self._egress = Egress(audit, allow_private_for, resolver, secrets)
        given = policy if policy is not None else SandboxPolicy.preset("standard")
        self.policy = with_placeholders(given, self._egress.vault)
        self._backends = Backends(backend, self.policy, self._egress, config, checked_wheels(wheels, backend))
        self._sessions = weakref.WeakSet()
        self._client: SafeClient | None = None
        if require:
            self.report(require=require)

    def __enter__(self) -> Sandbox:
        self._check_alive()
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()

    @property
    def on_prepare(self) -> OnProgress | None:
        """Progress callback, called with a ``PrepareProgress`` while a wasm language is prepared for its first run."""
        return self._backends.on_prepare

    @on_prepare.setter
    def on_prepare(self, tell: OnProgress | None) -> None:
        self._backends.on_prepare = tell

    def under(self, policy: SandboxPolicy) -> Self:
        """Return this sandbox under another policy: with the same files, functions, sessions and audit log."""
        check_policy(policy)
        other = copy.copy(self)
        other.policy = policy
        other._client = None
        other._backends = self._backends.under(policy)
        return other

    def write_down(self, record: AuditRecord) -> None:
        """Write a record to the audit log of this sandbox, if it has one. Raises ``FetchError`` when that fails."""
        self._egress.write_down(record)

    def offer_functions(self, functions: Mapping[str, Callable[..., object]] | None) -> None:
        """Replace the functions that programs may call. Runs and sessions that begin later have these."""
        self._functions = checked_functions(functions, self._function_limits)

    def fetch(
        self,
        url: FetchRequest | str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        body: bytes | str | None = None,
    ) -> FetchResponse:
        """Fetch a URL from the host process, under this sandbox's network rules.

        ``url`` may be a ``FetchRequest`` that has the method, the headers and the body itself. A response with a status
        of 400 or above is returned too.

        Raises:
            NetworkingDisabled: The policy allows no network at all.
            FetchError: A rule refused the request, or the request failed; the message names the rule. Private
                addresses are refused unless ``allow_private_for`` names their host.
        """
        return self._fetcher(url).fetch(_fetch_request(url, method, headers, body))

    async def afetch(
        self,
        url: FetchRequest | str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | Iterable[tuple[str, str]] = (),
        body: bytes | str | None = None,
    ) -> FetchResponse:
        """Fetch a URL like ``fetch``, on the caller's event loop. Cancelling the task closes the connection."""
        return await self._fetcher(url).afetch(_fetch_request(url, method, headers, body))

    def _fetcher(self, url: FetchRequest | str) -> SafeClient:
        """Return the sandbox's only client, so that the rate limit counts all fetches of the sandbox."""
        self._check_alive()
        if not self.policy.network and not self.policy.network_rules:
            asked = getattr(url, "url", url)
            raise NetworkingDisabled(
                f"networking disabled: {quoted(asked)} cannot be fetched; allow it with policy.allow_domain(…) first"
            )
        if self._client is None:
            from sandbox_kernel.net.fetch_policy import FetchPolicy

            self._client = self._egress.client(FetchPolicy.from_sandbox_policy(self.policy))
        return self._client

    def report(
        self,
        *,
        again: bool = False,
        fresh: bool = False,
        require: Iterable[str] = (),
        on_progress: OnMeasured | None = None,
        backend: str | None = None,
    ) -> CapabilityReport:
        """Measure what is enforced on this host, in the same jail that runs use. Results are kept until the next boot.

        Args:
            again: Measure again instead of returning the kept results.
            fresh: The same as ``again``.
            require: Areas or lines that must be enforced; else ``PolicyViolation`` is raised, which quotes the line.
            on_progress: Called as ``on_progress(done, total)`` after each canary.
            backend: Which backend to measure; the sandbox's own by default, and ``process`` for ``auto``.

        Returns:
            The report: one line for each attempt of a canary, with the evidence.
        """
        self._check_alive()
        if isinstance(require, str):
            raise InvalidRequest(f"require takes a list of areas or lines, got {require!r}; write [{require!r}]")
        from sandbox_kernel.backends.probes import wasm_canaries
        from sandbox_kernel.backends.probes.capabilities import group_notes
        from sandbox_kernel.report.capability_report import make_report, summed_report

        name = self._backends.named(backend)
        if name == "wasm":
            wasm = self._backends.wasm()
            wasm_canaries.measured(wasm, again=again or fresh, on_progress=on_progress)
            weaknesses = (*wasm.enforcer.weaknesses, *group_notes())
            report = summed_report(wasm, weaknesses=weaknesses).require(*require)
            return replace(report, again=lambda progress: self.report(again=True, on_progress=progress, backend="wasm"))
        if name == "dask":
            report = summed_report(self._backends.dask(), host="a worker of the cluster")
            return report.require(*require)
        measured = make_report(self.backend, again=again or fresh, on_progress=on_progress).require(*require)
        if self.here is None:
            return measured
        from sandbox_kernel.workspace.hidden import HIDDEN

        return replace(measured, hidden=HIDDEN)

    def describe_functions(self, language: str | Language = Language.PYTHON) -> str:
        """Return what a model needs to know about the host functions: declarations and documentation."""
        from sandbox_kernel.backends.functions.host_function import describe_functions

        return describe_functions(self._functions, Language.parse(language))

    def destroy(self) -> None:
        """Close all sessions and remove the work folder. Every later call raises ``SandboxDestroyed``."""
        self._destroyed = True
        for session in list(self._sessions):
            session.close()
        if self._owns_folder:
            self._folder.close()
        wait_buried()


def checked_wheels(paths: Iterable[str | os.PathLike[str]], backend: str) -> Wheels | None:
    """Return the given wheels after reading them; imports what that needs only when there are some."""
    if not isinstance(paths, str | os.PathLike) and not (paths := list(paths)):
        return None
    if backend != "wasm":
        raise InvalidRequest(
            f"wheels are loaded into the Python of backend='wasm', and this sandbox has backend={backend!r}; in a "
            "session of processes install packages with %pip install, or choose a Python that has them (python=…)"
        )
    from sandbox_kernel.backends.wasm.wheels import read_wheels

    return read_wheels(paths)


def _fetch_request(
    url: FetchRequest | str,
    method: str,
    headers: Mapping[str, str] | Iterable[tuple[str, str]],
    body: bytes | str | None,
) -> FetchRequest:
    from sandbox_kernel.net.fetch_messages import FetchRequest

    if not isinstance(url, FetchRequest):
        return FetchRequest(url=url, method=method, headers=headers, body=body)
    if method != "GET" or headers or body is not None:
        raise InvalidRequest("a FetchRequest has its own method, headers and body; give them there")
    return url

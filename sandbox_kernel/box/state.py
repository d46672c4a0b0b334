"""State that all parts of a ``Sandbox`` share: policy, backends, network access, work folder and sessions."""

from __future__ import annotations

import copy
import os
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Self

from sandbox_kernel.backends.choice import Backends, known_backend
from sandbox_kernel.backends.process import ProcessBackend
from sandbox_kernel.box.files import BoxFiles
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.languages.recipe import ProcessConfig
from sandbox_kernel.limits import FunctionLimits
from sandbox_kernel.net.egress import Egress, with_placeholders
from sandbox_kernel.policy import SandboxPolicy, check_policy

if TYPE_CHECKING:
    from sandbox_kernel.backends.functions.host_function import HostFunctions
    from sandbox_kernel.backends.wasm.prepare import OnProgress
    from sandbox_kernel.backends.wasm.wheels import Wheels
    from sandbox_kernel.net.egress import AuditRecord, AuditSink
    from sandbox_kernel.net.resolve import Resolver
    from sandbox_kernel.net.secret_headers import Secret
    from sandbox_kernel.session.session import Session


class BoxState(BoxFiles):
    """Base class of the run, session and fetch methods of ``Sandbox``."""

    def __init__(
        self,
        policy: SandboxPolicy | None = None,
        backend: str = "auto",
        *,
        config: ProcessConfig | None = None,
        audit: AuditSink | str | os.PathLike[str] | None = None,
        allow_private_for: Iterable[str] = (),
        resolver: Resolver | None = None,
        secrets: Iterable[Secret] = (),
        here: str | os.PathLike[str] | None = None,
        functions: Mapping[str, Callable[..., object]] | None = None,
        function_limits: FunctionLimits | None = None,
        wheels: Iterable[str | os.PathLike[str]] = (),
    ) -> None:
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
        self._sessions: weakref.WeakSet[Session] = weakref.WeakSet()

    @property
    def backend(self) -> ProcessBackend:
        """The process backend. Every sandbox has one."""
        return self._backends.process

    @backend.setter
    def backend(self, other: ProcessBackend) -> None:
        self._backends.process = other

    @property
    def on_prepare(self) -> OnProgress | None:
        """Progress callback, called with a ``PrepareProgress`` while a wasm language is prepared for its first run."""
        return self._backends.on_prepare

    @on_prepare.setter
    def on_prepare(self, tell: OnProgress | None) -> None:
        self._backends.on_prepare = tell

    def under(self, policy: SandboxPolicy) -> Self:
        """Return this sandbox under another policy: with the same files, functions, sessions and audit log.

        Args:
            policy: The policy of runs and sessions that begin in what is returned.

        """
        check_policy(policy)
        other = copy.copy(self)
        other.policy = policy
        other._backends = self._backends.under(policy)
        return other

    def write_down(self, record: AuditRecord) -> None:
        """Write a record to the audit log of this sandbox, if it has one. Raises ``FetchError`` when that fails."""
        self._egress.write_down(record)

    def offer_functions(self, functions: Mapping[str, Callable[..., object]] | None) -> None:
        """Replace the functions that programs may call. Runs and sessions that begin later have these.

        Args:
            functions: Functions of this process, by name; None for none.

        Raises:
            InvalidRequest: Something is no function, a name cannot be used inside, or a type hint cannot be checked.

        """
        self._functions = checked_functions(functions, self._function_limits)


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


def checked_functions(
    functions: Mapping[str, Callable[..., object]] | None,
    limits: FunctionLimits,
    before: HostFunctions | None = None,
) -> HostFunctions | None:
    """Return the given functions with their checks; imports what that needs only when there are some."""
    if functions is None:
        return before
    from sandbox_kernel.backends.functions.host_function import make_functions

    return make_functions(functions, limits, before=before)

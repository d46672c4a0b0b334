"""Chooses the backend of a run. Each backend of a sandbox is made at its first use, with the sandbox's policy."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sandbox_kernel.backends.process import ProcessBackend, ProcessConfig
from sandbox_kernel.errors import InvalidRequest, install_line
from sandbox_kernel.limits import quoted
from sandbox_kernel.model import ExecRequest, Language
from sandbox_kernel.net.egress import Egress
from sandbox_kernel.policy import SandboxPolicy
from sandbox_kernel.util.values import dataclass
from sandbox_kernel.workspace.given_grants import GivenGrants

if TYPE_CHECKING:
    from sandbox_kernel.backends.dask.dask_backend import DaskBackend
    from sandbox_kernel.backends.wasm.prepare import OnProgress
    from sandbox_kernel.backends.wasm.wasm_backend import WasmBackend
    from sandbox_kernel.backends.wasm.wheels import Wheels

BACKENDS = ("auto", "process", "wasm", "dask")


@dataclass
class Backends:
    """The backends of one sandbox; ``default`` is used for runs that name none."""

    default: str
    policy: SandboxPolicy
    egress: Egress
    config: ProcessConfig | None
    wheels: Wheels | None = None
    #: What the paths of the policy are, for all its backends.
    grants: GivenGrants | None = None
    #: Progress callback for languages that WebAssembly prepares at their first use; see ``WasmBackend``.
    on_prepare: OnProgress | None = None

    def __post_init__(self) -> None:
        known_backend(self.default)
        self.grants = self.grants if self.grants is not None else GivenGrants(self.policy)
        self.process = self._process_with(self.config)
        self._wasm: WasmBackend | None = None

    def under(self, policy: SandboxPolicy) -> Backends:
        """Return the same backends for another policy."""
        same = (policy.allowed_paths, policy.mounts) == (self.policy.allowed_paths, self.policy.mounts)
        return replace(self, policy=policy, config=self.process.config, grants=self.grants if same else None)

    def named(self, backend: str | None) -> str:
        """Return the given backend name after checking it; without one, the default, which may be ``auto``."""
        return known_backend(backend) if backend is not None else self.default

    def choose(
        self, request: ExecRequest, backend: str | None, check: bool = False, python: str | None = None
    ) -> ProcessBackend | WasmBackend | DaskBackend:
        """Return the backend of a run: the named one, else wasm for WebAssembly modules and process for all else."""
        name = self.named(backend)
        if check and request.language is not Language.TYPESCRIPT:
            raise InvalidRequest(f"check is for typescript, not for {request.language}; leave it out")
        if python is not None and request.language is not Language.PYTHON:
            raise InvalidRequest(f"python={python!r} is for python, not for {request.language}; leave it out")
        if python is not None and name == "wasm":
            raise InvalidRequest("python chooses an interpreter of the host, which backend='wasm' does not run")
        if name == "wasm":
            if check or (self.process.config.check_types and request.language is Language.TYPESCRIPT):
                raise InvalidRequest(
                    f"types are checked by deno ({install_line('typescript')}), which backend='wasm' does not run; "
                    "leave check (--check) out, or use backend='process'"
                )
            return self.wasm()
        if check or python is not None:
            # A new backend is cheap: all backends of a process share spares and capabilities.
            config = replace(self.process.config, check_types=check)
            config = config if python is None else replace(config, python_path=python)
            return self.dask(config) if name == "dask" else self._process_with(config)
        if name == "dask":
            return self.dask()
        return self.wasm() if name == "auto" and request.language is Language.WASM else self.process

    def why(self, language: Language, backend: str | None) -> str:
        """Return why ``auto`` chose this backend, for the receipt; empty when the backend was named."""
        if (backend if backend is not None else self.default) != "auto":
            return ""
        if language is Language.WASM:
            return "backend 'auto' took wasm: modules of WebAssembly run nowhere else"
        return f"backend 'auto' took process: {language} runs at full speed there; 'wasm' is the second wall"

    def dask(self, config: ProcessConfig | None = None) -> DaskBackend:
        """Return the Dask backend; its workers use ``config``, by default that of the sandbox."""
        if self.egress.special and (self.policy.network or self.policy.network_rules):
            raise InvalidRequest(
                "audit, allow_private_for, resolver and secrets hold on this machine only, and backend='dask' uses the "
                "network of its workers; leave them out, or use backend='process'"
            )
        from sandbox_kernel.backends.dask.dask_backend import DaskBackend

        return DaskBackend(config=config or self.process.config, policy=self.policy)

    def wasm(self) -> WasmBackend:
        """Return the wasm backend: one for the whole sandbox."""
        from sandbox_kernel.backends.wasm.wasm_backend import WasmBackend  # slow to import and rarely needed

        if self._wasm is None:
            self._wasm = WasmBackend(
                self.policy,
                pool_size=self.process.config.pool_size,
                on_progress=self.on_prepare,
                grants=self.grants,
                proxy=self.egress.proxy,
                wheels=self.wheels,
            )
        return self._wasm

    def _process_with(self, config: ProcessConfig | None) -> ProcessBackend:
        return ProcessBackend(config, policy=self.policy, proxy=self.egress.proxy, grants=self.grants)


def known_backend(name: str) -> str:
    """Return the name if it is a backend. Raises ``InvalidRequest`` with all names otherwise."""
    if name not in BACKENDS:
        raise InvalidRequest(f"unknown backend {quoted(name)}; expected one of: {', '.join(BACKENDS)}")
    return name

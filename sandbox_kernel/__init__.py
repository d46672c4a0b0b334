"""Runs code that was not reviewed, so that it cannot harm the machine, the notebook or the session.

Import every public name from this module. Each name is loaded at its first use: a kernel answers before the rest is.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandbox_kernel.agent.sandbox_tool import SandboxTool as SandboxTool
    from sandbox_kernel.backends.base import (
        BackendCapabilities as BackendCapabilities,
        EnforcedLimits as EnforcedLimits,
        Enforcement as Enforcement,
        SandboxBackend as SandboxBackend,
        validate_policy as validate_policy,
    )
    from sandbox_kernel.backends.dask.dask_backend import DaskBackend as DaskBackend
    from sandbox_kernel.backends.process import ProcessBackend as ProcessBackend, ProcessConfig as ProcessConfig
    from sandbox_kernel.backends.wasm.wasm_backend import WasmBackend as WasmBackend
    from sandbox_kernel.box.sandbox import Sandbox as Sandbox
    from sandbox_kernel.errors import (
        BackendUnavailable as BackendUnavailable,
        CheckpointGone as CheckpointGone,
        CommandNotFound as CommandNotFound,
        Conflict as Conflict,
        EnforcerFailed as EnforcerFailed,
        EnforcerUnavailable as EnforcerUnavailable,
        ExecutionFailed as ExecutionFailed,
        FetchError as FetchError,
        InvalidRequest as InvalidRequest,
        MemoryExceeded as MemoryExceeded,
        NetworkingDisabled as NetworkingDisabled,
        NotAsShown as NotAsShown,
        PathTraversal as PathTraversal,
        PolicyViolation as PolicyViolation,
        SandboxDestroyed as SandboxDestroyed,
        SandboxError as SandboxError,
        SandboxTimeout as SandboxTimeout,
        SessionError as SessionError,
    )
    from sandbox_kernel.jail.enforcer import Enforcer as Enforcer, get_enforcer as get_enforcer
    from sandbox_kernel.languages.recipe import Availability as Availability
    from sandbox_kernel.limits import FunctionLimits as FunctionLimits, Limits as Limits
    from sandbox_kernel.model import (
        Call as Call,
        CallOutcome as CallOutcome,
        CellError as CellError,
        Display as Display,
        ExecRequest as ExecRequest,
        ExecResult as ExecResult,
        FsChange as FsChange,
        Language as Language,
        Status as Status,
        Violation as Violation,
    )
    from sandbox_kernel.net.fetch_messages import FetchRequest as FetchRequest, FetchResponse as FetchResponse
    from sandbox_kernel.net.fetch_policy import DomainPattern as DomainPattern, FetchPolicy as FetchPolicy
    from sandbox_kernel.net.safe_client import SafeClient as SafeClient
    from sandbox_kernel.net.secret_headers import Secret as Secret
    from sandbox_kernel.policy import (
        AccessMode as AccessMode,
        AllowedPath as AllowedPath,
        Mount as Mount,
        SandboxPolicy as SandboxPolicy,
    )
    from sandbox_kernel.policy.network_rule import NetworkRule as NetworkRule
    from sandbox_kernel.report.capability_report import CapabilityReport as CapabilityReport
    from sandbox_kernel.session.saved_file import SaveReport as SaveReport
    from sandbox_kernel.session.session import Session as Session
    from sandbox_kernel.session.tree.node import Node as Node
    from sandbox_kernel.session.tree.time_travel import Exploration as Exploration
    from sandbox_kernel.workspace.manifest import Manifest as Manifest
    from sandbox_kernel.workspace.tree.walk import DirEntry as DirEntry

__version__ = "0.1.0"

_HOMES = {
    "agent.sandbox_tool": "SandboxTool",
    "backends.base": "BackendCapabilities EnforcedLimits Enforcement SandboxBackend validate_policy",
    "backends.dask.dask_backend": "DaskBackend",
    "backends.process": "ProcessBackend ProcessConfig",
    "backends.wasm.wasm_backend": "WasmBackend",
    "errors": "BackendUnavailable CheckpointGone CommandNotFound Conflict EnforcerFailed EnforcerUnavailable "
    "ExecutionFailed FetchError InvalidRequest MemoryExceeded NetworkingDisabled NotAsShown PathTraversal "
    "PolicyViolation SandboxDestroyed SandboxError SandboxTimeout SessionError",
    "jail.enforcer": "Enforcer get_enforcer",
    "languages.recipe": "Availability",
    "limits": "FunctionLimits Limits",
    "model": "Call CallOutcome CellError Display ExecRequest ExecResult FsChange Language Status Violation",
    "net.fetch_messages": "FetchRequest FetchResponse",
    "net.fetch_policy": "DomainPattern FetchPolicy",
    "net.safe_client": "SafeClient",
    "net.secret_headers": "Secret",
    "policy.network_rule": "NetworkRule",
    "policy": "AccessMode AllowedPath Mount SandboxPolicy",
    "report.capability_report": "CapabilityReport",
    "box.sandbox": "Sandbox",
    "session.saved_file": "SaveReport",
    "session.session": "Session",
    "session.tree.node": "Node",
    "session.tree.time_travel": "Exploration",
    "workspace.manifest": "Manifest",
    "workspace.tree.walk": "DirEntry",
}
_HOME_OF = {name: f"sandbox_kernel.{home}" for home, names in _HOMES.items() for name in names.split()}

__all__ = ["__version__", *_HOME_OF]


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def load_ipython_extension(shell: object) -> None:
    """``%load_ext sandbox_kernel``: add the ``%%sandbox`` magic to IPython, the same as in the Sandbox kernel."""
    from sandbox_kernel.notebook.magics import load

    load(shell)


def unload_ipython_extension(shell: object) -> None:
    """``%unload_ext sandbox_kernel``: close the sandboxes that the magic opened."""
    from sandbox_kernel.notebook.magics import unload

    unload(shell)

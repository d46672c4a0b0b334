"""Run code nobody has vetted, so that it cannot hurt the machine, the notebook or the session."""

from sandbox_kernel.backends.base import (
    BackendCapabilities,
    EnforcedLimits,
    Enforcement,
    SandboxBackend,
    validate_policy,
)
from sandbox_kernel.backends.process import ProcessBackend
from sandbox_kernel.errors import (
    BackendUnavailable,
    CommandNotFound,
    EnforcerFailed,
    EnforcerUnavailable,
    ExecutionFailed,
    FetchError,
    InvalidRequest,
    MemoryExceeded,
    NetworkingDisabled,
    PathTraversal,
    PolicyViolation,
    SandboxDestroyed,
    SandboxError,
    SandboxTimeout,
    SessionError,
)
from sandbox_kernel.jail.enforcer import Enforcer, get_enforcer
from sandbox_kernel.languages.recipe import Availability, ProcessConfig
from sandbox_kernel.limits import Limits
from sandbox_kernel.model import (
    CellError,
    Display,
    ExecRequest,
    ExecResult,
    FsChange,
    Language,
    Status,
    Violation,
)
from sandbox_kernel.policy import AccessMode, AllowedPath, Mount, NetworkRule, SandboxPolicy
from sandbox_kernel.sandbox import Sandbox

__version__ = "0.1.0"

__all__ = [
    "AccessMode",
    "AllowedPath",
    "Availability",
    "BackendCapabilities",
    "BackendUnavailable",
    "CellError",
    "CommandNotFound",
    "Display",
    "EnforcedLimits",
    "Enforcement",
    "Enforcer",
    "EnforcerFailed",
    "EnforcerUnavailable",
    "ExecRequest",
    "ExecResult",
    "ExecutionFailed",
    "FetchError",
    "FsChange",
    "InvalidRequest",
    "Language",
    "Limits",
    "MemoryExceeded",
    "Mount",
    "NetworkRule",
    "NetworkingDisabled",
    "PathTraversal",
    "PolicyViolation",
    "ProcessBackend",
    "ProcessConfig",
    "Sandbox",
    "SandboxBackend",
    "SandboxDestroyed",
    "SandboxError",
    "SandboxPolicy",
    "SandboxTimeout",
    "SessionError",
    "Status",
    "Violation",
    "__version__",
    "get_enforcer",
    "validate_policy",
]

"""Run code nobody has vetted, so that it cannot hurt the machine, the notebook or the session."""

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

__version__ = "0.1.0"

__all__ = [
    "AccessMode",
    "AllowedPath",
    "BackendUnavailable",
    "CellError",
    "CommandNotFound",
    "Display",
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
    "SandboxDestroyed",
    "SandboxError",
    "SandboxPolicy",
    "SandboxTimeout",
    "SessionError",
    "Status",
    "Violation",
    "__version__",
]

"""Every way in which a request can fail to be run as asked.

What happens *inside* a sandbox is a result; an exception of this tree means that the request itself was wrong, or that
this host could not run it as the policy demands. Each carries a stable ``code`` for machines and a message that names
what was asked, what stopped it and what to do next. All are picklable, because results and errors cross processes
(dask, papermill, multiprocessing).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandbox_kernel.model import ExecResult

_TIMED_OUT = "execution timed out after {timeout:g}s"
_MEMORY = "memory limit exceeded: {limit_mb} MB"
_ENFORCER_FAILED = "enforcer '{enforcer}' failed: {message}"
_ENFORCER_UNAVAILABLE = "enforcer '{enforcer}' unavailable: {message}"


class SandboxError(Exception):
    """Root of the tree; ``code`` is stable and safe to match on."""

    code = "code.sandbox_error"

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.args, self.__dict__.copy()))


def _rebuild(kind: type[SandboxError], args: tuple[object, ...], state: dict[str, object]) -> SandboxError:
    """Unpickle without calling a constructor whose arguments are not the message."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class SandboxTimeout(SandboxError):
    """Raised by ``ExecResult.raise_for_status`` for a run that hit its wall-clock limit."""

    code = "code.sandbox_timeout"

    def __init__(self, timeout: float, result: ExecResult | None = None) -> None:
        super().__init__(_TIMED_OUT.format(timeout=timeout))
        self.timeout = timeout
        self.result = result


class MemoryExceeded(SandboxError):
    """Raised by ``ExecResult.raise_for_status`` for a run that hit its memory limit."""

    code = "code.sandbox_memory"

    def __init__(self, limit_mb: int, result: ExecResult | None = None) -> None:
        super().__init__(_MEMORY.format(limit_mb=limit_mb))
        self.limit_mb = limit_mb
        self.result = result


class ExecutionFailed(SandboxError):
    """The program did not end well (``raise_for_status``), or the host failed while running it."""

    code = "code.sandbox_execution"

    def __init__(self, message: str, result: ExecResult | None = None) -> None:
        super().__init__(message)
        self.result = result


class InvalidRequest(SandboxError):
    """The request is malformed; nothing was started."""

    code = "code.sandbox_invalid_request"


class BackendUnavailable(SandboxError):
    """The backend or the language cannot run on this host; the message says how to get it."""

    code = "code.sandbox_unavailable"


class EnforcerFailed(SandboxError):
    """The enforcer was there but could not build the walls for this request; nothing of the user's ran."""

    code = "code.sandbox_enforcer_failed"

    def __init__(self, enforcer: str, message: str) -> None:
        super().__init__(_ENFORCER_FAILED.format(enforcer=enforcer, message=message))
        self.enforcer = enforcer
        self.message = message


class EnforcerUnavailable(SandboxError):
    """The enforcer does not work on this host, with the reason that its probe met and the remedy."""

    code = "code.sandbox_enforcer_unavailable"

    def __init__(self, enforcer: str, message: str) -> None:
        super().__init__(_ENFORCER_UNAVAILABLE.format(enforcer=enforcer, message=message))
        self.enforcer = enforcer
        self.message = message


class PolicyViolation(SandboxError):
    """The policy asks for what cannot be granted or enforced; nothing was started."""

    code = "code.sandbox_policy_violation"


class PathTraversal(SandboxError):
    """A path leaves the work folder (``..``, absolute, through a link); nothing was read or written."""

    code = "code.sandbox_path_traversal"


class CommandNotFound(SandboxError):
    """The named command exists neither in the sandbox nor in the toolbox."""

    code = "code.sandbox_command_not_found"


class NetworkingDisabled(SandboxError):
    """A fetch was asked for and the policy allows no network at all."""

    code = "code.sandbox_networking_disabled"


class FetchError(SandboxError):
    """The fetch policy refused a request, or it failed on the way; ``rule`` names which rule."""

    code = "code.sandbox_fetch"

    def __init__(self, message: str, *, rule: str = "http_error") -> None:
        super().__init__(message)
        self.rule = rule


class SandboxDestroyed(SandboxError):
    """The sandbox was closed; make a new one."""

    code = "code.sandbox_destroyed"


class SessionError(SandboxError):
    """The session cannot go on as asked: its worker is gone, spoke nonsense, or has no such checkpoint."""

    code = "code.sandbox_session"


class CheckpointGone(SessionError):
    """A checkpoint that was asked for was killed, by the session itself or for memory; the message says what is left.

    Where nothing was taken back, the session is as it was.
    """

    code = "code.sandbox_checkpoint_gone"

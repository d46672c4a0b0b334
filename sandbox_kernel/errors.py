"""The exceptions of this package.

What happens *inside* a sandbox is a result. An exception means that the request was wrong, or that this host could not
run it as the policy demands. Each has a stable ``code`` and a message that names what was asked, what stopped it and
what to do next. All can be pickled: results and errors cross process borders (dask, papermill, multiprocessing).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandbox_kernel.model import ExecResult


def install_line(extra: str) -> str:
    """Return the command that brings an optional part of this package, an extra of ``pyproject.toml``."""
    return f"pip install 'sandbox-kernel[{extra}]'"


class SandboxError(Exception):
    """Base class of all exceptions here. ``code`` is stable and safe to match on."""

    code = "code.sandbox_error"

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.args, self.__dict__.copy()))


def _rebuild(kind: type[SandboxError], args: tuple[object, ...], state: dict[str, object]) -> SandboxError:
    """Unpickle an error without calling its constructor, whose arguments are not ``args``."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class SandboxTimeout(SandboxError):
    """Raised by ``ExecResult.raise_for_status`` for a run that reached its time limit; ``timeout`` is in seconds."""

    code = "code.sandbox_timeout"

    def __init__(self, timeout: float, result: ExecResult | None = None) -> None:
        super().__init__(f"execution timed out after {timeout:g}s")
        self.timeout, self.result = timeout, result


class MemoryExceeded(SandboxError):
    """Raised by ``ExecResult.raise_for_status`` for a run that reached its memory limit."""

    code = "code.sandbox_memory"

    def __init__(self, limit_mb: int, result: ExecResult | None = None) -> None:
        super().__init__(f"memory limit exceeded: {limit_mb} MB")
        self.limit_mb, self.result = limit_mb, result


class ExecutionFailed(SandboxError):
    """The program failed (raised by ``raise_for_status``), or the host failed while running it."""

    code = "code.sandbox_execution"

    def __init__(self, message: str, result: ExecResult | None = None) -> None:
        super().__init__(message)
        self.result = result


class InvalidRequest(SandboxError):
    """The request is malformed; nothing was started."""

    code = "code.sandbox_invalid_request"


class BackendUnavailable(SandboxError):
    """The backend or the language cannot run on this host; the message says how to install it."""

    code = "code.sandbox_unavailable"

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(f"{reason}; {remedy}" if remedy else reason)
        self.reason, self.remedy = reason, remedy


class EnforcerFailed(SandboxError):
    """The enforcer works on this host but could not build the walls for this request; the program did not run."""

    code = "code.sandbox_enforcer_failed"

    def __init__(self, enforcer: str, message: str) -> None:
        super().__init__(f"enforcer '{enforcer}' failed: {message}")
        self.enforcer, self.message = enforcer, message


class EnforcerUnavailable(SandboxError):
    """The enforcer does not work on this host; the message says why, and how to change that."""

    code = "code.sandbox_enforcer_unavailable"

    def __init__(self, enforcer: str, message: str) -> None:
        super().__init__(f"enforcer '{enforcer}' unavailable: {message}")
        self.enforcer, self.message = enforcer, message


class PolicyViolation(SandboxError):
    """The policy asks for something that cannot be granted or enforced; nothing was started."""

    code = "code.sandbox_policy_violation"


class PathTraversal(SandboxError):
    """A path leads out of the work folder (``..``, absolute, through a link); nothing was read or written."""

    code = "code.sandbox_path_traversal"


class CommandNotFound(SandboxError):
    """The named command exists neither in the sandbox nor in the toolbox."""

    code = "code.sandbox_command_not_found"


class NetworkingDisabled(SandboxError):
    """A fetch was requested, but the policy allows no network."""

    code = "code.sandbox_networking_disabled"


class FetchError(SandboxError):
    """The fetch policy refused a request by its ``rule``, or the request failed (``http_error``)."""

    code = "code.sandbox_fetch"

    def __init__(self, message: str, *, rule: str = "http_error") -> None:
        super().__init__(message)
        self.rule = rule


class SandboxDestroyed(SandboxError):
    """The sandbox was closed; make a new one."""

    code = "code.sandbox_destroyed"


class Conflict(SandboxError):
    """Files of the user (``paths``) changed since a program changed its version of them; nothing was written."""

    code = "code.sandbox_conflict"

    def __init__(self, paths: Iterable[str]) -> None:
        self.paths = tuple(sorted(paths))
        shown = ", ".join(repr(path)[1:-1] for path in self.paths[:5]) + (", …" if len(self.paths) > 5 else "")
        super().__init__(
            f"the folder has changed meanwhile, so nothing was written: {shown}; look at your version and at the "
            "sandbox's (%sandbox changes, --diff FILE, box.patch()), then discard those changes, or move your version "
            "away and apply again"
        )


class NotAsShown(SandboxError):
    """The changes to the user's folder are not those that were shown; nothing was written."""

    code = "code.sandbox_not_as_shown"

    def __init__(self) -> None:
        super().__init__(
            "the changes are not those that you were shown: a program has changed more since, so nothing was written; "
            "look at them as they are now, then apply again"
        )


class SessionError(SandboxError):
    """The session cannot go on: its worker is gone or broke the protocol, or the checkpoint does not exist."""

    code = "code.sandbox_session"


class CheckpointGone(SessionError):
    """A requested checkpoint was killed; the message says which are left. The session is unchanged or rolled back."""

    code = "code.sandbox_checkpoint_gone"

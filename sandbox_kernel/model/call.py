"""A call of a host function by a program, as it is written down in ``ExecResult.calls``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum

from sandbox_kernel.ground.values import dataclass


class CallOutcome(StrEnum):
    """How a call of a host function ended."""

    #: The function returned, or its stream was begun.
    OK = "ok"
    #: The function raised an exception, or returned something that cannot be sent.
    ERROR = "error"
    #: The function was not called: an unknown name, wrong arguments, or a used-up budget.
    REFUSED = "refused"
    #: The time for functions was used up while the function ran.
    TIMEOUT = "timeout"
    #: The run or cell ended while the function ran.
    CANCELLED = "cancelled"


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of a host function.

    Args:
        name: The name of the function, as the program gave it.
        arguments: The arguments by the names of their parameters; long values are shortened.
        outcome: How the call ended.
        duration: Seconds that the function took.
        error: Type and message of the exception that the program got; empty when there was none.

    """

    name: str
    arguments: Mapping[str, object] = field(default_factory=dict)
    outcome: CallOutcome
    duration: float = 0.0
    error: str = ""

    @property
    def happened(self) -> bool:
        """Whether the function was called, so that it may have had effects outside the sandbox."""
        return self.outcome is not CallOutcome.REFUSED

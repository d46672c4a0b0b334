"""The exception for a request that the policy refused, with the option that would allow it."""

from __future__ import annotations

from sandbox_kernel.errors import FetchError
from sandbox_kernel.model import Violation


class FetchRefused(FetchError):
    """The policy refused a request. A ``FetchError`` that also carries the ``Violation`` for the result."""

    def __init__(self, violation: Violation) -> None:
        super().__init__(sentence(violation), rule=violation.rule)
        self.violation = violation


def refused(rule: str, subject: str, reason: str, remedy: str = "") -> FetchRefused:
    """Return a ``FetchRefused`` for a violation with these fields."""
    return FetchRefused(Violation(rule=rule, subject=subject, reason=reason, remedy=remedy))


def sentence(violation: Violation) -> str:
    """Return the violation as one line of text."""
    advice = f"; to allow it: {violation.remedy}" if violation.remedy else ""
    return f"{violation.subject} was refused ({violation.rule}): {violation.reason}{advice}"

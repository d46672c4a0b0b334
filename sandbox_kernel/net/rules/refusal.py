"""A refusal as an exception: what the policy said no to, with the line that would allow it."""

from __future__ import annotations

from sandbox_kernel.errors import FetchError
from sandbox_kernel.model import Violation


class FetchRefused(FetchError):
    """The policy refused. A ``FetchError`` that also carries the ``Violation`` that a result shows."""

    def __init__(self, violation: Violation) -> None:
        super().__init__(sentence(violation), rule=violation.rule)
        self.violation = violation


def refused(rule: str, subject: str, reason: str, remedy: str = "") -> FetchRefused:
    """Short for raising a ``FetchRefused`` made of these words."""
    return FetchRefused(Violation(rule=rule, subject=subject, reason=reason, remedy=remedy))


def sentence(violation: Violation) -> str:
    """The violation as one line for people."""
    advice = f"; to allow it: {violation.remedy}" if violation.remedy else ""
    return f"{violation.subject} was refused ({violation.rule}): {violation.reason}{advice}"

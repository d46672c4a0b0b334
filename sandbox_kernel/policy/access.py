"""Words of a policy that both the policy itself and its documents use."""

from __future__ import annotations

from enum import StrEnum

from sandbox_kernel.errors import PolicyViolation
from sandbox_kernel.limits import quoted


class AccessMode(StrEnum):
    """How an allowed path may be used."""

    READ_ONLY = "readOnly"
    READ_WRITE = "readWrite"


def flag(value: object, what: str) -> bool:
    """A switch of a policy: a word like 'no' is true in Python, so only true and false are taken."""
    if not isinstance(value, bool):
        raise PolicyViolation(f"{what} must be true or false, got {quoted(value)}")
    return value

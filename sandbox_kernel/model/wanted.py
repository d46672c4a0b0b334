"""What a program lacked: a domain that it may not reach, or a file of the user that it does not see.

A value for code that offers the right to the user; sentences about it are notes. It comes from what the program tried
or wrote, so it is a guess of what it wanted and never a reason to give it.
"""

from __future__ import annotations

from enum import StrEnum, unique

from sandbox_kernel.ground.values import dataclass


@unique
class WantedKind(StrEnum):
    """What kind of right a program lacked."""

    DOMAIN = "domain"
    FILE = "file"


@dataclass(frozen=True)
class Wanted:
    """One right that a program lacked.

    Args:
        kind: What kind of right.
        what: The domain, with its port if that is unusual; or the path of a file, relative to the user's folder.

    """

    kind: WantedKind
    what: str

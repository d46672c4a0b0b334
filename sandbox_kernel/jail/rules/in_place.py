"""For walls that cannot mount: Landlock, Seatbelt and AppContainer show every path where it is, or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable

from sandbox_kernel.errors import PolicyViolation
from sandbox_kernel.policy import Grant


def in_place_paths(grants: Iterable[Grant], enforcer: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split grants into what may be read and what may be written; a place that would need a mount is refused.

    A target that is a link to its source is in place: the program follows the link as everybody does.
    """
    reads: list[str] = []
    writes: list[str] = []
    for grant in grants:
        if os.path.realpath(grant.target) != grant.source:
            method = "allow_read_write" if grant.writable else "allow_read"
            raise PolicyViolation(
                f"{grant.source!r} cannot be shown at {grant.target!r}: the enforcer '{enforcer}' cannot mount; "
                f"allow it where it is: policy.{method}({grant.source!r}), or use bubblewrap on Linux"
            )
        (writes if grant.writable else reads).append(grant.source)
    return tuple(dict.fromkeys(reads)), tuple(dict.fromkeys(writes))

"""Paths for an enforcer that cannot mount (Landlock): a host path appears inside at the same path, or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable

from sandbox_kernel.errors import PolicyViolation
from sandbox_kernel.policy import Grant


def in_place_paths(grants: Iterable[Grant], enforcer: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the paths that may be read and those that may be written. Raises ``PolicyViolation`` if one needs a mount.

    A target that is a link to its source needs none: the program follows the link.
    """
    reads: list[str] = []
    writes: list[str] = []
    for grant in grants:
        if os.path.realpath(grant.target) != grant.source:
            method = "allow_read_write" if grant.writable else "allow_read"
            option = f"--mount {grant.source}:{grant.source}{':rw' if grant.writable else ''}"
            raise PolicyViolation(
                f"{grant.source!r} cannot be shown at {grant.target!r}: the enforcer '{enforcer}' cannot mount; "
                f"allow it where it is: {option}, policy.{method}({grant.source!r}), or use bubblewrap on Linux"
            )
        (writes if grant.writable else reads).append(grant.source)
    return tuple(dict.fromkeys(reads)), tuple(dict.fromkeys(writes))

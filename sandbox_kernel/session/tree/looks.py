"""What is known of the variables at each node, and how two nodes differ. Pure.

A look names every variable with its type, a mark that changes with its value, and a few words. Only what differs from
the nearest looked-at ancestor is kept at a node. Looks come out of the jail: they say what the session claims, and are
only ever shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from sandbox_kernel.session.tree.node import Changes

#: What a worker reports of one variable: its type, a mark that changes with its value, and a few words.
Seen = tuple[str, str, str]
#: The most variables of one look. One that has so many may lack others.
MOST_SEEN = 10_000


@dataclass(frozen=True)
class LookDelta:
    """How the variables at a node differ from those at the nearest ancestor that was looked at."""

    there: Mapping[str, Seen] = field(default_factory=dict)
    gone: tuple[str, ...] = ()


def delta(before: Mapping[str, Seen], after: Mapping[str, Seen]) -> LookDelta:
    """Return how a look differs from an earlier one."""
    there = {name: seen for name, seen in after.items() if before.get(name) != seen}
    return LookDelta(there, tuple(name for name in before if name not in after))


def apply(before: Mapping[str, Seen], found: LookDelta) -> dict[str, Seen]:
    """Return the later look from an earlier one and the difference."""
    later = {**before, **found.there}
    for name in found.gone:
        later.pop(name, None)
    return later


def same(before: Seen, after: Seen) -> bool | None:
    """Whether a variable has the same value in both; None when that cannot be known (only its address was seen)."""
    if before[:2] == after[:2]:
        return None if before[1].startswith("@") else True
    if before[0] == after[0] and before[1].startswith("@") != after[1].startswith("@"):
        # Measured once and once not: the look had no time, or the value has become too large.
        return None
    return False


def changes(before: Mapping[str, Seen], after: Mapping[str, Seen]) -> Changes:
    """Return which variables differ between two looks. What a look may lack is not called added or removed."""
    cut = [len(look) >= MOST_SEEN for look in (before, after)]
    both = {name: same(before[name], after[name]) for name in after if name in before}
    return Changes(
        added=() if cut[0] else tuple(name for name in after if name not in before),
        changed=tuple(name for name, equal in both.items() if equal is False),
        removed=() if cut[1] else tuple(name for name in before if name not in after),
        unsure=tuple(name for name, equal in both.items() if equal is None),
        unknown=f"only the first {MOST_SEEN} variables were looked at" if any(cut) else "",
    )


class ValueChange(NamedTuple):
    """A variable in two states, each in a few words."""

    before: str
    after: str


def words(seen: Seen) -> str:
    """Return a variable in a few words: its type and its value."""
    kind, _, text = seen
    return f"{kind} {text}".strip()

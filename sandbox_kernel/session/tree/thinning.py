"""Which state is given up first when there are too many, or when they hold too much memory. Pure.

Named states and the tips of branches stay longest, then those near the present one. Of the rest, the states are spaced
ever wider into the past: the one whose loss makes the smallest gap for its age goes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class LivingNode:
    """A node that could be given up.

    Attributes:
        id: its number; a larger one is younger.
        steps_back: how many cells before the present state, when ``undo`` can reach it; None for all others.
        named: whether the user named it.
        tip: whether it is the end of a branch.

    """

    id: int
    steps_back: int | None
    named: bool
    tip: bool


def first_to_go(candidates: Sequence[LivingNode], *, newest: int, for_memory: bool) -> int | None:
    """Return the number of the node to give up first; None when nothing may go.

    Args:
        candidates: all living nodes but the present one.
        newest: the number that the next node will get.
        for_memory: whether memory is short. Then states that ``undo`` can reach may go as well, and at last all.

    """
    spare = [node for node in candidates if node.steps_back is None and not (node.named or node.tip)]
    if spare:
        gaps = _gaps(sorted(node.id for node in candidates), newest)
        return min(spare, key=lambda node: (gaps[node.id], node.id)).id
    near = [node for node in candidates if node.steps_back is not None and not node.named]
    if for_memory:
        farther = [node for node in near if node.steps_back is not None and node.steps_back > 1]
        if farther:
            return min(farther, key=lambda node: node.id).id
    tips = [node for node in candidates if node.steps_back is None and not node.named]
    # The beginning goes last: it holds little, and what was given up is made again from there if from nowhere else.
    named = [node for node in candidates if node.named and node.id]
    beginning = [node for node in candidates if node.named and not node.id]
    for group in (tips, near if for_memory else [], named, beginning):
        if group:
            return min(group, key=lambda node: node.id).id
    return None


def _gaps(living: Sequence[int], newest: int) -> dict[int, float]:
    """Return for each node, oldest first, how wide a hole its loss leaves, measured against its age."""
    older, younger = (0, *living), (*living[1:], newest)
    return {
        node: (after - before) / max(1, newest - node)
        for node, before, after in zip(living, older, younger, strict=False)
    }

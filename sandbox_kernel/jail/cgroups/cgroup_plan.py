"""Decides where to make the groups of sandboxes in version 2: a pure function that returns plans to try.

The kernel passes controllers on only below a group without processes of its own (the root group is the exception).
Processes of others are never moved, so these plans remain, the best first:

1. our own group, if it passes controllers on already, or if this process is alone in it and can move below it;
2. the nearest group above that passes them on already;
3. the nearest group without processes that could.

With the last two, a sandbox is outside of our own group and of its limits, so the same limits are set on the place that
is made there. Groups that sandbox-kernel made are skipped: the child of a host that has moved makes its place beside
its parent's, not below it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

from sandbox_kernel.ground.values import dataclass
from sandbox_kernel.jail.cgroups.cgroup_tree import Group

#: The prefix of all our groups, and the longer prefix of the place of a host process.
GROUP_PREFIX = "sandbox-kernel-"
PLACE_PREFIX = f"{GROUP_PREFIX}host-"

#: The controllers for leaves, the best first. Memory alone is still better than a watchdog.
_WISHES = (("memory", "pids"), ("memory",))


@dataclass(frozen=True)
class PlacePlan:
    """One way to make a place for leaves."""

    #: The group in which the place is made.
    parent: str
    #: The controllers for the leaves; empty in version 1, where each hierarchy has its own.
    controllers: tuple[str, ...] = ()
    #: Whether the parent must be set to pass them on.
    enable: bool = False
    #: Whether this process must first move from the parent into its place.
    move: bool = False
    #: The limits of the groups that contain this process but not its sandboxes.
    limits: Mapping[str, str] = field(default_factory=dict)


def plans(chain: Sequence[Group], pid: int) -> tuple[PlacePlan, ...]:
    """Return the plans to try, the best first. ``chain`` is our own group and those above it, ``pid`` this process."""
    return tuple(plan for wish in _WISHES for plan in _plans(chain, pid, wish))


def why_none(chain: Sequence[Group], pid: int) -> str:
    """Return why ``plans`` found nothing, as part of a sentence."""
    outer = chain[_depth_of_our_places(chain) :]
    if not any("memory" in group.controllers for group in outer):
        return "no control group that this process can see has the memory controller"
    own = outer[0]
    if not own.writable:
        return f"this process may not make control groups in its own, {own.folder}"
    if "memory" not in own.controllers:
        return f"its control group {own.folder} has no memory controller, and those above it may not be written"
    if own.processes != (pid,):
        return f"other processes live in its control group {own.folder}, and the kernel limits only below an empty one"
    return f"its control group {own.folder} is of the kind {own.kind!r}, which limits no memory"


def _plans(chain: Sequence[Group], pid: int, wish: tuple[str, ...]) -> Iterator[PlacePlan]:
    start, wanted = _depth_of_our_places(chain), set(wish)
    usable = [
        (index, group)
        for index, group in enumerate(chain)
        if index >= start and group.writable and group.kind in ("", "domain")
    ]
    for index, group in usable:
        alone = group.processes == (pid,) and group.kind
        if index == 0 and alone and wanted <= group.controllers and not wanted <= group.enabled:
            yield PlacePlan(group.folder, wish, enable=True, move=True)
    for index, group in usable:
        if wanted <= group.enabled:
            yield PlacePlan(group.folder, wish, limits=tightest(chain[:index]))
    for index, group in usable:
        empty = group.processes == () or not group.kind
        if empty and wanted <= group.controllers and not wanted <= group.enabled:
            yield PlacePlan(group.folder, wish, enable=True, limits=tightest(chain[:index]))


def _depth_of_our_places(chain: Sequence[Group]) -> int:
    """Return how many groups at the start of the chain are places of sandbox-kernel, or below one."""
    ours = [index for index, group in enumerate(chain) if os.path.basename(group.folder).startswith(PLACE_PREFIX)]
    return max(ours, default=-1) + 1


def tightest(left: Sequence[Group]) -> dict[str, str]:
    """Combine the limits of nested groups into the limits of one group. The innermost group comes first."""
    found: dict[str, str] = {}
    for group in left:
        for name, value in group.limits.items():
            if name not in found or _narrower(name, value, found[name]):
                found[name] = value
    return found


def _narrower(name: str, value: str, than: str) -> bool:
    if name.startswith("cpuset."):
        return False  # the nearest one already lies within those above it
    return _share(value) < _share(than)


def _share(value: str) -> float:
    """Return a number; for ``cpu.max``, which has two, their quotient."""
    first, *rest = value.split()
    return int(first) / int(rest[0]) if rest else int(first)

"""Reads which control groups this process is in and what it may do with them, from /proc and /sys. Changes nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field

from sandbox_kernel.ground.values import dataclass
from sandbox_kernel.jail.cgroups.cgroup_files import read

#: Limits of a version 2 group that would not apply to a sandbox outside of it.
LIMITS = (
    "memory.max", "memory.high", "memory.swap.max", "pids.max", "cpu.max", "cpuset.cpus", "cpuset.mems",
)  # fmt: skip


@dataclass(frozen=True)
class Group:
    """One version 2 group as this process sees it."""

    folder: str
    #: The controllers that the group may pass on to its children, and those that it does pass on.
    controllers: frozenset[str] = frozenset()
    enabled: frozenset[str] = frozenset()
    #: The processes directly in it. 0 stands for one that this process cannot see; None: the list cannot be read.
    processes: tuple[int, ...] | None = ()
    #: Whether this process may make groups in it, pass controllers on and move processes.
    writable: bool = True
    #: ``cgroup.type``: ``domain`` for an ordinary group, empty for the root of the machine.
    kind: str = "domain"
    #: The limits that are set on it, by the names of their files.
    limits: Mapping[str, str] = field(default_factory=dict)


def own_groups() -> dict[str, str]:
    """Return our own group in each hierarchy: controller name (``""`` for version 2) to path."""
    groups: dict[str, str] = {}
    for line in own_groups_text().splitlines():
        _, controllers, path = line.split(":", 2)
        for name in controllers.split(","):
            groups[name] = path
    return groups


def own_groups_text() -> str:
    """Return the content of /proc/self/cgroup."""
    return read("/proc/self/cgroup")


def mounts() -> dict[str, tuple[str, str]]:
    """Return the mounted hierarchies: controller name (``""`` for version 2) to mount point and mounted group."""
    found: dict[str, tuple[str, str]] = {}
    for line in read("/proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        fields, (kind, _, options) = before.split(), after.split(" ", 2)
        if kind == "cgroup2":
            found.setdefault("", (fields[4], fields[3]))
        elif kind == "cgroup":
            for option in options.split(","):
                found.setdefault(option, (fields[4], fields[3]))
    return found


def own_folder(name: str, groups: Mapping[str, str], mounted: Mapping[str, tuple[str, str]]) -> str | None:
    """Return the folder of our own group in one hierarchy; None if it is not mounted or not visible."""
    if name not in groups or name not in mounted:
        return None
    point, root = mounted[name]
    path = groups[name]
    relative = path[len(root) :] if root != "/" and (path + "/").startswith(root + "/") else path
    folder = os.path.normpath(point + "/" + relative)
    # A control group namespace shows a group above its root as "/..".
    return folder if ".." not in path.split("/") and os.path.isdir(folder) else None


def own_chain(groups: Mapping[str, str], mounted: Mapping[str, tuple[str, str]]) -> tuple[Group, ...]:
    """Return our own version 2 group and all mounted groups above it, the nearest first; empty if there is none."""
    folder = own_folder("", groups, mounted)
    if folder is None:
        return ()
    top = os.path.normpath(mounted[""][0])
    found = [look(folder)]
    while folder != top:
        folder = os.path.dirname(folder)
        found.append(look(folder))
    return tuple(found)


def look(folder: str) -> Group:
    """Read one version 2 group."""
    processes = _text(f"{folder}/cgroup.procs")
    kind = _text(f"{folder}/cgroup.type")
    values = {name: (_text(f"{folder}/{name}") or "").strip() for name in LIMITS}
    return Group(
        folder=folder,
        controllers=frozenset((_text(f"{folder}/cgroup.controllers") or "").split()),
        enabled=frozenset((_text(f"{folder}/cgroup.subtree_control") or "").split()),
        processes=None if processes is None else tuple(map(int, processes.split())),
        writable=all(
            os.access(path, os.W_OK) for path in (folder, f"{folder}/cgroup.procs", f"{folder}/cgroup.subtree_control")
        ),
        kind="" if kind is None else kind.strip(),
        limits={name: value for name, value in values.items() if value and value.split()[0] != "max"},
    )


def _text(path: str) -> str | None:
    try:
        return read(path)
    except OSError:
        return None

"""Control groups: where this host lets us make a leaf for each sandbox (``cgroup_leaf.py``).

Version 2 with memory and pids delegated to us is taken first, then version 1 hierarchies that we may write. Leaves are
always made below our own group, so that whatever limits us limits them too.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
from dataclasses import dataclass

from sandbox_kernel.jail.meter.cgroup_files import read, write

GROUP_PREFIX = "sandbox-kernel-"


@dataclass(frozen=True)
class Hierarchies:
    """Where leaves may be made: folders of our own groups, None where there is none or we may not write."""

    version: int
    memory: str | None
    pids: str | None
    #: Any version 2 folder, even without controllers: it counts CPU time and kills a whole group at once.
    unified: str | None

    @property
    def mechanism(self) -> str:
        """Words for the report."""
        return f"cgroup v{self.version}"


def _own_groups() -> dict[str, str]:
    groups: dict[str, str] = {}
    with open("/proc/self/cgroup") as file:
        for line in file:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            for name in controllers.split(","):
                groups[name] = path
    return groups


def _mounts() -> dict[str, tuple[str, str]]:
    """Controller name (or ``""`` for version 2) -> mount point and the group that is mounted there."""
    found: dict[str, tuple[str, str]] = {}
    with open("/proc/self/mountinfo") as file:
        for line in file:
            before, _, after = line.rstrip("\n").partition(" - ")
            fields, (kind, _, options) = before.split(), after.split(" ", 2)
            if kind == "cgroup2":
                found.setdefault("", (fields[4], fields[3]))
            elif kind == "cgroup":
                for option in options.split(","):
                    found.setdefault(option, (fields[4], fields[3]))
    return found


def _own_folder(name: str, groups: dict[str, str], mounts: dict[str, tuple[str, str]]) -> str | None:
    if name not in groups or name not in mounts:
        return None
    point, root = mounts[name]
    path = groups[name]
    relative = path[len(root) :] if root != "/" and path.startswith(root) else path
    folder = os.path.normpath(point + "/" + relative)
    return folder if os.path.isdir(folder) and os.access(folder, os.W_OK) else None


def _delegate(folder: str) -> bool:
    """Let memory and pids be limited below a version 2 group of ours.

    The kernel refuses (EBUSY) while processes live directly in the group, so ours move into a leaf first.
    """
    try:
        available = read(f"{folder}/cgroup.controllers").split()
        if "memory" not in available or "pids" not in available:
            return False
        try:
            write(f"{folder}/cgroup.subtree_control", "+memory +pids")
        except OSError as error:
            if error.errno != errno.EBUSY:
                return False
            supervisor = f"{folder}/supervisor"
            with contextlib.suppress(FileExistsError):
                os.mkdir(supervisor)
            for pid in read(f"{folder}/cgroup.procs").split():
                write(f"{supervisor}/cgroup.procs", pid)
            write(f"{folder}/cgroup.subtree_control", "+memory +pids")
    except OSError:
        return False
    return True


@functools.lru_cache(maxsize=1)
def find_hierarchies() -> Hierarchies | None:
    """Find, once a process, where leaves with a memory limit can be made; sweep what a killed host left there."""
    try:
        groups, mounts = _own_groups(), _mounts()
    except OSError:
        return None
    unified = _own_folder("", groups, mounts)
    if unified is not None and _delegate(unified):
        found = Hierarchies(2, unified, unified, unified)
    else:
        memory, pids = (_own_folder(name, groups, mounts) for name in ("memory", "pids"))
        if memory is None:
            return None
        found = Hierarchies(1, memory, pids, unified)
    for folder in {found.memory, found.pids, found.unified} - {None}:
        sweep(str(folder))
    return found


def sweep(folder: str) -> None:
    """Remove empty leaves whose host process no longer lives."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(GROUP_PREFIX):
                pid = name.removeprefix(GROUP_PREFIX).split("-")[0]
                if pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
                    with contextlib.suppress(OSError):
                        os.rmdir(f"{folder}/{name}")

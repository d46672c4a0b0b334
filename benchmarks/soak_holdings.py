"""Counts the resources of this process (files, processes, memory), for the soaks before, during and after."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import threading
from dataclasses import dataclass
from pathlib import Path

from sandbox_kernel.jail.accounting.cgroups import GROUP_PREFIX, find_hierarchies
from sandbox_kernel.jail.accounting.processes import tree
from sandbox_kernel.jail.spawner import wait_buried


def own_leaves() -> set[str]:
    """Return the folders of all control groups that this process has made for its sandboxes."""
    where = find_hierarchies()
    places = {where.memory, where.pids, where.unified} - {None} if where is not None else set()
    return {entry.path for place in places for entry in os.scandir(place) if entry.name.startswith(GROUP_PREFIX)}


@dataclass(frozen=True)
class Holdings:
    """Resources that this process holds."""

    processes: int
    descriptors: int
    threads: int
    groups: int
    mounts: int
    folders: int

    @classmethod
    def now(cls, folder: Path) -> Holdings:
        """Count them now."""
        gc.collect()
        wait_buried()
        groups = own_leaves()
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        shared = [name for name in os.listdir("/dev/shm") if f"-{os.getpid()}-" in name]
        return cls(
            processes=len([pid for pid in tree(os.getpid()) if pid != os.getpid()]),
            descriptors=len(os.listdir("/proc/self/fd")),
            threads=len([thread for thread in threading.enumerate() if not thread.name.startswith("sandbox-run")]),
            groups=len(groups),
            mounts=sum("sandbox-kernel" in line or str(folder) in line for line in mounts),
            folders=len(os.listdir(folder)) + len(shared),
        )


def resident_mb() -> float:
    """Return the memory of this process, after garbage collection and after the allocator has returned free pages."""
    gc.collect()
    with contextlib.suppress(AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def slope(points: list[tuple[int, float]]) -> float:
    """Return the growth for each 1000 executions, by least squares, without the first quarter (warm-up)."""
    points = points[len(points) // 4 :]
    count = len(points)
    middle_x, middle_y = sum(x for x, _ in points) / count, sum(y for _, y in points) / count
    spread = sum((x - middle_x) ** 2 for x, _ in points)
    return 1000 * sum((x - middle_x) * (y - middle_y) for x, y in points) / spread if spread else 0.0

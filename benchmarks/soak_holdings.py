"""What a host holds of the machine, and how its memory grows: asked by the soaks before, during and after."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import threading
from dataclasses import dataclass
from pathlib import Path

from sandbox_kernel.jail.cgroups.cgroup_leaf import own_leaves
from sandbox_kernel.jail.kinds.reaper import wait_buried
from sandbox_kernel.jail.meter.process_tree import tree


@dataclass(frozen=True)
class Holdings:
    """What this process holds of the machine."""

    processes: int
    descriptors: int
    threads: int
    groups: int
    mounts: int
    folders: int

    @classmethod
    def now(cls, folder: Path) -> Holdings:
        """Look."""
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
    """Memory of this process now, without what nobody refers to any more or the allocator keeps for later."""
    gc.collect()
    with contextlib.suppress(AttributeError):  # glibc has it
        ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def slope(points: list[tuple[int, float]]) -> float:
    """Growth for each thousand executions: the line of least squares, the first quarter (warming up) left out."""
    points = points[len(points) // 4 :]
    count = len(points)
    middle_x, middle_y = sum(x for x, _ in points) / count, sum(y for _, y in points) / count
    spread = sum((x - middle_x) ** 2 for x, _ in points)
    return 1000 * sum((x - middle_x) * (y - middle_y) for x, y in points) / spread if spread else 0.0

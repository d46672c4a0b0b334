"""The control group of one sandbox.

What the kernel counted there (``memory.events``, ``memory.oom_control``, ``pids.events``) is the evidence for how a run
ended.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from dataclasses import dataclass

from sandbox_kernel.jail.cgroups.cgroup import GROUP_PREFIX, Hierarchies, find_hierarchies
from sandbox_kernel.jail.cgroups.cgroup_files import number, read, table, write

#: Where each version of control groups counts.
_PEAK = {1: "memory.max_usage_in_bytes", 2: "memory.peak"}
_KILLS = {1: "memory.oom_control", 2: "memory.events"}


def own_leaves() -> set[str]:
    """The folders of all leaves that this process has now: they are alone in its places."""
    where = find_hierarchies()
    places = {where.memory, where.pids, where.unified} - {None} if where is not None else set()
    return {entry.path for place in places for entry in os.scandir(place) if entry.name.startswith(GROUP_PREFIX)}


@dataclass(frozen=True)
class Counters:
    """What the kernel counted for one leaf."""

    oom_kills: int = 0
    refused_forks: int = 0
    peak_bytes: int | None = None
    cpu_seconds: float | None = None


class Leaf:
    """The group of one sandbox. Made before it starts, limited when it is given its order, removed after its end."""

    def __init__(self, where: Hierarchies) -> None:
        self._version = where.version
        # A program sees the name in /proc/self/cgroup, so it says nothing about the host, not even a number.
        name = f"{GROUP_PREFIX}{secrets.token_hex(8)}"
        self._folders: dict[str, str] = {}
        self._limits: dict[str, int] = {}
        for role, parent in (("memory", where.memory), ("pids", where.pids), ("unified", where.unified)):
            if parent is not None:
                folder = f"{parent}/{name}"
                with contextlib.suppress(FileExistsError):
                    os.mkdir(folder)
                self._folders[role] = folder

    def attach(self, pid: int) -> None:
        """Move a process (and what it will start) into the leaf."""
        for folder in dict.fromkeys(self._folders.values()):
            write(f"{folder}/cgroup.procs", str(pid))

    def exists(self) -> bool:
        """Whether nobody has removed it."""
        return all(os.path.isdir(folder) for folder in set(self._folders.values()))

    def limit(self, memory_bytes: int, processes: int) -> None:
        """Set the limits; called once, before the program starts."""
        memory = self._folders["memory"]
        if self._version == 2:
            write(f"{memory}/memory.max", str(memory_bytes))
            with contextlib.suppress(OSError):
                write(f"{memory}/memory.swap.max", "0")
        else:
            write(f"{memory}/memory.limit_in_bytes", str(memory_bytes))
            with contextlib.suppress(OSError):  # absent where swap is not accounted
                write(f"{memory}/memory.memsw.limit_in_bytes", str(memory_bytes))
        if "pids" in self._folders:
            write(f"{self._folders['pids']}/pids.max", str(processes))

    def relimit(self, memory_bytes: int, processes: int) -> None:
        """Change the limits of a running sandbox. One that is in the way of the other is written again after it."""
        memory = self._folders["memory"]
        names = ["memory.max"] if self._version == 2 else ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]
        if self._limits.get("memory") != memory_bytes:
            self._limits["memory"] = memory_bytes
            for name in (*names, *names[:-1]):
                with contextlib.suppress(OSError):
                    write(f"{memory}/{name}", str(memory_bytes))
        if "pids" in self._folders and self._limits.get("pids") != processes:
            self._limits["pids"] = processes
            write(f"{self._folders['pids']}/pids.max", str(processes))

    def reset_peak(self) -> None:
        """Measure the peak from now on, where the kernel lets us (version 1, or 2 from Linux 6.12 on)."""
        name = "memory.peak" if self._version == 2 else "memory.max_usage_in_bytes"
        with contextlib.suppress(OSError):
            write(f"{self._folders['memory']}/{name}", "0")

    def usage_bytes(self) -> int:
        """Memory charged to the leaf now, caches that can be given back included."""
        name = "memory.current" if self._version == 2 else "memory.usage_in_bytes"
        return number(f"{self._folders['memory']}/{name}") or 0

    def held_bytes(self) -> int:
        """Memory that cannot be given back: of processes and of memory file systems."""
        found = table(f"{self._folders['memory']}/memory.stat")
        return found.get("anon" if self._version == 2 else "total_rss", 0) + self.files_bytes(found)

    def files_bytes(self, found: dict[str, int] | None = None) -> int:
        """Memory of memory file systems."""
        rows = found if found is not None else table(f"{self._folders['memory']}/memory.stat")
        return rows.get("shmem" if self._version == 2 else "total_shmem", 0)

    @property
    def limits_processes(self) -> bool:
        """Whether the kernel counts and refuses forks here."""
        return "pids" in self._folders

    def oom_event(self) -> int | None:
        """A descriptor that becomes readable when version 1 has killed one task of the leaf for its memory."""
        if self._version == 2:
            return None
        control = os.open(f"{self._folders['memory']}/memory.oom_control", os.O_RDONLY | os.O_CLOEXEC)
        try:
            event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            try:
                write(f"{self._folders['memory']}/cgroup.event_control", f"{event} {control}")
            except OSError:
                os.close(event)
                raise
        finally:
            os.close(control)
        return event

    def counters(self) -> Counters:
        """What the kernel has counted so far."""
        peak = number(f"{self._folders['memory']}/{_PEAK[self._version]}")
        refused = table(f"{self._folders['pids']}/pids.events").get("max", 0) if self.limits_processes else 0
        return Counters(self.oom_kills(), refused, peak, self.cpu_seconds())

    def oom_kills(self) -> int:
        """How many processes were ended for memory so far."""
        return table(f"{self._folders['memory']}/{_KILLS[self._version]}").get("oom_kill", 0)

    def cpu_seconds(self) -> float | None:
        """CPU time of everything that ever ran in the leaf; None where no version 2 group counts it."""
        if "unified" not in self._folders:
            return None
        usage = table(f"{self._folders['unified']}/cpu.stat").get("usage_usec")
        return usage / 1e6 if usage is not None else None

    def kill(self) -> None:
        """Kill everything in the leaf at once, where the kernel can; elsewhere see that nothing new is started."""
        with contextlib.suppress(OSError):
            if "unified" in self._folders:
                write(f"{self._folders['unified']}/cgroup.kill", "1")
            elif "pids" in self._folders:
                write(f"{self._folders['pids']}/pids.max", "0")

    def members(self) -> list[int]:
        """The processes in the leaf."""
        folder = next(iter(self._folders.values()), None)
        try:
            return [int(pid) for pid in read(f"{folder}/cgroup.procs").split()] if folder is not None else []
        except OSError:
            return []

    def remove(self) -> bool:
        """Remove the leaf; False while something in it is still dying."""
        for role, folder in list(self._folders.items()):
            try:
                os.rmdir(folder)
            except FileNotFoundError:
                pass
            except OSError:
                return False
            del self._folders[role]
        return True

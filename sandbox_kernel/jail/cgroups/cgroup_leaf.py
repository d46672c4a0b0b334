"""The control group of one sandbox.

The kernel's counters there (``memory.events``, ``memory.oom_control``, ``pids.events``) are the evidence of how a run
ended.
"""

from __future__ import annotations

import contextlib
import os

from sandbox_kernel.ground.values import dataclass
from sandbox_kernel.jail.cgroups.cgroup import GROUP_PREFIX, Hierarchies, find_hierarchies
from sandbox_kernel.jail.cgroups.kept_files import KeptFiles, read, write

#: The files of the counters, by version of control groups.
_PEAK = {1: "memory.max_usage_in_bytes", 2: "memory.peak"}
_KILLS = {1: "memory.oom_control", 2: "memory.events"}
_USAGE = {1: "memory.usage_in_bytes", 2: "memory.current"}


def own_leaves() -> set[str]:
    """Return the folders of all leaves of this process."""
    where = find_hierarchies()
    places = {where.memory, where.pids, where.unified} - {None} if where is not None else set()
    return {entry.path for place in places for entry in os.scandir(place) if entry.name.startswith(GROUP_PREFIX)}


@dataclass(frozen=True)
class Counters:
    """The kernel's counters of one leaf."""

    oom_kills: int = 0
    refused_forks: int = 0
    peak_bytes: int | None = None
    cpu_seconds: float | None = None


class Leaf:
    """The group of one sandbox. Made before the sandbox starts, limited with its order, removed after its end."""

    def __init__(self, where: Hierarchies) -> None:
        self._version = where.version
        # The program can read the name in /proc/self/cgroup, so it contains nothing about the host, not even a pid.
        name = f"{GROUP_PREFIX}{os.urandom(8).hex()}"
        self._folders: dict[str, str] = {}
        self._limits: dict[str, int] = {}
        self._files = KeptFiles()
        for role, parent in (("memory", where.memory), ("pids", where.pids), ("unified", where.unified)):
            if parent is not None:
                folder = f"{parent}/{name}"
                with contextlib.suppress(FileExistsError):
                    os.mkdir(folder)
                self._folders[role] = folder
        shown = {"unified": "cpu.stat", "pids": "pids.events", "memory": _USAGE[where.version]}
        #: For each folder a file that is read around every cell: reading it fails once the folder was removed.
        self._shown = {self._folders[role]: name for role, name in shown.items() if role in self._folders}

    def attach(self, pid: int) -> None:
        """Move a process, and the processes that it will start, into the leaf."""
        for folder in dict.fromkeys(self._folders.values()):
            write(f"{folder}/cgroup.procs", str(pid))

    def exists(self) -> bool:
        """Whether the control group still exists."""
        for folder, name in self._shown.items():
            gone = self._files.has_gone(f"{folder}/{name}")
            if gone if gone is not None else not os.path.isdir(folder):
                return False
        return True

    def limit(self, memory_bytes: int, processes: int) -> None:
        """Set the limits. Called once, before the program starts."""
        memory = self._folders["memory"]
        if self._version == 2:
            write(f"{memory}/memory.max", str(memory_bytes))
            with contextlib.suppress(OSError):
                write(f"{memory}/memory.swap.max", "0")
        else:
            write(f"{memory}/memory.limit_in_bytes", str(memory_bytes))
            with contextlib.suppress(OSError):  # the file is missing when swap is not accounted
                write(f"{memory}/memory.memsw.limit_in_bytes", str(memory_bytes))
        if "pids" in self._folders:
            write(f"{self._folders['pids']}/pids.max", str(processes))

    def relimit(self, memory_bytes: int, processes: int) -> None:
        """Change the limits of a running sandbox. If one limit blocks the other, it is written again afterwards."""
        memory = self._folders["memory"]
        names = ["memory.max"] if self._version == 2 else ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]
        if self._limits.get("memory") != memory_bytes:
            self._limits["memory"] = memory_bytes
            for name in (*names, *names[:-1]):
                with contextlib.suppress(OSError):
                    write(f"{memory}/{name}", str(memory_bytes))
        if "pids" in self._folders and self._limits.get("pids") != processes:
            self._limits["pids"] = processes
            self._files.write(f"{self._folders['pids']}/pids.max", str(processes))

    def reset_peak(self) -> None:
        """Measure the peak from now on, if the kernel supports it (version 1, or 2 from Linux 6.12 on)."""
        with contextlib.suppress(OSError):
            self._files.write(f"{self._folders['memory']}/{_PEAK[self._version]}", "0")

    def usage_bytes(self) -> int:
        """Return the memory charged to the leaf now, with caches that can be reclaimed."""
        return self._files.number(f"{self._folders['memory']}/{_USAGE[self._version]}") or 0

    def held_bytes(self) -> int:
        """Return the memory that cannot be reclaimed: of processes and of memory file systems."""
        found = self._files.table(f"{self._folders['memory']}/memory.stat")
        return found.get("anon" if self._version == 2 else "total_rss", 0) + self.files_bytes(found)

    def files_bytes(self, found: dict[str, int] | None = None) -> int:
        """Return the memory of memory file systems."""
        rows = found if found is not None else self._files.table(f"{self._folders['memory']}/memory.stat")
        return rows.get("shmem" if self._version == 2 else "total_shmem", 0)

    @property
    def limits_processes(self) -> bool:
        """Whether the kernel counts processes here and refuses forks above the limit."""
        return "pids" in self._folders

    def oom_event(self) -> int | None:
        """Return a descriptor that becomes readable when version 1 killed a task of the leaf for its memory."""
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
        """Return the kernel's counters."""
        peak = self._files.number(f"{self._folders['memory']}/{_PEAK[self._version]}")
        refused = 0
        if self.limits_processes:
            refused = self._files.table(f"{self._folders['pids']}/pids.events").get("max", 0)
        return Counters(self.oom_kills(), refused, peak, self.cpu_seconds())

    def oom_kills(self) -> int:
        """Return how many processes were killed for memory so far."""
        return self._files.table(f"{self._folders['memory']}/{_KILLS[self._version]}").get("oom_kill", 0)

    def cpu_seconds(self) -> float | None:
        """Return the CPU time of all processes that ever ran in the leaf; None without a version 2 group."""
        if "unified" not in self._folders:
            return None
        usage = self._files.table(f"{self._folders['unified']}/cpu.stat").get("usage_usec")
        return usage / 1e6 if usage is not None else None

    def kill(self) -> None:
        """Kill every process in the leaf at once if the kernel can; otherwise prevent new ones from starting."""
        with contextlib.suppress(OSError):
            if "unified" in self._folders:
                write(f"{self._folders['unified']}/cgroup.kill", "1")
            elif "pids" in self._folders:
                write(f"{self._folders['pids']}/pids.max", "0")

    def members(self) -> list[int]:
        """Return the pids in the leaf."""
        folder = next(iter(self._folders.values()), None)
        try:
            return [int(pid) for pid in read(f"{folder}/cgroup.procs").split()] if folder is not None else []
        except OSError:
            return []

    def remove(self) -> bool:
        """Remove the leaf; returns False while a process in it is still dying."""
        self._files.close()
        for role, folder in list(self._folders.items()):
            try:
                os.rmdir(folder)
            except FileNotFoundError:
                pass
            except OSError:
                return False
            del self._folders[role]
        return True

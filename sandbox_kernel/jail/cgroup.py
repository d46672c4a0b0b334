"""Control groups: a leaf of our own for each sandbox, where this host lets us make one.

Version 2 with memory and pids delegated to us is taken first, then version 1 hierarchies that we may write. Leaves are
always made below our own group, so that whatever limits us limits them too. What the kernel counted there
(``memory.events``, ``memory.oom_control``, ``pids.events``) is the evidence for how a run ended.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import os
from dataclasses import dataclass

GROUP_PREFIX = "sandbox-kernel-"
_numbers = itertools.count()


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


@dataclass(frozen=True)
class Counters:
    """What the kernel counted for one leaf."""

    oom_kills: int = 0
    refused_forks: int = 0
    peak_bytes: int | None = None
    cpu_seconds: float | None = None


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
        available = _read(f"{folder}/cgroup.controllers").split()
        if "memory" not in available or "pids" not in available:
            return False
        try:
            _write(f"{folder}/cgroup.subtree_control", "+memory +pids")
        except OSError as error:
            if error.errno != errno.EBUSY:
                return False
            supervisor = f"{folder}/supervisor"
            with contextlib.suppress(FileExistsError):
                os.mkdir(supervisor)
            for pid in _read(f"{folder}/cgroup.procs").split():
                _write(f"{supervisor}/cgroup.procs", pid)
            _write(f"{folder}/cgroup.subtree_control", "+memory +pids")
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


#: Where each version of control groups counts.
_PEAK = {1: "memory.max_usage_in_bytes", 2: "memory.peak"}
_KILLS = {1: "memory.oom_control", 2: "memory.events"}


class Leaf:
    """The group of one sandbox. Made before it starts, limited when it is given its order, removed after its end."""

    def __init__(self, where: Hierarchies) -> None:
        self._version = where.version
        name = f"{GROUP_PREFIX}{os.getpid()}-{next(_numbers)}"
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
            _write(f"{folder}/cgroup.procs", str(pid))

    def exists(self) -> bool:
        """Whether nobody has removed it."""
        return all(os.path.isdir(folder) for folder in set(self._folders.values()))

    def limit(self, memory_bytes: int, processes: int) -> None:
        """Set the limits; called once, before the program starts."""
        memory = self._folders["memory"]
        if self._version == 2:
            _write(f"{memory}/memory.max", str(memory_bytes))
            with contextlib.suppress(OSError):
                _write(f"{memory}/memory.swap.max", "0")
        else:
            _write(f"{memory}/memory.limit_in_bytes", str(memory_bytes))
            with contextlib.suppress(OSError):  # absent where swap is not accounted
                _write(f"{memory}/memory.memsw.limit_in_bytes", str(memory_bytes))
        if "pids" in self._folders:
            _write(f"{self._folders['pids']}/pids.max", str(processes))

    def relimit(self, memory_bytes: int, processes: int) -> None:
        """Change the limits of a running sandbox. One that is in the way of the other is written again after it."""
        memory = self._folders["memory"]
        names = ["memory.max"] if self._version == 2 else ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]
        if self._limits.get("memory") != memory_bytes:
            self._limits["memory"] = memory_bytes
            for name in (*names, *names[:-1]):
                with contextlib.suppress(OSError):
                    _write(f"{memory}/{name}", str(memory_bytes))
        if "pids" in self._folders and self._limits.get("pids") != processes:
            self._limits["pids"] = processes
            _write(f"{self._folders['pids']}/pids.max", str(processes))

    def reset_peak(self) -> None:
        """Measure the peak from now on, where the kernel lets us (version 1, or 2 from Linux 6.12 on)."""
        name = "memory.peak" if self._version == 2 else "memory.max_usage_in_bytes"
        with contextlib.suppress(OSError):
            _write(f"{self._folders['memory']}/{name}", "0")

    def usage_bytes(self) -> int:
        """Memory charged to the leaf now, caches that can be given back included."""
        name = "memory.current" if self._version == 2 else "memory.usage_in_bytes"
        return _number(f"{self._folders['memory']}/{name}") or 0

    def held_bytes(self) -> int:
        """Memory that cannot be given back: of processes and of memory file systems."""
        found = _table(f"{self._folders['memory']}/memory.stat")
        return found.get("anon" if self._version == 2 else "total_rss", 0) + self.files_bytes(found)

    def files_bytes(self, found: dict[str, int] | None = None) -> int:
        """Memory of memory file systems."""
        table = found if found is not None else _table(f"{self._folders['memory']}/memory.stat")
        return table.get("shmem" if self._version == 2 else "total_shmem", 0)

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
                _write(f"{self._folders['memory']}/cgroup.event_control", f"{event} {control}")
            except OSError:
                os.close(event)
                raise
        finally:
            os.close(control)
        return event

    def counters(self) -> Counters:
        """What the kernel has counted so far."""
        peak = _number(f"{self._folders['memory']}/{_PEAK[self._version]}")
        refused = _table(f"{self._folders['pids']}/pids.events").get("max", 0) if self.limits_processes else 0
        return Counters(self.oom_kills(), refused, peak, self.cpu_seconds())

    def oom_kills(self) -> int:
        """How many processes were ended for memory so far."""
        return _table(f"{self._folders['memory']}/{_KILLS[self._version]}").get("oom_kill", 0)

    def cpu_seconds(self) -> float | None:
        """CPU time of everything that ever ran in the leaf; None where no version 2 group counts it."""
        if "unified" not in self._folders:
            return None
        usage = _table(f"{self._folders['unified']}/cpu.stat").get("usage_usec")
        return usage / 1e6 if usage is not None else None

    def kill(self) -> None:
        """Kill everything in the leaf at once, where the kernel can; elsewhere see that nothing new is started."""
        with contextlib.suppress(OSError):
            if "unified" in self._folders:
                _write(f"{self._folders['unified']}/cgroup.kill", "1")
            elif "pids" in self._folders:
                _write(f"{self._folders['pids']}/pids.max", "0")

    def members(self) -> list[int]:
        """The processes in the leaf."""
        folder = next(iter(self._folders.values()), None)
        try:
            return [int(pid) for pid in _read(f"{folder}/cgroup.procs").split()] if folder is not None else []
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


def _read(path: str) -> str:
    # Read before and after each cell: a buffered text file would take twice as long.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return b"".join(iter(lambda: os.read(fd, 1 << 16), b"")).decode()
    finally:
        os.close(fd)


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _number(path: str) -> int | None:
    try:
        return int(_read(path))
    except (OSError, ValueError):
        return None


def _table(path: str) -> dict[str, int]:
    try:
        rows = [line.split() for line in _read(path).splitlines()]
    except OSError:
        return {}
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdigit()}

"""Limits and counts memory, processes and CPU time of one sandbox.

With ``CgroupMeter`` the kernel limits and counts. ``Meter`` itself, the *watchdog*, serves hosts without any.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import threading
from collections.abc import Mapping

from sandbox_kernel.jail.accounting.cgroup_place import GROUP_PREFIX, read, write
from sandbox_kernel.jail.accounting.cgroups import Hierarchies, find_hierarchies
from sandbox_kernel.jail.accounting.processes import (
    Usage,
    memory_file_bytes,
    proportional_bytes,
    signal_all,
    tree,
    usage,
)
from sandbox_kernel.util.values import dataclass


@dataclass(frozen=True)
class Reading:
    """What a meter counted by the end of a run."""

    memory_exceeded: bool = False
    forks_refused: bool = False
    peak_bytes: int | None = None
    cpu_seconds: float | None = None
    #: Whether allocations above the limit fail, instead of the program being killed.
    refuses_memory: bool = False
    #: How many processes were killed for memory so far.
    oom_kills: int = 0


#: A run with more files is ended: each file costs kernel memory that no size limit counts.
MAX_INODES = 200_000


@dataclass(frozen=True)
class Disk:
    """``full``: the limit was reached. ``over``: the run must be ended, because nothing else will stop it."""

    full: bool
    over: bool


class Meter:
    """The meter of one sandbox. ``jail.py`` calls attach, arm and close; ``run_job.py`` and sessions call the rest.

    This one is for hosts where no control group can be made. It limits by sampling /proc every few milliseconds: best
    effort. The kernel still limits each process (RLIMIT_DATA) and their number (RLIMIT_NPROC in the sandbox's own user
    namespace). The meter limits the sum. ``CgroupMeter`` replaces every limit and count by those of the kernel.
    """

    mechanism = "RLIMIT_DATA and a watchdog"
    #: Whether the kernel limits and counts.
    exact = False

    def __init__(self) -> None:
        self._pid: int | None = None
        self._processes = self._most_processes = 0
        #: Whether the sandbox had as many processes as it may have, where the kernel does not count them.
        self._full = False
        #: CPU time of making the sandbox ready, which does not count for the program.
        self._cpu_before = 0.0
        self._memory_bytes = self._peak = 0
        self._cpu = 0.0
        #: The own CPU time of each process at the last count, and the sum of those that are gone since ``arm``. The
        #: kernel adds the time of a child to its parent's only where the parent waits for it.
        self._own: Mapping[tuple[int, bytes], float] = {}
        self._own_gone = 0.0
        self._crowded = self._exceeded = False

    def attach(self, pid: int) -> None:
        """Count this process. Called before the program starts. The first one is the root of the tree."""
        self._pid = self._pid or pid

    def intact(self) -> bool:
        """Whether the limits still hold: the control group was not removed."""
        return True

    def arm(self, memory_bytes: int, processes: int, spare_processes: int = 0) -> None:
        """Set the limits of the program about to start.

        Where the kernel counts no processes for us, RLIMIT_NPROC refuses them from ``processes + spare_processes`` on,
        and only a sandbox with more than that has too many: one that was refused a process lives on.
        """
        self._processes, self._most_processes = processes, processes + spare_processes
        self._memory_bytes = memory_bytes
        self._cpu_before = 0.0
        self._cpu_before = self.cpu_seconds()
        self._cpu, self._own_gone = 0.0, -sum(self._own.values())

    def relimit(self, memory_bytes: int, processes: int) -> None:
        """Change the limits; what was used still counts. Sessions do that between cells, for their checkpoints."""
        self._processes, self._most_processes = processes, max(processes, self._most_processes)
        self._memory_bytes = memory_bytes

    def reset_peak(self) -> None:
        """Measure the peak from now on. Each cell of a session has its own peak."""
        self._full = False
        self._peak = 0

    def _tree(self) -> list[int]:
        return [] if self._pid is None else tree(self._pid)

    def _count(self, pids: list[int]) -> Usage:
        seen = usage(pids)
        self._own_gone += sum(spent for who, spent in self._own.items() if who not in seen.own_seconds)
        self._own = seen.own_seconds
        own = self._own_gone + sum(self._own.values())
        self._cpu = max(self._cpu, own, seen.cpu_seconds - self._cpu_before)
        return seen

    def usage_bytes(self) -> int:
        """Return the memory in use now: quick to read, and an upper bound."""
        return usage(self._tree()).resident_bytes

    def held_bytes(self) -> int:
        """Return the memory in use now that cannot be reclaimed."""
        return proportional_bytes(self._tree())

    def files_bytes(self) -> int:
        """Return the part of it that belongs to files, and that no process has mapped."""
        return 0

    def release(self) -> None:
        """Continue processes that were stopped for measuring. Called when only a part of the sandbox is to be ended."""
        self._exceeded = False
        signal_all(self._tree()[1:], signal.SIGCONT)

    def memory_is_exceeded(self) -> bool:
        """Whether the sandbox must be killed for its memory. Called at every tick.

        Compares the resident sum first (quick, too high for forked trees), then the exact sum of the stopped tree: a
        growing process changes faster than its page tables can be read, so it is stopped before it is measured.
        """
        pids = self._tree()
        seen = self._count(pids)
        self._full = self._full or seen.tasks >= self._processes
        self._crowded = seen.tasks > self._most_processes
        # Kept apart: the mapped part of these files is in the other sum already.
        in_files = memory_file_bytes(pids)
        if in_files > self._memory_bytes:
            self._peak = max(self._peak, in_files)
            self._exceeded = True
            return True
        if seen.resident_bytes <= self._memory_bytes:
            self._peak = max(self._peak, seen.resident_bytes)
            return False
        signal_all(pids[1:], signal.SIGSTOP)
        true_sum = proportional_bytes(pids)
        self._peak = max(self._peak, true_sum)
        self._exceeded = true_sum > self._memory_bytes
        if not self._exceeded:
            signal_all(pids[1:], signal.SIGCONT)
        return self._exceeded

    def cpu_seconds(self) -> float:
        """Return the CPU time of all processes so far."""
        self._count(self._tree())
        return self._cpu

    def recount(self) -> None:
        """Count processes once more, now: a fork bomb may reach the limit and end while its children are there."""
        seen = self._count(self._tree())
        self._full = self._full or seen.tasks + 1 >= self._processes

    def too_many_processes(self) -> bool:
        """Whether the sandbox must be killed for its processes. Only where the kernel does not refuse new ones."""
        return self._crowded  # as counted at this tick

    def kill(self) -> None:
        """Kill what is left, if the meter can."""

    def members(self) -> list[int] | None:
        """Return every process of the sandbox, whatever its parent is; None if there is no such list."""
        return None

    def read(self) -> Reading:
        """Return the counts so far: around each cell of a session, and when the sandbox is dead."""
        return Reading(self._exceeded, self._full, self._peak or None, self._cpu or None, refuses_memory=True)

    def close(self) -> bool:
        """Release what the meter holds; False means that it must be called again later."""
        return True


def counts_processes() -> bool:
    """Whether the kernel counts the processes of a sandbox on this host and refuses those above the limit."""
    where = find_hierarchies()
    return where is not None and where.pids is not None


def make_meter() -> Meter:
    """Return the best meter of this host."""
    where = find_hierarchies()
    return Meter() if where is None else CgroupMeter(where)


#: The files of the counters, by version of control groups.
_PEAK = {1: "memory.max_usage_in_bytes", 2: "memory.peak"}
_KILLS = {1: "memory.oom_control", 2: "memory.events"}
_USAGE = {1: "memory.usage_in_bytes", 2: "memory.current"}
#: Memory of processes, and of memory file systems, in ``memory.stat``.
_ANONYMOUS = {1: "total_rss", 2: "anon"}
_SHARED = {1: "total_shmem", 2: "shmem"}


class CgroupMeter(Meter):
    """Limits by a control group of the sandbox alone, whose counters are the evidence of how a run ended."""

    exact = True

    def __init__(self, where: Hierarchies) -> None:
        super().__init__()
        self.mechanism = where.mechanism
        self._version = where.version
        # The program can read the name in /proc/self/cgroup, so it contains nothing about the host, not even a pid.
        name = f"{GROUP_PREFIX}{os.urandom(8).hex()}"
        self._memory = f"{where.memory}/{name}"
        self._kills = f"{self._memory}/{_KILLS[where.version]}"
        #: None where the kernel counts no processes, and where no version 2 group counts CPU time.
        self._pids = None if where.pids is None else f"{where.pids}/{name}"
        self._unified = None if where.unified is None else f"{where.unified}/{name}"
        self._folders = list(dict.fromkeys(each for each in (self._memory, self._pids, self._unified) if each))
        for folder in self._folders:
            os.mkdir(folder)
        #: Counters that were read stay open: to open one takes ten times as long as to read it.
        self._open: dict[str, int] = {}
        self._reading = threading.Lock()
        self._resets = False
        self._limits: tuple[int, int] | None = None

    def attach(self, pid: int) -> None:
        """See ``Meter``. Moves the process, and the processes that it will start, into the group."""
        super().attach(pid)
        for folder in self._folders:
            write(f"{folder}/cgroup.procs", str(pid))

    def intact(self) -> bool:
        """See ``Meter``."""
        return all(map(os.path.isdir, self._folders))

    def arm(self, memory_bytes: int, processes: int, spare_processes: int = 0) -> None:
        """See ``Meter``."""
        super().arm(memory_bytes, processes, spare_processes)
        if self._version == 2:
            write(f"{self._memory}/memory.max", str(memory_bytes))
            swap, no_swap = "memory.swap.max", "0"
        else:
            write(f"{self._memory}/memory.limit_in_bytes", str(memory_bytes))
            # Version 1 counts the buffers of TCP and UDP only where they have a limit of their own.
            with contextlib.suppress(OSError):
                write(f"{self._memory}/memory.kmem.tcp.limit_in_bytes", str(memory_bytes // 8))
            swap, no_swap = "memory.memsw.limit_in_bytes", str(memory_bytes)
        with contextlib.suppress(OSError):  # the file is missing when swap is not accounted
            write(f"{self._memory}/{swap}", no_swap)
        if self._pids is not None:
            write(f"{self._pids}/pids.max", str(processes))

    def relimit(self, memory_bytes: int, processes: int) -> None:
        """See ``Meter``. If one limit of memory blocks the other, it is written again afterwards."""
        super().relimit(memory_bytes, processes)
        old, self._limits = self._limits or (0, 0), (memory_bytes, processes)
        names = ["memory.max"] if self._version == 2 else ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"]
        for name in (*names, *names[:-1]) if old[0] != memory_bytes else ():
            self._limits = 0, processes  # version 1 refuses less than what is held: then it is asked again
            with contextlib.suppress(OSError):
                write(f"{self._memory}/{name}", str(memory_bytes))
                self._limits = memory_bytes, processes
        if self._pids is not None and old[1] != processes:
            write(f"{self._pids}/pids.max", str(processes))

    def reset_peak(self) -> None:
        """See ``Meter``. The kernel can do it in version 1, and in version 2 from Linux 6.12 on.

        In version 2 it measures anew only for the descriptor that asked for it, so that one stays open.
        """
        super().reset_peak()
        path = f"{self._memory}/{_PEAK[self._version]}"
        with contextlib.suppress(OSError), self._reading:
            if not self._resets:
                fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
                if path in self._open:
                    os.close(self._open[path])
                self._open[path], self._resets = fd, True
            os.pwrite(self._open[path], b"0", 0)

    def usage_bytes(self) -> int:
        """See ``Meter``. Counts caches that can be reclaimed too; 0 for a group that was removed."""
        try:
            return self._counter(f"{self._memory}/{_USAGE[self._version]}") or 0
        except OSError as error:
            # A host that is short of descriptors for a moment: the kernel's own limit holds meanwhile.
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            return 0

    def held_bytes(self) -> int:
        """See ``Meter``. Counts processes and memory file systems."""
        names = _ANONYMOUS[self._version], _SHARED[self._version]
        return self._counter(f"{self._memory}/memory.stat", *names) or 0

    def files_bytes(self) -> int:
        """See ``Meter``. Counts memory file systems."""
        return self._counter(f"{self._memory}/memory.stat", _SHARED[self._version]) or 0

    def release(self) -> None:
        """See ``Meter``. Nothing is stopped for measuring."""

    def memory_is_exceeded(self) -> bool:
        """Whether the kernel killed a task for memory. It kills one at a time; the caller ends the rest."""
        return bool(self._counter(self._kills, "oom_kill"))

    def cpu_seconds(self) -> float:
        """See ``Meter``. Without a version 2 group, only processes that run now are counted."""
        spent = self._counted_cpu()
        if spent is None:
            spent = usage(tree(self._pid)).cpu_seconds if self._pid else 0.0
        return max(0.0, spent - self._cpu_before)

    def _counted_cpu(self) -> float | None:
        """Return the CPU time of all processes that ever ran in the group; None without a version 2 group."""
        spent = None if self._unified is None else self._counter(f"{self._unified}/cpu.stat", "usage_usec")
        return None if spent is None else spent / 1e6

    def recount(self) -> None:
        """See ``Meter``. Nothing to do where the kernel has counted the processes."""
        if self._pids is None:
            self._full = self._full or usage(self.members()).tasks + 1 >= self._processes

    def too_many_processes(self) -> bool:
        """See ``Meter``."""
        if self._pids is not None:
            return False
        tasks = usage(self.members()).tasks
        self._full = self._full or tasks >= self._processes
        return tasks > self._most_processes

    def kill(self) -> None:
        """Kill every process in the group at once if the kernel can; otherwise prevent new ones from starting."""
        with contextlib.suppress(OSError):
            if self._unified is not None:
                write(f"{self._unified}/cgroup.kill", "1")
            elif self._pids is not None:
                write(f"{self._pids}/pids.max", "0")

    def members(self) -> list[int]:
        """See ``Meter``."""
        try:
            return [int(pid) for pid in read(f"{self._memory}/cgroup.procs").split()]
        except OSError:
            return []

    def read(self) -> Reading:
        """See ``Meter``."""
        refused = 0 if self._pids is None else self._counter(f"{self._pids}/pids.events", "max")
        counted = self._counted_cpu()
        cpu = None if counted is None else max(0.0, counted - self._cpu_before)
        kills = self._counter(self._kills, "oom_kill") or 0
        peak = self._counter(f"{self._memory}/{_PEAK[self._version]}")
        return Reading(kills > 0, bool(refused) or self._full, peak, cpu, oom_kills=kills)

    def close(self) -> bool:
        """Remove the group; returns False while a process in it is still dying."""
        with self._reading:
            self._resets = False
            while self._open:
                os.close(self._open.popitem()[1])
        while self._folders:
            try:
                os.rmdir(self._folders[-1])
            except FileNotFoundError:
                pass
            except OSError:
                return False
            self._folders.pop()
        return True

    def _counter(self, path: str, *names: str) -> int | None:
        """Return the number in a file of the group, or the sum of the numbers behind ``names`` in a table.

        None for the word ``max``, and if this kernel has no such file or name, or the group is gone. A process that has
        many files open, for its descriptors count up, keeps none of these.
        """
        try:
            with self._reading:
                fd = self._open.get(path, -1)
                if is_new := fd < 0:
                    fd = self._open[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                text = os.pread(fd, 1 << 14, 0)
                if is_new and fd > os.sysconf("SC_OPEN_MAX") // 4:
                    os.close(self._open.pop(path))
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENODEV):
                raise
            return None
        if not names:
            return int(text) if text.strip().isdigit() else None
        found = None
        for name in names:
            number = (b"\n" + text).partition(f"\n{name} ".encode())[2].partition(b"\n")[0]
            found = int(number) + (found or 0) if number.isdigit() else found
        return found

"""Measures a tree of processes by reading /proc; used where there is no control group."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
from collections.abc import Iterable

from sandbox_kernel.ground.values import dataclass
from sandbox_kernel.jail.meter.process_view import (
    PARENT,
    RESIDENT_PAGES,
    STARTED,
    THREADS,
    USER_TICKS,
    VIRTUAL_BYTES,
    descriptor_tables,
    lives,
    speaker,
    stat,
    tasks,
    with_memory,
    without_twins,
)

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    """One reading. Resident memory counts shared pages once for each process, so it is an upper bound."""

    resident_bytes: int = 0
    tasks: int = 0
    cpu_seconds: float = 0.0


def tree(pid: int) -> list[int]:
    """Return a process and all its descendants, parents first."""
    if not _lists_children():
        return _tree_by_parents(pid)
    found, waiting = [], [pid]
    while waiting:
        current = waiting.pop()
        found.append(current)
        for task in tasks(current):
            # One by one: a thread that ends meanwhile must not hide the children of the others.
            with contextlib.suppress(OSError), open(f"/proc/{task}/children") as file:
                waiting += [int(child) for child in file.read().split()]
    return found


@functools.lru_cache(maxsize=1)
def _lists_children() -> bool:
    """Whether this kernel lists the children of a task; some kernels are built without that."""
    return os.path.exists(f"/proc/self/task/{threading.get_native_id()}/children")


def _tree_by_parents(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := stat(int(name))):
            children.setdefault(int(fields[PARENT]), []).append(int(name))
    found, waiting = [], [pid]
    while waiting:
        current = waiting.pop()
        found.append(current)
        waiting += children.get(current, ())
    return found


def living(pids: Iterable[int]) -> dict[int, int]:
    """Return those that still run, with their start times, because a pid may be reused.

    A process whose main thread has ended runs as long as one of its threads does.
    """
    found = {}
    for pid in pids:
        fields = stat(pid)
        if lives(fields):
            found[pid] = int(fields[STARTED])
    return found


def has_memory(pid: int) -> bool:
    """Whether the process still has memory. One that is about to end has only a pid, whose files belong to root."""
    fields = with_memory(pid)
    return bool(fields) and int(fields[VIRTUAL_BYTES]) > 0


def of_user(uid: int) -> list[int]:
    """Return every process of a user."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/status") as file:
                # The folder itself belongs to root if the process is not dumpable.
                owner = next((line for line in file if line.startswith("Uid:")), "Uid: -1").split()[1]
                if int(owner) == uid:
                    found.append(int(name))
    return found


def usage(pids: list[int]) -> Usage:
    """Sum over processes. One that ended between listing and reading counts as nothing."""
    resident = threads = ticks = 0
    for pid in pids:
        fields = with_memory(pid)
        if not fields:
            continue
        ticks += sum(int(value) for value in fields[USER_TICKS : USER_TICKS + 4])
        threads += int(fields[THREADS])
        resident += int(fields[RESIDENT_PAGES]) * _PAGE
    return Usage(resident, threads, ticks / _TICK)


def proportional_bytes(pids: list[int]) -> int:
    """Return the memory with shared pages divided among their users: exact for a forked tree, but slow to read.

    A process can forbid this, and root in a container may lack the right. Then its whole resident memory counts.
    """
    total = 0
    for pid in without_twins(pids):
        try:
            with open(f"/proc/{speaker(pid)}/smaps_rollup", "rb") as file:
                line = next((line for line in file if line.startswith(b"Pss:")), b"Pss: 0")
                total += int(line.split()[1]) << 10
        except OSError:
            # Refused, or the thread has ended: the resident memory counts in full.
            total += usage([pid]).resident_bytes
    return total


def memory_file_bytes(pids: list[int]) -> int:
    """Return the size of open memory files (``memfd_create``): their pages count for no process until one maps them."""
    held: dict[tuple[int, int], int] = {}
    for table in (table for pid in pids for table in descriptor_tables(pid)):
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{table}/fd"):
                path = f"/proc/{table}/fd/{name}"
                with contextlib.suppress(OSError):
                    if os.readlink(path).startswith("/memfd:"):
                        info = os.stat(path)
                        held[info.st_dev, info.st_ino] = info.st_blocks * 512
    return sum(held.values())


def signal_same(pid: int, started: int, number: signal.Signals) -> None:
    """Signal a process that ``living`` found, but not another one that got its pid since."""
    with contextlib.suppress(OSError):
        fd = os.pidfd_open(pid)
        try:
            if living((pid,)).get(pid) == started:
                signal.pidfd_send_signal(fd, number)
        finally:
            os.close(fd)


def signal_all(pids: list[int], number: signal.Signals) -> None:
    """Signal each process; those that are gone are ignored."""
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)

"""Measures a tree of processes by reading /proc; used where there is no control group."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import signal
import threading
from collections.abc import Iterable, Iterator, Mapping

from sandbox_kernel.util.linux_calls import closed_after, pidfd_open, pidfd_send_signal
from sandbox_kernel.util.values import dataclass

# Reads one process from /proc, also when its main thread has ended and others still run.
#
# /proc/PID shows the main thread. When that thread has ended, it shows a zombie without memory and without open files,
# although other threads may still use both. All code of the host that reads /proc uses the functions below, which read
# such a process through one of its other threads.

#: Indexes into ``stat``: the fields of /proc/PID/stat, from the state on.
PARENT, FLAGS, USER_TICKS, THREADS, STARTED, VIRTUAL_BYTES, RESIDENT_PAGES = 1, 6, 11, 17, 19, 20, 21
_PF_EXITING = 4
_ENDED = (b"Z", b"X")
#: How often to retry with a process whose threads come and go.
_TRIES = 8
_KCMP = {"x86_64": 312, "aarch64": 272}
_KCMP_VM, _KCMP_FILES = 1, 2


def read_once(path: str) -> bytes:
    """Return a file that the kernel writes as one piece; a file object would take thrice as long."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 1 << 14)
    finally:
        os.close(fd)


def stat(who: int | str) -> list[bytes]:
    """Return the fields of a process, or of a folder below /proc, from the state on; empty when it is gone."""
    try:
        # The name is in brackets and may contain anything; the fields begin after the last bracket.
        return read_once(f"/proc/{who}/stat").rpartition(b")")[2].split()
    except OSError:
        return []


def all_pids() -> list[int]:
    """Return every process that /proc shows."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def lives(fields: list[bytes]) -> bool:
    """Whether a process with this ``stat`` runs: at least one of its threads does."""
    return bool(fields) and (fields[0] not in _ENDED or int(fields[THREADS]) > 1)


def runs(task: str) -> bool:
    """Whether one thread, given by its folder below /proc, runs."""
    fields = stat(task)
    return bool(fields) and fields[0] not in _ENDED


def tasks(pid: int) -> list[str]:
    """Return the threads of a process as folders below /proc; empty when they cannot be listed."""
    try:
        return [f"{pid}/task/{name}" for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def speaker(pid: int) -> str:
    """Return the folder below /proc of a process, or of a thread of it that still runs, where it can be read."""
    fields = stat(pid)
    if not fields or fields[0] not in _ENDED:
        return str(pid)
    for _ in range(_TRIES):
        if not lives(fields):
            break
        for task in tasks(pid):
            if runs(task):
                return task
        fields = stat(pid)
    return str(pid)


def goes_on_without_main_thread(pid: int) -> bool:
    """Whether the main thread of a process has ended while another thread runs and is not ending too."""
    fields = stat(pid)
    if not fields or fields[0] not in _ENDED or not lives(fields):
        return False
    others = [stat(task) for task in tasks(pid)]
    return any(other and other[0] not in _ENDED and not int(other[FLAGS]) & _PF_EXITING for other in others)


def with_memory(pid: int) -> list[bytes]:
    """Return ``stat`` of a process, with its memory sizes even if the main thread has ended and shows none."""
    fields = stat(pid)
    for _ in range(_TRIES):
        if not fields or fields[0] not in _ENDED or not lives(fields):
            break
        seen = stat(speaker(pid))
        if seen and int(seen[VIRTUAL_BYTES]) > 0:
            return [*fields[:VIRTUAL_BYTES], *seen[VIRTUAL_BYTES:]]
        # That thread has ended too, meanwhile.
        fields = stat(pid)
    return fields


def descriptor_tables(pid: int) -> Iterator[str]:
    """Return a folder below /proc for each table of open files of a process; its threads usually share one."""
    first: list[str] = []
    found = tasks(pid)
    if len(found) < 2:
        yield str(pid)
        return
    for task in found:
        if runs(task) and not any(_same(_KCMP_FILES, task, known) for known in first):
            first.append(task)
            yield task


def without_twins(pids: list[int]) -> list[int]:
    """Return these processes without those that share all memory with another one (``vfork``, ``CLONE_VM``)."""
    found: dict[int, str] = {}
    sizes: dict[bytes, list[int]] = {}
    for pid in pids:
        place = speaker(pid)
        # Processes that share memory have the same size, so few need to be compared.
        size = b" ".join(stat(place)[VIRTUAL_BYTES : VIRTUAL_BYTES + 1])
        twins = sizes.setdefault(size, [])
        if not any(_same(_KCMP_VM, place, found[known]) for known in twins):
            twins.append(pid)
            found[pid] = place
    return list(found)


def _same(kind: int, one: str, other: str) -> bool:
    """Whether two threads share a resource; False if the kernel does not say."""
    call = _kcmp()
    if call is None:
        return False
    numbers = [int(folder.rpartition("/")[2]) for folder in (one, other)]
    arguments = [ctypes.c_long(value) for value in (_KCMP[os.uname().machine], *numbers, kind, 0, 0)]
    return bool(call(*arguments) == 0)


@functools.lru_cache(maxsize=1)
def _kcmp() -> ctypes._NamedFuncPointer | None:
    """Return the system call that compares two threads; None if its number is not known here."""
    if os.uname().machine not in _KCMP:
        return None
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    return call


_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    """One reading. Resident memory counts shared pages once for each process, so it is an upper bound."""

    resident_bytes: int
    tasks: int
    #: With that of children that were waited for.
    cpu_seconds: float
    #: The own CPU time of each process, by pid and start.
    own_seconds: Mapping[tuple[int, bytes], float]


def tree(pid: int) -> list[int]:
    """Return a process and all its descendants, parents first."""
    children = _children if _lists_children() else _by_parents().get
    found, waiting = [], [pid]
    while waiting:
        current = waiting.pop()
        found.append(current)
        waiting += children(current) or ()
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in tasks(pid):
        # One by one: a thread that ends meanwhile must not hide the children of the others.
        with contextlib.suppress(OSError), open(f"/proc/{task}/children") as file:
            found += map(int, file.read().split())
    return found


@functools.lru_cache(maxsize=1)
def _lists_children() -> bool:
    """Whether this kernel lists the children of a task; some kernels are built without that."""
    return os.path.exists(f"/proc/self/task/{threading.get_native_id()}/children")


def _by_parents() -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for each in all_pids():
        if fields := stat(each):
            children.setdefault(int(fields[PARENT]), []).append(each)
    return children


def living(pids: Iterable[int]) -> dict[int, int]:
    """Return those of which a thread still runs, with their start times, because a pid may be reused."""
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
    """Return every process of a user. The folder itself belongs to root if the process is not dumpable."""
    found = []
    for pid in all_pids():
        with contextlib.suppress(OSError):
            if f"\nUid:\t{uid}\t".encode() in read_once(f"/proc/{pid}/status"):
                found.append(pid)
    return found


def usage(pids: list[int]) -> Usage:
    """Sum over processes. One that ended between listing and reading counts as nothing."""
    resident = threads = ticks = 0
    own: dict[tuple[int, bytes], float] = {}
    for pid in pids:
        fields = with_memory(pid)
        if not fields:
            continue
        times = [int(value) for value in fields[USER_TICKS : USER_TICKS + 4]]
        ticks += sum(times)
        own[pid, fields[STARTED]] = sum(times[:2]) / _TICK
        threads += int(fields[THREADS])
        resident += int(fields[RESIDENT_PAGES]) * _PAGE + _page_tables(pid)
    return Usage(resident, threads, ticks / _TICK, own)


def _page_tables(pid: int) -> int:
    """Return the memory of a process's page tables: reading zeros makes them without pages, few addresses enough."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(read_once(f"/proc/{speaker(pid)}/status").partition(b"VmPTE:")[2].split(None, 1)[0]) << 10
    return 0


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
            total += _page_tables(pid)
        except (OSError, IndexError):
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
    with contextlib.suppress(OSError), closed_after(pidfd_open(pid)) as fd:
        if living((pid,)).get(pid) == started:
            pidfd_send_signal(fd, number)


def signal_all(pids: list[int], number: signal.Signals) -> None:
    """Signal each process; those that are gone are ignored."""
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)

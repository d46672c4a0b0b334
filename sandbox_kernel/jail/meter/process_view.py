"""Reads one process from /proc, also when its main thread has ended and others still run.

/proc/PID shows the main thread. When that thread has ended, it shows a zombie without memory and without open files,
although other threads may still use both. All code of the host that reads /proc uses the functions below, which read
such a process through one of its other threads.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Iterator

from sandbox_kernel.jail.cgroups.kept_files import KeptFiles, read_once

#: Indexes into ``stat``: the fields of /proc/PID/stat, from the state on.
PARENT, FLAGS, USER_TICKS, THREADS, STARTED, VIRTUAL_BYTES, RESIDENT_PAGES = 1, 6, 11, 17, 19, 20, 21
_PF_EXITING = 4
_ENDED = (b"Z", b"X")
#: How often to retry with a process whose threads come and go.
_TRIES = 8
_KCMP = {"x86_64": 312, "aarch64": 272}
_KCMP_VM, _KCMP_FILES = 1, 2


def stat(who: int | str, files: KeptFiles | None = None) -> list[bytes]:
    """Return the fields of a process, or of a folder below /proc, from the state on; empty when it is gone.

    Args:
        who: The process, or a folder below /proc.
        files: The open files of whoever reads this process again and again; None reads it once.

    """
    read = read_once if files is None else files.read
    try:
        # The name is in brackets and may contain anything; the fields begin after the last bracket.
        return read(f"/proc/{who}/stat").rpartition(b")")[2].split()
    except OSError:
        return []


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


def speaker(pid: int, files: KeptFiles | None = None) -> str:
    """Return the folder below /proc where memory and files of a process can be read.

    It is the folder of the process, or of a thread that still runs. For a process that is gone it has no content.
    ``files``: see ``stat``.
    """
    fields = stat(pid, files)
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


def goes_on_without_main_thread(pid: int, files: KeptFiles | None = None) -> bool:
    """Whether the main thread of a process has ended while another thread runs and is not ending too.

    ``files``: see ``stat``.
    """
    fields = stat(pid, files)
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
    """Return a folder below /proc for each table of open files that a process has.

    Threads usually share one table, but need not. If the kernel cannot say which share, every thread is returned.
    """
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

"""Lists running processes, for gates that end them. ``jail/accounting/processes.py`` does the same for the host."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List


class SeenProcess:
    """A process as /proc shows it. A pid may be reused, so a process is identified by pid and start time."""

    __slots__ = ("parent", "runs", "started", "stopped")

    def __init__(self, fields: List[bytes]) -> None:
        self.parent = int(fields[1])
        self.started = int(fields[19])
        # /proc shows the state of the main thread. After that thread has ended, the process runs while others do.
        self.runs = fields[0] not in (b"Z", b"X") or int(fields[17]) > 1
        self.stopped = fields[0] == b"T"


def read_short(path: str) -> bytes:
    """Return a file of /proc that one read returns whole; a file object would take three times as long."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 1 << 14)
    finally:
        os.close(fd)


def look(pid: int) -> SeenProcess:
    """Return one process; raises ``OSError`` when there is none."""
    # The name is in brackets and may contain any character; the numbers begin after the last bracket.
    fields = read_short(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    if len(fields) < 20:
        raise ProcessLookupError(f"process {pid} ended while it was looked at")
    return SeenProcess(fields)


def ticks(who: object) -> int:
    """Return the CPU time in clock ticks of a process, or of a thread given as PID/task/ID; 0 when there is none."""
    try:
        fields = read_short(f"/proc/{who}/stat").rpartition(b")")[2].split()
        return int(fields[11]) + int(fields[12])
    except (OSError, IndexError):
        return 0


def all_processes() -> Dict[int, SeenProcess]:
    """Return every process that /proc shows, also those that have ended and were not reaped yet."""
    found: Dict[int, SeenProcess] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                found[int(name)] = look(int(name))
            except OSError:
                continue
    return found


def descendants(root: int) -> Dict[int, int]:
    """Return the start time of every running descendant of a process, by pid; also below one that has ended."""
    return {pid: process.started for pid, process in seen_below(root).items()}


def seen_below(root: int) -> Dict[int, SeenProcess]:
    """Return every running descendant of a process, by pid; also below one that has ended."""
    seen = all_processes()
    found: Dict[int, SeenProcess] = {}
    grown = True
    while grown:
        grown = False
        for pid, process in seen.items():
            if pid not in found and (process.parent == root or process.parent in found):
                found[pid] = process
                grown = True
    return {pid: process for pid, process in found.items() if process.runs}


def last_pid() -> int:
    """Return the newest pid of our pid namespace: as long as it is the same, no process or thread was made in it."""
    return int(read_short("/proc/loadavg").split()[-1])

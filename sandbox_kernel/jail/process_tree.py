"""What a tree of processes uses, read from the host's /proc: the measure where no control group is to be had."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    """One reading: resident memory counts shared pages in each process, so it is an upper bound."""

    resident_bytes: int = 0
    tasks: int = 0
    cpu_seconds: float = 0.0


def tree(pid: int) -> list[int]:
    """A process and all its descendants, parents first."""
    found, waiting = [], [pid]
    while waiting:
        current = waiting.pop()
        found.append(current)
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{current}/task"):
                with open(f"/proc/{current}/task/{task}/children") as file:
                    waiting += [int(child) for child in file.read().split()]
    return found


def usage(pids: list[int]) -> Usage:
    """Sum over processes; one that ended between listing and reading counts nothing."""
    resident = tasks = 0
    ticks = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                # The name stands in brackets and may hold anything; the numbers begin after the last bracket.
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        ticks += sum(int(value) for value in fields[11:15])
        tasks += int(fields[17])
        resident += int(fields[21]) * _PAGE
    return Usage(resident, tasks, ticks / _TICK)


def proportional_bytes(pids: list[int]) -> int:
    """Memory with shared pages divided among their users: the true sum of a forked tree, but slow to read."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
                for line in file:
                    if line.startswith(b"Pss:"):
                        total += int(line.split()[1]) << 10
                        break
    return total


def signal_all(pids: list[int], number: signal.Signals) -> None:
    """Signal each; those that are gone are no matter."""
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)

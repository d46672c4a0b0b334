"""The memory limits of a session with checkpoints: a cell never fails because of its checkpoints.

A checkpoint shares its pages with the worker until the worker changes them; then both hold a copy. So while a cell
runs, the kernel's limit is the session's limit plus what the newest checkpoint may come to hold alone (all that the
worker held when it was made), and the host checks the worker against the session's limit. Between cells everything
together has to fit into the limit: the oldest checkpoints are dropped until it does.
"""

from __future__ import annotations

import contextlib
import errno
import os

from sandbox_kernel.errors import SessionError
from sandbox_kernel.jail.accounting.processes import read_once, speaker, tree
from sandbox_kernel.jail.jail import Jail
from sandbox_kernel.jail.root_user import held_capabilities
from sandbox_kernel.jail.rules import bubblewrap
from sandbox_kernel.jail.run_job import OWN_PROCESSES
from sandbox_kernel.jail.watch_loop import MemoryLimit
from sandbox_kernel.session.tree.state_tree import living_bound
from sandbox_kernel.session.worker.channel import WorkerChannel, inner_pid

#: Page tables and stacks of our own processes.
_SLACK = 16 << 20
#: The part of its memory limit below which a session has room for a checkpoint that wakes beside a dying worker.
_ROOMY = 0.5
_CAP_SYS_PTRACE = 19


def spare_processes(checkpoints: int) -> int:
    """How many processes a session may have beside those of its cells: its checkpoints, and moments of change."""
    return living_bound(checkpoints) + 3


class MemoryBudget(MemoryLimit):
    """The limits of one worker's jail: memory, and the number of processes that its checkpoints are."""

    def __init__(self, jail: Jail, channel: WorkerChannel, limit_bytes: int, processes: int, checkpoints: int) -> None:
        super().__init__(jail.meter, limit_bytes)
        self._jail, self._channel = jail, channel
        #: The checkpoint of a cell is made before the host knows of it, so there is always room for one more process.
        self._processes = processes + OWN_PROCESSES + bool(checkpoints)
        self._has_checkpoints = checkpoints > 0
        #: Memory of the worker before the first cell, which does not count.
        self._own_bytes = 0
        jail.meter.arm(limit_bytes, self._processes, spare_processes(checkpoints))

    def begin(self) -> None:
        """Note what the worker holds before the first cell."""
        self._own_bytes = anonymous_bytes(self._channel.speaker)

    def relimit(self, copies: int) -> None:
        """Set the kernel's limits for the next cell, beside so many ``copies`` of the worker."""
        room = anonymous_bytes(self._channel.speaker) + _SLACK if self._has_checkpoints else 0
        try:
            self._jail.meter.relimit(self.limit_bytes + room, self._processes + copies)
        except OSError as error:
            # The control group was removed: the next cell notices at once, is ended for it, and says so.
            if error.errno not in (errno.ENOENT, errno.ENODEV):
                raise

    def lower(self, limit_bytes: int) -> None:
        """Lower the session's limit. Raises ``SessionError``, and changes nothing, when the state is already larger."""
        held = anonymous_bytes(self._channel.speaker), self._jail.meter.files_bytes()
        if sum(held) - self._own_bytes > limit_bytes:
            raise SessionError(
                f"the session holds {sum(held) >> 20} MB already, more than the {limit_bytes >> 20} MB that this cell "
                "may have; nothing was run: delete what is large, undo, or give the cell more memory"
            )
        self.limit_bytes = limit_bytes

    def is_crowded(self) -> bool:
        """Whether a checkpoint must be dropped: worker and checkpoints together hold more than the limit."""
        meter = self._jail.meter
        return meter.usage_bytes() > self.limit_bytes and meter.held_bytes() > self.limit_bytes

    def has_room(self) -> bool:
        """Whether a checkpoint can wake before the memory of the worker, which is to be ended, is free."""
        return self._jail.meter.usage_bytes() < _ROOMY * self.limit_bytes

    def memory_exceeded(self) -> bool:
        """Whether the worker exceeds the session's memory limit.

        The host checks this where there is no control group, and where the control group's limit includes room for
        checkpoints.
        """
        meter = self._jail.meter
        if not meter.exact and meter.memory_is_exceeded():
            return True
        if meter.usage_bytes() <= self.limit_bytes:
            return False
        return anonymous_bytes(self._channel.speaker) - self._own_bytes + meter.files_bytes() > self.limit_bytes

    def used_bytes(self) -> int:
        """Return the current memory use of the session in bytes, for display."""
        if self._jail.meter.exact:
            return self._jail.meter.usage_bytes()
        return anonymous_bytes(self._channel.speaker)


def can_be_sealed(enforcer: str | None) -> bool:
    """Whether checkpoints can be sealed against other processes while the host can still read their memory use.

    The creator of a user namespace may inspect every process in it. Without a namespace only CAP_SYS_PTRACE allows
    that: for an ordinary user behind Landlock every page of every sealed checkpoint would count as its own. There the
    checkpoints are not sealed: Landlock keeps processes from writing into each other (/proc is read-only), but a
    checkpoint can be read.
    """
    return enforcer == bubblewrap.NAME or _CAP_SYS_PTRACE in held_capabilities()


def anonymous_bytes(pid: int) -> int:
    """Return the memory of a process that no file backs; 0 when the process is gone."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(read_once(f"/proc/{speaker(pid)}/status").partition(b"RssAnon:")[2].split(None, 1)[0]) << 10
    return 0


def private_bytes(init_pid: int) -> dict[int, int]:
    """Return the memory that each process of a jail holds alone, by its pid inside: what its end would free."""
    found: dict[int, int] = {}
    for pid in tree(init_pid):
        with contextlib.suppress(OSError):
            with open(f"/proc/{speaker(pid)}/smaps_rollup", "rb") as file:
                total = sum(int(line.split()[1]) for line in file if line.startswith(b"Private_"))
            found[inner_pid(pid)] = total << 10
    return found


def holders_of_removed_files(init_pid: int, device: int | None) -> frozenset[int]:
    """Return the processes of a jail, by their pids inside, that have removed files of a file system open.

    Nobody gets back the room of such a file before they end. ``device`` is the number of the file system; None means
    every one. A process that cannot be looked at counts as one of them.
    """
    return frozenset(inner_pid(pid) for pid in tree(init_pid) if _holds(speaker(pid), device))


def _holds(place: str, device: int | None) -> bool:
    """Whether a process, given by its folder below /proc, has a removed file of this file system open or mapped."""
    try:
        for name in os.listdir(f"/proc/{place}/fd"):
            with contextlib.suppress(FileNotFoundError):
                found = os.stat(f"/proc/{place}/fd/{name}")
                if device in (None, found.st_dev) and found.st_nlink == 0:
                    return True
        with open(f"/proc/{place}/maps", "rb") as maps:
            removed = [line.split(None, 5)[3].split(b":") for line in maps if line.endswith(b" (deleted)\n")]
        return any(device in (None, os.makedev(int(major, 16), int(minor, 16))) for major, minor in removed)
    except (FileNotFoundError, ProcessLookupError):
        return False
    except OSError:
        return True

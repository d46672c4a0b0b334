"""The memory limits of a session with checkpoints: a cell never fails because of its checkpoints.

A checkpoint shares its pages with the worker until the worker changes them; then both hold a copy. So while a cell
runs, the kernel's limit is the session's limit plus what the newest checkpoint may come to hold alone (all that the
worker held when it was made), and the host checks the worker against the session's limit. Between cells everything
together has to fit into the limit: the oldest checkpoints are dropped until it does.
"""

from __future__ import annotations

import contextlib

from sandbox_kernel.ground.values import dataclass
from sandbox_kernel.jail.accounting.processes import read_once, speaker, tree
from sandbox_kernel.jail.root_user import held_capabilities
from sandbox_kernel.jail.rules import bubblewrap
from sandbox_kernel.session.worker.channel import inner_pid

#: Page tables and stacks of our own processes.
_SLACK = 16 << 20
_CAP_SYS_PTRACE = 19


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The session's limit, and memory that does not count against it.

    Attributes:
        limit_bytes: the session's memory limit.
        worker_bytes: memory of the worker before the first cell.
        copies_bytes: memory of the copies of the work folder.

    """

    limit_bytes: int
    worker_bytes: int = 0
    copies_bytes: int = 0

    def ceiling(self, worker_bytes: int) -> int:
        """Return the kernel's limit while a cell runs, for a worker that now holds ``worker_bytes``."""
        return self.limit_bytes + worker_bytes + self.copies_bytes + _SLACK

    def crowded(self, held_bytes: int) -> bool:
        """Whether a checkpoint must be dropped, if worker and checkpoints together hold ``held_bytes``."""
        return held_bytes - self.copies_bytes > self.limit_bytes

    def exceeded(self, worker_bytes: int, files_bytes: int) -> bool:
        """Whether the worker and its files together exceed the session's limit."""
        return worker_bytes - self.worker_bytes + files_bytes > self.limit_bytes


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

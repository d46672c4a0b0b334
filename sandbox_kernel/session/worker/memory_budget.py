"""How much memory a session may hold, so that checkpoints are never the reason why a cell fails.

A checkpoint shares its pages with the worker until the worker changes them; then both copies are there. So while a cell
runs, the kernel's limit is the session's own plus what the newest checkpoint may come to hold alone (all that the
worker had when it was made), and the worker itself is watched against its own limit. Between cells everything together
has to fit: the oldest checkpoints go until it does.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from sandbox_kernel.jail.meter.process_tree import tree
from sandbox_kernel.jail.meter.process_view import speaker
from sandbox_kernel.jail.root.sandbox_user import held_capabilities
from sandbox_kernel.jail.rules import bubblewrap
from sandbox_kernel.session.worker.channel import inner_pid

#: Page tables and stacks of our own processes.
_SLACK = 16 << 20
_CAP_SYS_PTRACE = 19


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The session's limit and what is there that is not the user's: the ready-made worker, copies of files."""

    limit_bytes: int
    worker_bytes: int = 0
    copies_bytes: int = 0

    def ceiling(self, worker_bytes: int) -> int:
        """The kernel's limit while a cell runs in a worker that holds this much now."""
        return self.limit_bytes + worker_bytes + self.copies_bytes + _SLACK

    def crowded(self, held_bytes: int) -> bool:
        """Whether a checkpoint must go, when everything together holds this much between cells."""
        return held_bytes - self.copies_bytes > self.limit_bytes

    def exceeded(self, worker_bytes: int, files_bytes: int) -> bool:
        """Whether the worker with its files is beyond the session's own limit."""
        return worker_bytes - self.worker_bytes + files_bytes > self.limit_bytes


def can_be_sealed(enforcer: str | None) -> bool:
    """Whether checkpoints may forbid other processes to look into them, and we still see how much memory they hold.

    Whoever made a user namespace may look into everything in it. Without one, only CAP_SYS_PTRACE does: an ordinary
    user behind Landlock would have to count every page of every checkpoint as its own. There Landlock itself lets no
    process write into another one (/proc is read-only); a checkpoint can be read.
    """
    return enforcer == bubblewrap.NAME or _CAP_SYS_PTRACE in held_capabilities()


def anonymous_bytes(pid: int) -> int:
    """Memory of one process that is backed by no file; 0 when it is gone."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open(f"/proc/{speaker(pid)}/status", "rb") as file:
            for line in file:
                if line.startswith(b"RssAnon:"):
                    return int(line.split()[1]) << 10
    return 0


def private_bytes(init_pid: int) -> dict[int, int]:
    """Memory that each process of a jail holds alone, by its pid inside: what its end would give back."""
    found: dict[int, int] = {}
    for pid in tree(init_pid):
        with contextlib.suppress(OSError):
            with open(f"/proc/{speaker(pid)}/smaps_rollup", "rb") as file:
                total = sum(int(line.split()[1]) for line in file if line.startswith(b"Private_"))
            found[inner_pid(pid)] = total << 10
    return found

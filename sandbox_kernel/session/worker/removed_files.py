"""Which processes keep removed files of the work folder, whose room nobody gets back before those processes end."""

from __future__ import annotations

import contextlib
import os

from sandbox_kernel.jail.accounting.processes import speaker, tree
from sandbox_kernel.session.worker.channel import inner_pid


def holders(init_pid: int, device: int | None) -> frozenset[int]:
    """Return the processes of a jail, by their pids inside, that have removed files of a file system open.

    ``device`` is its number; None means every file system. A process that cannot be looked at counts as one of them.
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

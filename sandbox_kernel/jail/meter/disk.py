"""What a run may know of its work folder's disk while it goes on."""

from __future__ import annotations

import os
from dataclasses import dataclass

#: More files than this end a run: each costs kernel memory that no size limit counts.
MAX_INODES = 200_000


@dataclass(frozen=True)
class Disk:
    """``full``: the limit was met. ``over``: the run must end, because nothing else will stop it."""

    full: bool
    over: bool


def of_file_system(fd: int) -> Disk:
    """For a folder that is a file system of its own: the kernel refuses what is too much, but for the files' number."""
    seen = os.fstatvfs(fd)
    too_many = seen.f_files - seen.f_ffree > MAX_INODES
    return Disk(full=too_many or seen.f_bavail == 0, over=too_many)

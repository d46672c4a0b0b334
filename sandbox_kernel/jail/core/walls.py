"""What the walls of one sandbox are made of: everything that is fixed before it starts.

Two requests with equal walls can be served by the same kind of waiting sandbox, so ``Walls`` is also the key of the
pool. It is plain data; ``bubblewrap.py`` and ``landlock.py`` turn it into command lines and rules.
"""

from __future__ import annotations

from dataclasses import dataclass

from sandbox_kernel.limits import MIB, Limits
from sandbox_kernel.policy import Grant

#: Places inside every sandbox that has a root of its own.
WORK = "/box"
CELL = "/cell"
GUEST = "/guest"
TMP = "/tmp"


@dataclass(frozen=True)
class Places:
    """Where the work folder, the program's source, our own programs and temporary files are, as the program sees it."""

    work: str = WORK
    cell: str = CELL
    guest: str = GUEST
    tmp: str = TMP


#: The user that programs are, inside.
INNER_UID = 1000


@dataclass(frozen=True)
class Warm:
    """A program that starts before its order comes, and reads it from the descriptor that its last argument names.

    The order (cwd, environment, arguments) is one frame of JSON. Limits and the filter that denies starting processes
    are set before a program starts, so they are part of the walls here.
    """

    argv: tuple[str, ...]
    rlimits: tuple[tuple[str, int], ...] = ()
    seccomp: bytes | None = None


@dataclass(frozen=True)
class Walls:
    """One sandbox's mounts and sizes, and the interpreter that waits inside it."""

    interpreter: str
    runtime: tuple[Grant, ...]
    grants: tuple[Grant, ...]
    box_bytes: int
    tmp_bytes: int
    shm_bytes: int
    preload: tuple[str, ...] = ("site",)
    warm: Warm | None = None
    #: The name of what holds the walls; None for a jail without any, which somebody must have asked for by name.
    enforcer: str | None = "bubblewrap"
    #: Whether ready-made jails may be forks of one template, which share its address layout and its hash seed.
    templates: bool = True


def sizes(limits: Limits, memory_mb: int) -> tuple[int, int, int]:
    """Sizes in bytes of /box, /tmp and /dev/shm; a jail without mounts has the first for all that it writes.

    They are memory file systems, and their pages count against the memory limit. Together they stay below it, so that
    a program that fills the disk sees "no space left" and not the end of its memory.
    """
    memory = memory_mb * MIB
    disk = limits.disk_mb * MIB
    return (min(disk, memory // 2), min(disk, memory // 4), min(disk, memory // 8))

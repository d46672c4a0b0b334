"""What the walls of one sandbox are made of: everything that is fixed before it starts.

Requests with equal walls can use the same kind of spare, so ``Walls`` is also the key of the pool. It is plain data;
``bubblewrap.py`` and ``landlock.py`` turn it into command lines and rules.
"""

from __future__ import annotations

from dataclasses import replace

from sandbox_kernel.limits import MIB, Limits
from sandbox_kernel.model.request import is_own_place
from sandbox_kernel.policy import Grant
from sandbox_kernel.policy.gpu import GpuRule, find_gpu
from sandbox_kernel.util.values import dataclass

#: Paths inside every sandbox that has its own root.
WORK = "/box"
CELL = "/cell"
GUEST = "/guest"
TMP = "/tmp"
BUBBLEWRAP = "bubblewrap"
#: The enforcer of hosts where bubblewrap does not work.
LANDLOCK = "landlock"
#: Where the root of a template shows the folder that its jails work on; covered in every jail.
HERE = "/here"
#: Empty folders of every jail: names that people mount their data at, here, in containers and in hosted notebooks.
LATE_PLACES = (
    *("/data", "/mnt", "/home", "/media", "/srv", "/work", "/workspace", "/content", "/kaggle"),
    *("/project", "/projects", "/workspaces", "/datasets", "/input", "/inputs", "/output", "/outputs", "/results"),
    *("/models", "/storage", "/scratch", "/shared", "/volumes", "/notebooks", "/app", "/src", "/code", "/repo", "/opt"),
)


@dataclass(frozen=True)
class Places:
    """The paths of the work folder, the program's source, our own programs and temporary files, as seen inside."""

    work: str = WORK
    cell: str = CELL
    guest: str = GUEST
    tmp: str = TMP

    def environment(self, path: str, home: str) -> dict[str, str]:
        """Return the variables that every program inside gets. Callers add what the policy and the request give.

        Where the paths are those of the host, behind Landlock, they may not use its /tmp. git takes a missing
        configuration of the system for none, and one that it may not read for a mistake.
        """
        behind_landlock = {} if self.tmp == TMP else {"TMPDIR": self.tmp, "GIT_CONFIG_NOSYSTEM": "1"}
        return {"PATH": path, "HOME": home, "LANG": "C.UTF-8", **behind_landlock}


#: The uid of programs inside.
INNER_UID = 1000


@dataclass(frozen=True)
class Warm:
    """A program that starts before its order comes, and reads the order from the descriptor in its last argument.

    The order (cwd, environment, arguments) is one frame of JSON. The rlimits and the filter that denies starting
    processes must be set before the program starts, so they are part of the walls.
    """

    argv: tuple[str, ...]
    rlimits: tuple[tuple[str, int], ...] = ()
    seccomp: bytes | None = None


@dataclass(frozen=True)
class Walls:
    """The mounts and sizes of one sandbox, and the interpreter that waits inside."""

    interpreter: str
    runtime: tuple[Grant, ...]
    grants: tuple[Grant, ...]
    box_bytes: int
    tmp_bytes: int
    shm_bytes: int
    preload: tuple[str, ...] = ("site",)
    warm: Warm | None = None
    #: The name of the enforcer; None for a jail without walls, which the caller has to request explicitly.
    enforcer: str | None = BUBBLEWRAP
    #: Whether jails may be forked from a template. Such jails share its address layout and its hash seed.
    templates: bool = True
    #: Whether a Jupyter kernel listens inside: it may list the interfaces of the jail's network, because libzmq ends
    #: its process when it cannot; without such a network it may listen on unix sockets, and connect to none.
    serves: bool = False
    #: Device files of the host that the program may use: those of an accelerator.
    devices: tuple[str, ...] = ()
    #: The real path of the host folder that programs work on, copy-on-write, at ``WORK``; None for an empty folder.
    here: str | None = None
    #: Device and inode of that folder: another one at the same path is another kind of walls.
    here_id: tuple[int, int] | None = None


def own_path(walls: Walls) -> tuple[str, list[str]]:
    """Return where ``here`` is shown a second time, at its own path, and the mounts that lie inside it there.

    The path is empty where the sandbox, a mount, or a name that is no text stands in the way: programs find the folder
    at ``WORK`` alone then.
    """
    path = walls.here or "/"
    mounts = [grant.target for grant in (*walls.runtime, *walls.grants)]
    taken = any(path == target or path.startswith(f"{target}/") for target in (*mounts, "/var/tmp"))
    top = "/" + path.split("/")[1]
    if taken or not path.isprintable() or path == TMP or (top != TMP and is_own_place(top)) or top.startswith("/lib"):
        return "", []
    return path, [target for target in mounts if target.startswith(f"{path}/")]


def with_gpu(walls: Walls, rule: GpuRule | None) -> Walls:
    """Return the walls with the accelerators that a rule allows; ``PolicyViolation`` when this host lacks them."""
    if rule is None:
        return walls
    found = find_gpu(rule)
    folders = tuple(Grant(folder, folder, False) for folder in found.folders)
    return replace(walls, runtime=tuple(dict.fromkeys((*walls.runtime, *folders))), devices=found.devices)


def has_own_disk(enforcer: str | None) -> bool:
    """Whether the work folder is its own file system with a size limit of the kernel."""
    return enforcer == BUBBLEWRAP


def sizes(limits: Limits, memory_mb: int) -> tuple[int, int, int]:
    """Return the sizes in bytes of /box, /tmp and /dev/shm. A jail without mounts uses the first for all files.

    They are memory file systems and their pages count against the memory limit. Together they stay below it, so that a
    program that fills the disk gets "no space left" and does not run out of memory.
    """
    memory = memory_mb * MIB
    disk = limits.disk_mb * MIB
    return (min(disk, memory // 2), min(disk, memory // 4), min(disk, memory // 8))

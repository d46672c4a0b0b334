"""The specification for ``guest/gate/open_gate.py``: which user to become, and the walls that each step puts up."""

from __future__ import annotations

import marshal
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sandbox_kernel.errors import EnforcerUnavailable
from sandbox_kernel.jail.core.walls import LANDLOCK, Places, Walls
from sandbox_kernel.jail.root.root_plan import is_closed, reachable_by_all
from sandbox_kernel.jail.root.sandbox_user import held_capabilities
from sandbox_kernel.jail.rules import seccomp
from sandbox_kernel.jail.rules.bubblewrap import HOST_ETC
from sandbox_kernel.jail.rules.in_place import in_place_paths
from sandbox_kernel.jail.rules.landlock import LandlockPlan, landlock_abi, landlock_plan
from sandbox_kernel.policy.written_folders import own_places

#: The oldest useful format of marshal, which every Python reads.
_MARSHAL_FORMAT = 2

#: The system, and the parts of /etc without secrets. /proc is needed by sessions and many programs; what it shows of
#: other processes is in the list of weaknesses.
_SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/dev/random", "/dev/urandom"),
    *(f"/etc/{name}" for name in (*HOST_ETC, "passwd", "group", "nsswitch.conf")),
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full")

CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2
#: Landlock controls truncation since this version. Before, a process that overrides permissions could empty any file.
_ABI_TRUNCATE = 3
#: How many more tasks than now the user may have between two ticks of the watchdog.
_TASK_ROOM = 1024


@dataclass(frozen=True, kw_only=True)
class OpenSpec:
    """One jail without namespaces. ``uid`` is its own user; ``capabilities`` are rights that this user gets."""

    parent: int
    work: str
    cell: str
    tmp: str
    uid: int | None = None
    capabilities: tuple[int, ...] = ()
    landlock: LandlockPlan | None = None
    seccomp: tuple[bytes, ...] = ()
    task_room: int = 0

    def to_bytes(self) -> bytes:
        """Encode it for the guest, which reads it from a descriptor."""
        return marshal.dumps(
            {
                "parent": self.parent,
                "work": self.work,
                "cell": self.cell,
                "tmp": self.tmp,
                "uid": self.uid,
                "capabilities": list(self.capabilities),
                "landlock": self.landlock.to_dict() if self.landlock is not None else None,
                "seccomp": list(self.seccomp),
                "task_room": self.task_room,
            },
            _MARSHAL_FORMAT,
        )


def open_spec(walls: Walls, places: Places, uid: int | None, *, counted: bool) -> OpenSpec:
    """Return the specification for these walls.

    Args:
        walls: The walls.
        places: The paths of the jail.
        uid: The jail's own user; None for the host's.
        counted: Whether the kernel counts the processes of this sandbox alone.

    Raises:
        PolicyViolation: A grant needs a mount, or Landlock cannot enforce it.
        EnforcerUnavailable: This host lacks something that the walls need.

    """
    room = 0 if counted or uid is not None or os.geteuid() == 0 else _TASK_ROOM
    if walls.enforcer is None:
        return OpenSpec(parent=os.getpid(), work=places.work, cell=places.cell, tmp=places.tmp, task_room=room)
    abi = landlock_abi()
    reads, writes = in_place_paths((*walls.runtime, *walls.grants), LANDLOCK)
    plan = landlock_plan(
        tuple(dict.fromkeys((*existing(_SYSTEM), places.guest, *reads, *own_places(writes)))),
        (*existing(_DEVICES), places.work, places.cell, places.tmp, *writes),
        abi=abi,
        devices=walls.devices,
    )
    known = tuple((grant.source, grant.identity) for grant in walls.grants if grant.identity is not None)
    plan = replace(plan, identities=known)
    capabilities = _capabilities(walls, places, writes, abi) if uid is not None else ()
    arch = seccomp.host_arch()
    # An own user can change modes and times of its own files only, unless it may override permissions.
    shared = uid is None or CAP_DAC_OVERRIDE in capabilities
    program = seccomp.build_filter(
        arch, families=(), deny_sysv_ipc=True, shared_pids=True, shared_files=shared, serves_unix=walls.serves
    )
    filters = (program, seccomp.build_no_watch_filter(arch)) if capabilities else (program,)
    return OpenSpec(
        parent=os.getpid(),
        work=places.work,
        cell=places.cell,
        tmp=places.tmp,
        uid=uid,
        capabilities=capabilities,
        landlock=plan,
        seccomp=filters,
        task_room=room,
    )


def existing(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the real paths of those that exist, each once."""
    return tuple(dict.fromkeys(os.path.realpath(path) for path in paths if os.path.exists(path)))


def _capabilities(walls: Walls, places: Places, writes: Sequence[str], abi: int) -> tuple[int, ...]:
    """Return the capabilities that the jail's own user needs to read what root can read, where Landlock allows it.

    Interpreters are often below a home that only root may enter, and allowed files often belong to root.
    """
    # The private folder belongs to this user; the folders above it matter.
    way = os.path.dirname(os.path.dirname(places.work))
    hidden = [path for path in (way, places.guest, *(g.source for g in walls.runtime)) if not reachable_by_all(path)]
    if not walls.grants and not hidden:
        return ()
    held = held_capabilities()
    # A file that others may not execute needs the stronger capability; the one for reading is not enough.
    closed = any(os.path.exists(g.source) and is_closed(g.source) for g in walls.runtime)
    if not writes and not closed and CAP_DAC_READ_SEARCH in held:
        return (CAP_DAC_READ_SEARCH,)
    if CAP_DAC_OVERRIDE in held and abi >= _ABI_TRUNCATE:
        return (CAP_DAC_OVERRIDE,)
    raise EnforcerUnavailable(
        LANDLOCK,
        f"the sandbox's own user cannot reach {', '.join(hidden) or 'the allowed paths'}, and root lacks the "
        "capability (CAP_DAC_READ_SEARCH, or CAP_DAC_OVERRIDE on Linux 6.2 or later) to let it; "
        "use an interpreter that all users can read, for example in /usr or /opt, or install bubblewrap",
    )

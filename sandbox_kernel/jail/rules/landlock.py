"""Landlock: the enforcer for hosts where no namespace can be made, such as most containers.

The plan is made here as plain data; ``guest/gate/lockdown.py`` applies it to the process that becomes the program.
Landlock cannot take rights away further down a path, so a read-only path inside a writable one is refused.
``landlock_weaknesses`` lists for the report what this tier leaves open.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace

from sandbox_kernel.errors import EnforcerUnavailable, PolicyViolation
from sandbox_kernel.jail.root_user import held_capabilities, is_closed, reachable_by_all
from sandbox_kernel.jail.rules import seccomp
from sandbox_kernel.jail.rules.bubblewrap import HOST_ETC
from sandbox_kernel.jail.walls import LANDLOCK, Places, Walls
from sandbox_kernel.policy import Grant
from sandbox_kernel.policy.written_folders import own_places
from sandbox_kernel.util.values import dataclass

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
MAKE_CHAR, MAKE_BLOCK = 1 << 6, 1 << 11
REFER, TRUNCATE, IOCTL_DEV, RESOLVE_UNIX = 1 << 13, 1 << 14, 1 << 15, 1 << 16
BIND_TCP, CONNECT_TCP, BIND_UDP, SEND_UDP = 1 << 0, 1 << 1, 1 << 2, 1 << 3
SCOPE_ABSTRACT_SOCKETS, SCOPE_SIGNALS = 1 << 0, 1 << 1

READ_RIGHTS = EXECUTE | READ_FILE | READ_DIR

#: Rights by the ABI version that added them. A kernel refuses a plan with rights that it does not know.
_FS_SINCE = ((1, (1 << 13) - 1), (2, REFER), (3, TRUNCATE), (5, IOCTL_DEV), (9, RESOLVE_UNIX))
_NET_SINCE = ((4, BIND_TCP | CONNECT_TCP), (10, BIND_UDP | SEND_UDP))
_SCOPE_SINCE = ((6, SCOPE_ABSTRACT_SOCKETS | SCOPE_SIGNALS),)

#: ``landlock_create_ruleset`` has the same number on all architectures.
_SYS_LANDLOCK_CREATE_RULESET, _VERSION_FLAG = 444, 1

_ALWAYS_WEAK = (
    "no PID namespace: /proc, where it is readable, shows the names and command lines of host processes",
    "no PID namespace: daemons that leave the process group are found and killed with best effort only",
    "no mount namespace: there is no private /tmp, and no size limit on what is written to allowed folders",
    "no mount namespace: the disk limit is checked from time to time, so a program can exceed it between two checks",
    "no mount namespace: programs can see which host paths exist, with owners, sizes, times and link targets",
    "no mount namespace: programs can change mode and times of readable files if the permissions allow it",
    "no network namespace: the network is off because sockets are refused, so single domains cannot be allowed",
)
_SAME_USER = (
    "no user namespace: the program runs as the user who started it, with that user's process, pipe and epoll quotas",
    "no user namespace: chmod, chown and the like are refused by path, in the work folder too",
    "no user namespace: a later cell of a session can read the memory of its checkpoints, but not write to it",
)
_OWN_USER = (
    "no user namespace: files that the program makes in allowed folders belong to a user id that only it has",
    "files of root are read with a capability (CAP_DAC_*), and only Landlock limits it to the allowed paths",
    "files of /proc and /sys that only root may read are readable with that capability where /proc and /sys are",
)
_UNTRUE_ACCESS = (
    "no CAP_SETPCAP: programs that call access() before open, as linkers do, miss files that only root may read",
)
_WEAK_BEFORE = (
    (2, "files cannot be moved or linked from one folder to another, not even inside the work folder"),
    (3, "readable files can be emptied (truncate) if the permissions allow it"),
    (4, "Landlock does not control TCP on this kernel: only the syscall filter blocks it"),
    (5, "every ioctl is allowed on device files that can be opened"),
    (6, "programs can send signals to every process of the same user, also the notebook's"),
    (6, "Landlock does not control abstract unix sockets on this kernel: only the syscall filter blocks them"),
    (9, "Landlock does not control unix sockets in the file system: only the syscall filter blocks them"),
    (10, "Landlock does not control UDP: only the syscall filter blocks it"),
)


@dataclass(frozen=True)
class LandlockPlan:
    """What a process will be limited to: the kinds of access that are controlled, and the exceptions."""

    handled_fs: int
    handled_net: int
    scoped: int
    paths: tuple[tuple[str, int], ...]
    #: Device and inode that some of the paths must have.
    identities: Mapping[str, tuple[int, int]] = field(default_factory=dict)


def landlock_abi() -> int:
    """Return the Landlock version of the running kernel; 0 when it is missing, off at boot or filtered away."""
    if sys.platform != "linux":
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    answer: int = libc.syscall(
        ctypes.c_long(_SYS_LANDLOCK_CREATE_RULESET), None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG)
    )
    return max(answer, 0)


def landlock_plan(
    reads: Sequence[str], writes: Sequence[str], *, abi: int, devices: Sequence[str] = ()
) -> LandlockPlan:
    """Return a plan that allows reading and executing below ``reads``, and all but device nodes below ``writes``.

    ``devices`` may be read, written and controlled. Everything else that the kernel can control at this ABI is denied.
    Paths are absolute and resolved (see ``in_place_paths``).
    """
    if abi < 1:
        raise EnforcerUnavailable(
            "landlock",
            "this kernel has no Landlock, or it was not switched on at boot; use Linux 5.13 or later with "
            "'landlock' in the lsm= boot parameter, or install bubblewrap",
        )
    for path in (*reads, *writes):
        if not path.startswith("/") or "\0" in path or ".." in path.split("/"):
            raise PolicyViolation(f"path {path!r} must be absolute, without '..' or NUL, to be allowed by landlock")
    _check_nesting(reads, writes)
    handled_fs, handled_net = _known(_FS_SINCE, abi), _known(_NET_SINCE, abi)
    write_rights = handled_fs & ~(MAKE_CHAR | MAKE_BLOCK | IOCTL_DEV | RESOLVE_UNIX)
    rights = dict.fromkeys(reads, READ_RIGHTS & handled_fs) | dict.fromkeys(writes, write_rights)
    rights |= dict.fromkeys(devices, (READ_FILE | WRITE_FILE | IOCTL_DEV) & handled_fs)
    return LandlockPlan(
        handled_fs=handled_fs,
        handled_net=handled_net,
        scoped=_known(_SCOPE_SINCE, abi),
        paths=tuple(rights.items()),
    )


def landlock_weaknesses(abi: int, *, own_user: bool = False, true_access: bool = True) -> tuple[str, ...]:
    """Return what this tier does not stop on a kernel with this ABI, one sentence each, for the report.

    It assumes the filter of ``open_spec``, with ``refuse_shared_ids`` and ``refuse_metadata``. Sandboxes with their own
    user need no ``refuse_metadata``: they own nothing outside.
    ``true_access``: root can make ``access()`` respect the capabilities of that user (CAP_SETPCAP).
    """
    who = (*_OWN_USER, *(() if true_access else _UNTRUE_ACCESS)) if own_user else _SAME_USER
    return (*_ALWAYS_WEAK, *who, *(text for version, text in _WEAK_BEFORE if abi < version))


def _known(since: tuple[tuple[int, int], ...], abi: int) -> int:
    return sum(right for version, right in since if abi >= version)


def _check_nesting(reads: Sequence[str], writes: Sequence[str]) -> None:
    for read in reads:
        for write in writes:
            if read != write and (read.rstrip("/") + "/").startswith(write.rstrip("/") + "/"):
                raise PolicyViolation(
                    f"{read!r} would be read-only inside {write!r}, which is writable: landlock cannot enforce that; "
                    "move one of them, or install bubblewrap"
                )


# The specification for ``guest/gate/open_gate.py``: which user to become, and the walls that each step puts up.

#: The system, and the parts of /etc without secrets. /proc is needed by sessions and many programs; what it shows of
#: other processes is in the list of weaknesses.
_SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/proc", "/dev/random", "/dev/urandom"),
    *(f"/etc/{name}" for name in (*HOST_ETC, "passwd", "group", "nsswitch.conf")),
)
#: The last one is left out where memory is watched: a shared mapping of it is memory that no watchdog sees.
_DEVICES = ("/dev/null", "/dev/full", "/dev/zero")

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


def open_spec(walls: Walls, places: Places, uid: int | None, *, counted: bool) -> OpenSpec:
    """Return the specification for these walls; ``counted``: the kernel counts the processes of this sandbox alone.

    Raises ``PolicyViolation`` for a grant that needs a mount or that Landlock cannot enforce, and
    ``EnforcerUnavailable`` when this host lacks something that the walls need.
    """
    room = 0 if counted or uid is not None or os.geteuid() == 0 else _TASK_ROOM
    spec = OpenSpec(parent=os.getpid(), work=places.work, cell=places.cell, tmp=places.tmp, task_room=room)
    if walls.enforcer is None:
        return spec
    abi = landlock_abi()
    reads, writes = in_place_paths((*walls.runtime, *walls.grants), LANDLOCK)
    plan = landlock_plan(
        tuple(dict.fromkeys((*existing(_SYSTEM), places.guest, *reads, *own_places(writes)))),
        (*existing(_DEVICES if counted else _DEVICES[:-1]), places.work, places.cell, places.tmp, *writes),
        abi=abi,
        devices=walls.devices,
    )
    known = {grant.source: grant.identity for grant in walls.grants if grant.identity is not None}
    plan = replace(plan, identities=known)
    capabilities = _capabilities(walls, places, writes, abi) if uid is not None else ()
    arch = seccomp.host_arch()
    # An own user can change modes and times of its own files only, unless it may override permissions.
    shared = uid is None or CAP_DAC_OVERRIDE in capabilities
    program = seccomp.build_filter(
        arch, families=(), refuse_shared_ids=True, refuse_metadata=shared, serves_unix=walls.serves
    )
    filters = (program, seccomp.build_no_watch_filter(arch)) if capabilities else (program,)
    return replace(spec, uid=uid, capabilities=capabilities, landlock=plan, seccomp=filters)


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


# Paths for an enforcer that cannot mount (Landlock): a host path appears inside at the same path, or not at all.


def in_place_paths(grants: Iterable[Grant], enforcer: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the paths that may be read and written; ``PolicyViolation`` if one, but for a link, needs a mount."""
    reads: list[str] = []
    writes: list[str] = []
    for grant in grants:
        if os.path.realpath(grant.target) != grant.source:
            method = "allow_read_write" if grant.writable else "allow_read"
            option = f"--mount {grant.source}:{grant.source}{':rw' if grant.writable else ''}"
            raise PolicyViolation(
                f"{grant.source!r} cannot be shown at {grant.target!r}: the enforcer '{enforcer}' cannot mount; "
                f"allow it where it is: {option}, policy.{method}({grant.source!r}), or use bubblewrap on Linux"
            )
        (writes if grant.writable else reads).append(grant.source)
    return tuple(dict.fromkeys(reads)), tuple(dict.fromkeys(writes))

"""Landlock: the enforcer for hosts where no namespace can be made, such as most containers.

The plan is made here as plain data; ``guest/gate/lockdown.py`` applies it to the process that becomes the program.
Landlock cannot take rights away further down a path, so a read-only path inside a writable one is refused.
``landlock_weaknesses`` lists for the report what this tier leaves open.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from sandbox_kernel.errors import EnforcerUnavailable, PolicyViolation

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
    ports: tuple[tuple[int, int], ...]
    #: Device and inode that some of the paths must have.
    identities: tuple[tuple[str, tuple[int, int]], ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Return the plan as plain JSON values, the form that ``guest/gate/lockdown.py`` reads."""
        return {
            "handled_fs": self.handled_fs,
            "handled_net": self.handled_net,
            "scoped": self.scoped,
            "paths": [list(pair) for pair in self.paths],
            "ports": [list(pair) for pair in self.ports],
            "identities": {path: list(identity) for path, identity in self.identities},
        }


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
    reads: Sequence[str],
    writes: Sequence[str],
    *,
    abi: int,
    allow_tcp_ports: Sequence[int] = (),
    devices: Sequence[str] = (),
) -> LandlockPlan:
    """Return a plan that allows reading and executing below ``reads``, and all but device nodes below ``writes``.

    Everything else that the kernel can control at this ABI is denied.

    Args:
        reads: Absolute, resolved files and folders (see ``in_place_paths``).
        writes: The same, for writing.
        abi: The Landlock version of the kernel.
        allow_tcp_ports: The only TCP ports that may be connected to.
        devices: Device files that may be read, written and controlled.

    """
    if abi < 1:
        raise EnforcerUnavailable(
            "landlock",
            "this kernel has no Landlock, or it was not switched on at boot; use Linux 5.13 or later with "
            "'landlock' in the lsm= boot parameter, or install bubblewrap",
        )
    for path in (*reads, *writes):
        _check_path(path)
    _check_nesting(reads, writes)
    handled_fs, handled_net = _known(_FS_SINCE, abi), _known(_NET_SINCE, abi)
    for port in allow_tcp_ports:
        _check_port(port, handled_net)
    write_rights = handled_fs & ~(MAKE_CHAR | MAKE_BLOCK | IOCTL_DEV | RESOLVE_UNIX)
    rights = dict.fromkeys(reads, READ_RIGHTS & handled_fs) | dict.fromkeys(writes, write_rights)
    rights |= dict.fromkeys(devices, (READ_FILE | WRITE_FILE | IOCTL_DEV) & handled_fs)
    return LandlockPlan(
        handled_fs=handled_fs,
        handled_net=handled_net,
        scoped=_known(_SCOPE_SINCE, abi),
        paths=tuple(rights.items()),
        ports=tuple((port, CONNECT_TCP) for port in dict.fromkeys(allow_tcp_ports)),
    )


def landlock_weaknesses(abi: int, *, own_user: bool = False, true_access: bool = True) -> tuple[str, ...]:
    """Return what this tier does not stop on a kernel with this ABI, one sentence each, for the report.

    It assumes the filter of this tier: ``build_filter(arch, families=(), deny_sysv_ipc=True, shared_pids=True,
    shared_files=True)``.

    Args:
        abi: The Landlock version of the kernel.
        own_user: Whether sandboxes have their own user. They need no ``shared_files``: they own nothing outside.
        true_access: Whether root can make ``access()`` respect the capabilities of that user (CAP_SETPCAP).

    """
    who = (*_OWN_USER, *(() if true_access else _UNTRUE_ACCESS)) if own_user else _SAME_USER
    return (*_ALWAYS_WEAK, *who, *(text for version, text in _WEAK_BEFORE if abi < version))


def _known(since: tuple[tuple[int, int], ...], abi: int) -> int:
    bits = 0
    for version, right in since:
        if abi >= version:
            bits |= right
    return bits


def _check_path(path: str) -> None:
    if not path.startswith("/") or "\0" in path or ".." in path.split("/"):
        raise PolicyViolation(f"path {path!r} must be absolute, without '..' or NUL, to be allowed by landlock")


def _check_nesting(reads: Sequence[str], writes: Sequence[str]) -> None:
    for read in reads:
        for write in writes:
            if read != write and (read.rstrip("/") + "/").startswith(write.rstrip("/") + "/"):
                raise PolicyViolation(
                    f"{read!r} would be read-only inside {write!r}, which is writable: landlock cannot enforce that; "
                    "move one of them, or install bubblewrap"
                )


def _check_port(port: int, handled_net: int) -> None:
    if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65535:
        raise PolicyViolation(f"port {port!r} must be a number from 1 to 65535")
    if not handled_net & CONNECT_TCP:
        raise PolicyViolation(
            f"port {port} cannot be the only one allowed: this kernel's Landlock does not control TCP (needs Linux 6.7)"
        )

"""Resolves a policy on this host: the real path of each grant, and where it appears inside."""

from __future__ import annotations

import os
from collections.abc import Callable

from sandbox_kernel.errors import PolicyViolation
from sandbox_kernel.ground.own_places import is_own_place
from sandbox_kernel.ground.values import dataclass
from sandbox_kernel.policy.access import AccessMode
from sandbox_kernel.policy.places import ROOT, current_folder, normal
from sandbox_kernel.policy.sandbox_policy import SandboxPolicy

#: Every jail shows these already, so allowing them is accepted and changes nothing.
_ALWAYS_READABLE = ("/usr", "/bin", "/sbin", "/lib", "/lib64")


@dataclass(frozen=True)
class Grant:
    """One resolved permission: the host path ``source`` appears inside at ``target``."""

    source: str
    target: str
    writable: bool
    #: Device and inode of what was granted. Walls are refused that would show something else; None is not compared.
    identity: tuple[int, int] | None = None


def resolve_grants(
    policy: SandboxPolicy, *, root: bool = False, real: Callable[[str], str] | None = None
) -> tuple[Grant, ...]:
    """Resolve every allowed path and mount on this host, in order. Sandboxes do it once, in ``GivenGrants``.

    With ``root`` a folder may be mounted as the root of the program; without it that raises ``PolicyViolation``.
    ``real`` returns the real path of an absolute one, or raises ``OSError``; by default it follows every link.

    An allowed path is granted at the path the user wrote *and* at its real path, so that programs that resolve links
    find it. A path that does not exist raises ``PolicyViolation``, because it is probably a typo.
    """
    grants: list[Grant] = []
    for allowed in policy.allowed_paths:
        written = normal(_absolute(allowed.path))
        found = _real(allowed.path, written, real)
        writable = allowed.mode is AccessMode.READ_WRITE
        for target in dict.fromkeys((written, found)):
            if target in _ALWAYS_READABLE and not writable:
                continue
            if is_own_place(target):
                raise PolicyViolation(
                    f"path {allowed.path!r} is a place that the sandbox provides itself; mount it elsewhere: "
                    f"policy.mount({allowed.path!r}, '/data')"
                )
            grants.append(Grant(found, target, writable))
    check_targets(policy, root=root)
    for mount in policy.mounts:
        found = _real(mount.host, _absolute(mount.host), real)
        grants.append(Grant(found, mount.guest, mount.writable))
    return tuple(dict.fromkeys(grants))


def check_targets(policy: SandboxPolicy, *, root: bool) -> None:
    """Raise ``PolicyViolation`` for a mount at a place that programs cannot have; ``root``: see ``resolve_grants``."""
    for mount in policy.mounts:
        if mount.guest == ROOT and not root:
            raise PolicyViolation(
                f"{mount.host!r} is mounted at '/', which only programs inside WebAssembly can have (backend='wasm'); "
                f"mount it elsewhere: policy.mount({mount.host!r}, '/data')"
            )
        system = next((top for top in _ALWAYS_READABLE if mount.guest.startswith(f"{top}/")), None)
        if system is not None and not root and not os.path.exists(mount.guest):
            raise PolicyViolation(
                f"nothing can be mounted at {mount.guest!r}: {system} inside is the host's, read-only, and has no such "
                f"place; mount it elsewhere: policy.mount({mount.host!r}, '/data')"
            )


def _absolute(path: str) -> str:
    """Return an absolute path; the current folder is looked up for relative paths only."""
    home = os.path.expanduser(path)
    return os.path.normpath(home if os.path.isabs(home) else os.path.join(current_folder(path), home))


def _real(asked: str, absolute: str, real: Callable[[str], str] | None) -> str:
    try:
        return real(absolute) if real is not None else os.path.realpath(absolute, strict=True)
    except OSError as error:
        raise PolicyViolation(
            f"policy allows {asked!r}, which does not resolve on this host: {error.strerror}; create it or remove it"
        ) from None

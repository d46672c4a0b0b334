"""``GivenGrants``: the grants of a policy as the files that stood at its paths when it was given.

A path is a name, and a program that may write to a folder can make a name in it mean something else: it renames
``data`` away, puts a link to ``~/.ssh`` there and waits until the next start resolves the path anew. So each source is
opened once, and every start compares: before it, what stands at the path; and all kinds of walls, where they mount or
allow it, device and inode (``Grant.identity``). What was exchanged is refused.

A policy that is given later, or once more, is opened anew. Then no link is followed in a folder that programs may write
to: by this policy, or by an earlier one of this user (``policy/written_folders.py``).
"""

from __future__ import annotations

import contextlib
import os
import threading
from dataclasses import replace

from sandbox_kernel.errors import PolicyViolation
from sandbox_kernel.policy import Grant, SandboxPolicy, resolve_grants
from sandbox_kernel.policy.sandbox_policy import check_targets
from sandbox_kernel.policy.written_folders import own_places, real_path, remember


class GivenGrants:
    """The grants of one policy. Thread-safe; the descriptors are closed with the object.

    Paths are opened when it is made. If that fails, because one does not exist yet, the first use opens them or raises.
    """

    def __init__(self, policy: SandboxPolicy) -> None:
        self._policy = policy
        self._lock = threading.Lock()
        self._opened: dict[str, int] = {}
        self._grants: tuple[Grant, ...] | None = None
        with contextlib.suppress(PolicyViolation):
            self._resolved()

    def __del__(self) -> None:
        """Close the descriptors."""
        while self._opened:
            os.close(self._opened.popitem()[1])

    def now(self, *, root: bool = False) -> tuple[Grant, ...]:
        """Return the grants for one start (``root``: see ``resolve_grants``); else ``PolicyViolation``."""
        grants = self._resolved()
        check_targets(self._policy, root=root)
        return tuple([replace(grant, identity=self._identity(grant.source)) for grant in grants])

    def _resolved(self) -> tuple[Grant, ...]:
        with self._lock:
            if self._grants is None:
                self.__del__()
                own = {identity_of(grant.source) for grant in resolve_grants(self._policy, root=True) if grant.writable}
                grants = resolve_grants(self._policy, root=True, real=lambda path: real_path(path, own))
                own_places([grant.source for grant in grants if grant.writable])
                for grant in grants:
                    if grant.source not in self._opened:
                        self._opened[grant.source] = _open(grant.source)
                    if grant.writable:
                        remember(grant.source, os.fstat(self._opened[grant.source]))
                self._grants = grants
            return self._grants

    def _identity(self, source: str) -> tuple[int, int]:
        # Asked anew each time: on overlayfs a file that is written to for the first time may get other numbers.
        given = os.fstat(self._opened[source])
        if identity_of(source) != (given.st_dev, given.st_ino):
            raise exchanged(source)
        return given.st_dev, given.st_ino


def exchanged(source: str) -> PolicyViolation:
    """Return the error for a path at which something else stands than when the policy was given."""
    now = "was exchanged" if os.path.exists(source) else "does not resolve on this host any more"
    return PolicyViolation(
        f"{source!r} {now}: a grant is the file or folder that stood there when the policy was given. If you moved or "
        "replaced it yourself, give the policy again: with a new Sandbox(policy), or by a restart of the kernel"
    )


def identity_of(path: str) -> tuple[int, int]:
    """Return device and inode of what stands at a path; zeros for nothing."""
    try:
        info = os.stat(path)
    except OSError:
        return 0, 0
    return info.st_dev, info.st_ino


def _open(source: str) -> int:
    """Return a descriptor of a real path. Raises ``PolicyViolation`` when it leads elsewhere since."""
    with contextlib.suppress(OSError):
        fd = os.open(source, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        if os.readlink(f"/proc/self/fd/{fd}") == source:
            return fd
        os.close(fd)
    raise exchanged(source)

"""``GivenGrants``: the grants of a policy as the files that stood at its paths when it was given.

A path is a name, and programs that may write to a folder can make a name in it mean something else: rename ``data``
away, put a link to ``~/.ssh`` there, and wait until the next start resolves the path anew. So a sandbox, kernel or late
right opens each source once and keeps the descriptor. Before every start it looks whether the same file or folder still
stands there, and every kind of walls compares device and inode once more where it mounts or allows it
(``Grant.identity``): what was exchanged is refused.

A sandbox that is made later opens the paths again. It follows no link that lies in a folder that programs may write to:
by the same policy, or by one that this user gave before, in this process or another (a private file of folders).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import threading
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from sandbox_kernel.errors import PolicyViolation
from sandbox_kernel.policy import AccessMode, Grant, SandboxPolicy, resolve_grants
from sandbox_kernel.policy.grants import absolute_path, check_targets
from sandbox_kernel.workspace.own_folder import make_own_folder, state_root, walked

#: How many folders are remembered; beyond that, those that are gone and then the oldest are forgotten.
_MOST_REMEMBERED = 4096

_writable: dict[str, None] = {}


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
        self._close()

    def under(self, policy: SandboxPolicy) -> GivenGrants:
        """Return these grants if another policy has the same paths, else those of the other policy."""
        same = (policy.allowed_paths, policy.mounts) == (self._policy.allowed_paths, self._policy.mounts)
        return self if same else GivenGrants(policy)

    def now(self, *, root: bool = False) -> tuple[Grant, ...]:
        """Return the grants for the walls of one start; ``root``: see ``resolve_grants``.

        Raises ``PolicyViolation`` when a path does not resolve, or something else stands there now.
        """
        grants = self._resolved()
        check_targets(self._policy, root=root)
        return tuple([replace(grant, identity=self._identity(grant.source)) for grant in grants])

    def _resolved(self) -> tuple[Grant, ...]:
        with self._lock:
            if self._grants is None:
                own = {_identity(absolute_path(path)) for path in _written_to(self._policy)}
                grants = resolve_grants(self._policy, root=True, real=lambda path: real_path(path, own))
                try:
                    for grant in grants:
                        if grant.source not in self._opened:
                            self._opened[grant.source] = _open(grant.source)
                except BaseException:
                    self._close()
                    raise
                written_to = {grant.source for grant in grants if grant.writable}
                remember_writable((path, os.fstat(self._opened[path]).st_ino) for path in sorted(written_to))
                self._grants = grants
            return self._grants

    def _identity(self, source: str) -> tuple[int, int]:
        # Asked anew each time: on overlayfs a file that is written to for the first time may get other numbers.
        given = os.fstat(self._opened[source])
        if _identity(source) != (given.st_dev, given.st_ino):
            raise exchanged(source)
        return given.st_dev, given.st_ino

    def _close(self) -> None:
        while self._opened:
            os.close(self._opened.popitem()[1])


def exchanged(source: str) -> PolicyViolation:
    """Return the error for a path at which something else stands than when the policy was given."""
    return PolicyViolation(
        f"{source!r} is not the file or folder any more that the policy allowed: it was exchanged, moved or removed "
        "since the policy was given. If that was you, give the policy again: a new Sandbox(policy), %sandbox restart, "
        "or a new kernel"
    )


def check_identities(grants: Iterable[Grant]) -> None:
    """Raise ``PolicyViolation`` when something else stands at the path of a grant. For walls that did not come up."""
    for grant in grants:
        if grant.identity not in (None, _identity(grant.source)):
            raise exchanged(grant.source)


def real_path(path: str, writable: Collection[tuple[int, int]] = ()) -> str:
    """Return the real path of an absolute path. Raises ``OSError`` if it does not exist.

    Raises ``PolicyViolation`` for a link that a program may have made: one in a folder that was given writable before,
    or in one of ``writable`` (devices and inodes).
    """
    real, folders = "/", dict[str, os.stat_result]()
    for passed, found in walked(path):
        if not stat.S_ISLNK(found.st_mode):
            real, folders[passed] = passed, found
            continue
        above = {each: info for each, info in folders.items() if passed.startswith(f"{each.rstrip('/')}/")}
        own = (each for each, info in above.items() if (info.st_dev, info.st_ino) in writable)
        folder = next(own, None) or _remembered({_entry(each, info.st_ino): each for each, info in above.items()})
        if folder is not None:
            raise PolicyViolation(
                f"{path!r} leads through the link {passed!r}. It lies in {folder!r}, which programs may write to, so "
                "one of them may have made it; name what it leads to, or put the folder itself there"
            )
    return real


def remember_writable(folders: Iterable[tuple[str, int]]) -> None:
    """Remember folders that programs may write to, for this process and for later ones of this user.

    Each is a real path and an inode: a folder that the user makes there later is another one.

    Later processes know nothing of it where the user has no private folder for state.
    """
    new = [entry for path, inode in folders if (entry := _entry(path, inode)) not in _writable]
    if not new:
        return
    _writable.update(dict.fromkeys(new))
    for old in _gone([*_writable]) if len(_writable) > _MOST_REMEMBERED else ():
        _writable.pop(old, None)
    with contextlib.suppress(OSError):
        make_own_folder(os.path.dirname(_record()))
        with open(_record(), "a+", encoding="ascii") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            known = file.read().splitlines()
            new = [line for line in new if line not in known]
            if len(known) + len(new) > _MOST_REMEMBERED:
                known, gone = [*known, *new], {*_gone([*known, *new])}
                new = [line for line in known if line not in gone][-_MOST_REMEMBERED:]
                file.truncate(0)
            file.writelines(f"{line}\n" for line in new)


def _remembered(entries: Mapping[str, str]) -> str | None:
    """Return the folder of the first entry that was remembered; None for none. Read for links only, so seldom."""
    known: Collection[str] = _writable
    with contextlib.suppress(OSError, ValueError), open(_record(), encoding="ascii") as file:
        known = {*known, *file.read().splitlines()}
    return next((folder for entry, folder in entries.items() if entry in known), None)


def _entry(path: str, inode: int) -> str:
    return json.dumps([path, inode])


def _gone(entries: list[str]) -> list[str]:
    return [entry for entry in entries if not os.path.isdir(json.loads(entry)[0])]


def _record() -> str:
    return os.path.join(state_root(), "sandbox-kernel", "writable-folders")


def _written_to(policy: SandboxPolicy) -> list[str]:
    """Return the paths that a policy lets programs write to, as they were written."""
    allowed = [each.path for each in policy.allowed_paths if each.mode is AccessMode.READ_WRITE]
    return [*allowed, *(mount.host for mount in policy.mounts if mount.writable)]


def _identity(path: str) -> tuple[int, int]:
    """Return device and inode of what stands at a path; zeros for nothing."""
    try:
        info = os.stat(path)
    except OSError:
        return 0, 0
    return info.st_dev, info.st_ino


def _open(source: str) -> int:
    """Return a descriptor of a real path. Raises ``PolicyViolation`` when it leads elsewhere since."""
    try:
        fd = os.open(source, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        raise exchanged(source) from None
    with contextlib.suppress(OSError):
        if os.readlink(f"/proc/self/fd/{fd}") != source:
            os.close(fd)
            raise exchanged(source)
    return fd

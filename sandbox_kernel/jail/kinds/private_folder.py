"""A folder on the host for one jail: its work folder, its program and its temporary files. Removed afterwards.

It is in memory if there is room, as work folders behind bubblewrap are: programs make many small files, and deleting
them from a disk is slow. The host holds a lock on the folder while the jail lives. A folder without a lock was left
by a killed host; the next host that makes such a folder removes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os

from sandbox_kernel.errors import EnforcerFailed, SandboxError
from sandbox_kernel.ground.own_folder import parent_weakness
from sandbox_kernel.workspace.tree.removal import remove_tree

_MEMORY = "/dev/shm"
PREFIX = "sandbox-kernel-jail-"
#: Folders with this prefix are not swept: they are new and not locked yet.
_UNFINISHED = "sandbox-kernel-new-"
#: Time limit for one removal; a program may leave a million files.
_REMOVAL_S = 120.0
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class PrivateFolder:
    """The folders ``work``, ``cell`` and ``tmp`` below a path that other users cannot list.

    Args:
        size: The most bytes that will be put there.
        uid: The owner of the three folders; None for this user.

    """

    def __init__(self, size: int, uid: int | None = None) -> None:
        parent = choose_parent(size)
        _sweep_once(parent)
        name = f"{os.getpid()}-{os.urandom(8).hex()}"
        new, self.path = f"{parent}/{_UNFINISHED}{name}", f"{parent}/{PREFIX}{name}"
        # The other user must be able to reach its own folders inside, and nothing else.
        os.mkdir(new, 0o700 if uid is None else 0o711)
        self._lock = os.open(new, _OPEN)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for inner in ("work", "cell", "tmp"):
            os.mkdir(inner, 0o700, dir_fd=self._lock)
            if uid is not None:
                os.chown(inner, uid, uid, dir_fd=self._lock, follow_symlinks=False)
        os.rename(new, self.path)

    def inner(self, name: str) -> str:
        """Return the path of ``work``, ``cell`` or ``tmp``."""
        return f"{self.path}/{name}"

    def remove(self) -> None:
        """Remove the folder and everything in it. May be called twice."""
        if self._lock >= 0:
            _remove(self.path)
            self.forget()

    def forget(self) -> None:
        """Close the descriptor and do nothing else: in a forked child the folder belongs to the parent."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def choose_parent(size: int) -> str:
    """Return where to make a folder for this many bytes: in memory if most of that stays free, else in the temp folder.

    Programs are compiled and run there, so a file system without execution is skipped. So is a parent where another
    user could replace our folder.
    """
    import tempfile  # a run in a jail with its own disk does not need it

    usual = os.path.realpath(tempfile.gettempdir())
    for parent, spare in ((_MEMORY, 4 * size), (usual, 0), ("/var/tmp", 0)):
        with contextlib.suppress(OSError):
            found = os.statvfs(parent)
            usable = os.access(parent, os.W_OK | os.X_OK) and not found.f_flag & os.ST_NOEXEC
            if usable and found.f_bavail * found.f_frsize > spare and parent_weakness(parent) is None:
                return parent
    problem = parent_weakness(usual)
    if problem is not None:
        raise EnforcerFailed(
            "work folder", f"other users could replace it: {problem}; set TMPDIR to a folder of yours with mode 700"
        )
    return usual


def _remove(path: str) -> None:
    parent, name = os.path.split(path)
    fd = os.open(parent, _OPEN)
    try:
        # What cannot be removed now has no lock and is removed by the next sweep.
        with contextlib.suppress(FileNotFoundError, SandboxError):
            remove_tree(fd, name, _REMOVAL_S)
    finally:
        os.close(fd)


@functools.lru_cache(maxsize=8)
def _sweep_once(parent: str) -> None:
    sweep(parent)


def sweep(parent: str) -> None:
    """Remove private folders whose host is gone."""
    with os.scandir(parent) as entries:
        ours = [entry.path for entry in entries if entry.name.startswith(PREFIX)]
    for path in ours:
        with contextlib.suppress(OSError):
            fd = os.open(path, _OPEN)
            try:
                if os.fstat(fd).st_uid == os.geteuid():
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _remove(path)
            finally:
                os.close(fd)

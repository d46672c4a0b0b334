"""A folder on the host that is one jail's alone: its work, its program and its temporary files, removed afterwards.

It lies in memory where there is room, as work folders behind bubblewrap do: programs make and leave many small files,
and disks take long to forget them. While its jail lives the host holds a lock on it. What a killed host left behind has
no lock any more, and the next one that makes such a folder sweeps it away.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import secrets
import tempfile

from sandbox_kernel.errors import EnforcerFailed, SandboxError
from sandbox_kernel.workspace.own_folder import parent_weakness
from sandbox_kernel.workspace.tree.removal import remove_tree

_MEMORY = "/dev/shm"
PREFIX = "sandbox-kernel-jail-"
#: Not swept: it has no lock yet, because it was made this very moment.
_UNFINISHED = "sandbox-kernel-new-"
#: A program may leave a million files; more time than this is not spent on them at once.
_REMOVAL_S = 120.0
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class PrivateFolder:
    """``work``, ``cell`` and ``tmp`` below a path that nobody else may list.

    ``size`` is what will be put there at most; ``uid`` owns the three, if given.
    """

    def __init__(self, size: int, uid: int | None = None) -> None:
        parent = choose_parent(size)
        _sweep_once(parent)
        name = f"{os.getpid()}-{secrets.token_hex(8)}"
        new, self.path = f"{parent}/{_UNFINISHED}{name}", f"{parent}/{PREFIX}{name}"
        # Another user must be able to walk to its own folders inside, and to see nothing else.
        os.mkdir(new, 0o700 if uid is None else 0o711)
        self._lock = os.open(new, _OPEN)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for inner in ("work", "cell", "tmp"):
            os.mkdir(inner, 0o700, dir_fd=self._lock)
            if uid is not None:
                os.chown(inner, uid, uid, dir_fd=self._lock, follow_symlinks=False)
        os.rename(new, self.path)

    def inner(self, name: str) -> str:
        """The path of ``work``, ``cell`` or ``tmp``."""
        return f"{self.path}/{name}"

    def remove(self) -> None:
        """Remove it with all that is in it, whatever that is. May be called twice."""
        if self._lock >= 0:
            _remove(self.path)
            self.forget()

    def forget(self) -> None:
        """Let go of the descriptor only: in a forked child the folder is the parent's."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def choose_parent(size: int) -> str:
    """Where to make a folder for this many bytes: in memory if most of that stays free, else with temporary files.

    Programs are compiled and run there, so a file system that refuses to execute is passed over, and so is a parent
    where another user could put a folder of his in the place of ours.
    """
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
            "work folder", f"other users could exchange it: {problem}; name a folder of yours in TMPDIR, mode 700"
        )
    return usual


def _remove(path: str) -> None:
    parent, name = os.path.split(path)
    fd = os.open(parent, _OPEN)
    try:
        # What cannot be removed now stays without a lock, for the next sweep.
        with contextlib.suppress(FileNotFoundError, SandboxError):
            remove_tree(fd, name, _REMOVAL_S)
    finally:
        os.close(fd)


@functools.lru_cache(maxsize=8)
def _sweep_once(parent: str) -> None:
    sweep(parent)


def sweep(parent: str) -> None:
    """Remove folders of ours whose host is gone."""
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

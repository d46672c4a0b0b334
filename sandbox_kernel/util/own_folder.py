"""Private folders of this program on the host, which no other user of the machine may be able to change.

They hold compiled programs, and files that sandboxes see or have left. It is not enough that such a folder has our
owner and mode 700: a user who may write to a folder above it can replace it between check and use. So every folder and
link on the path is checked.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import grp
import os
import pwd
import shutil
import stat
import time
from collections.abc import Iterator
from typing import BinaryIO, Self

from sandbox_kernel.util.linux_calls import closed_after

#: Folders of one kind that are kept, and the bytes of all together; the longest unused go first.
MOST_KEPT = 20
MOST_BYTES = 1 << 30
#: Bytes of all folders that go by themselves.
MOST_APART_BYTES = 8 << 30
#: The file whose lock says that a process has the folder. The folder itself cannot be locked on NFS.
_LOCK = "lock"
#: How the name of a file begins while it is written, and when one was left by a process that ended, in seconds.
_ASIDE, _ABANDONED_S = "aside-", 3600.0
_MOST_LINKS = 40
_OVERFLOW = "/proc/sys/kernel/overflowuid"


class NotPrivate(PermissionError):
    """Another user could change the content of a folder; the message names the folder on the path that allows it."""


def cache_root() -> str:
    """Return the user's cache folder: ``XDG_CACHE_HOME`` if that is absolute, else ``~/.cache``."""
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    return chosen if os.path.isabs(chosen) else os.path.join(os.path.expanduser("~"), ".cache")


def state_root() -> str:
    """Return the folder of what the user may want again: ``XDG_STATE_HOME`` if absolute, else ``~/.local/state``."""
    chosen = os.environ.get("XDG_STATE_HOME", "")
    return chosen if os.path.isabs(chosen) else os.path.join(os.path.expanduser("~"), ".local", "state")


def make_own_folder(folder: str) -> None:
    """Make a folder and its parents with mode 700 under any umask; ``NotPrivate``: another user could change it."""
    missing: list[str] = []
    path = os.path.abspath(folder)
    while not os.path.lexists(path):
        missing.append(path)
        path = os.path.dirname(path)
    for path in reversed(missing):
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            continue  # another process made it first, perhaps another user's: checked below
    problem = weakness(folder)
    if problem is not None:
        raise NotPrivate(problem)


def weakness(folder: str) -> str | None:
    """Return why another user could change or replace a folder, or None. Raises ``OSError`` when it does not exist."""
    path = os.path.abspath(folder)
    if os.path.islink(path):
        return f"{path} is a link and not a folder"
    problem = parent_weakness(path)
    if problem is not None:
        return problem
    found = os.stat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        return f"{path} is not a folder of this user"
    return f"{path} is open to other users (run: chmod 700 {path})" if found.st_mode & 0o077 else None


def parent_weakness(parent: str) -> str | None:
    """Return why another user could replace a folder that we make in this one, such as /tmp; None when none can."""
    found = (_replaceable(path, status) for path, status in walked(os.path.abspath(parent)))
    return next((problem for problem in found if problem is not None), None)


def walked(path: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield every folder and link that the kernel passes through to resolve a path, the last one included."""
    names = [name for name in path.split("/") if name not in ("", ".")]
    here, links = "/", 0
    yield here, os.lstat(here)
    while names:
        name = names.pop(0)
        if name == "..":
            here = os.path.dirname(here)
            yield here, os.lstat(here)
            continue
        there = os.path.join(here, name)
        found = os.lstat(there)
        yield there, found
        if not stat.S_ISLNK(found.st_mode):
            here = there
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, f"{path} leads through more than {_MOST_LINKS} links")
        target = os.readlink(there)
        here = "/" if os.path.isabs(target) else here
        names = [part for part in target.split("/") if part not in ("", ".")] + names


def _replaceable(path: str, found: os.stat_result) -> str | None:
    """Return why another user could replace this entry or its content; None when no other user can."""
    if found.st_uid not in _trusted():
        return f"{path} belongs to another user (uid {found.st_uid})"
    if stat.S_ISLNK(found.st_mode) or found.st_mode & stat.S_ISVTX:
        return None  # the mode of a link has no effect; in a sticky folder only owners rename and remove
    if found.st_mode & stat.S_IWOTH:
        return f"{path} can be written by everybody (run: chmod o-w {path})"
    if found.st_mode & stat.S_IWGRP and not _is_own_group(found.st_gid):
        return f"{path} can be written by the group {found.st_gid} (run: chmod g-w {path})"
    return None


def _trusted() -> set[int]:
    """Return the trusted users: root, this user, and in a user namespace the owner that is not mapped (the host's)."""
    trusted = {0, os.geteuid()}
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open("/proc/self/uid_map") as file:
            mapped = sum(int(line.split()[2]) for line in file)
        if mapped < (1 << 32) - 1:
            with open(_OVERFLOW) as file:
                trusted.add(int(file.read()))
    return trusted


def _is_own_group(gid: int) -> bool:
    """Return whether a group is that of root, or the private group that many systems give each user."""
    if gid == 0:
        return True
    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return False
    return group.gr_name == user and set(group.gr_mem) <= {user}


@contextlib.contextmanager
def whole_file(path: str, aside: str = "") -> Iterator[BinaryIO]:
    """Open a new file, for this user alone, that appears at ``path`` when the block ends: complete, or not at all.

    It is on disk before it appears: after a loss of power the path must not lead to an empty file in place of the one
    that was there. With ``aside``, its path until then, nobody waits for the disk: that is for what can be made again.
    """
    made = aside or f"{path}.{os.urandom(8).hex()}.part"
    try:
        with open(os.open(made, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            yield file
            file.flush()
            if not aside:
                os.fsync(file.fileno())
        os.replace(made, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(made)


class OwnFiles:
    """Files by name in a private folder: each is written whole or not at all, and the longest unused go first.

    Several processes may use one folder. Where no folder can be had that no other user can change, nothing is kept and
    nothing is found; that is never an error.
    """

    def __init__(self, folder: str, *, most_bytes: int = MOST_BYTES, most_files: int = 10_000) -> None:
        self.folder = folder
        self.most_bytes = most_bytes
        self.most_files = most_files

    def read(self, name: str, most: int) -> bytes | None:
        """Return the content of a file of ours of at most so many bytes; None when there is none."""
        with contextlib.suppress(OSError):
            if weakness(self.folder) is not None:
                return None
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
            with closed_after(os.open(os.path.join(self.folder, name), flags)) as fd:
                found = os.fstat(fd)
                ours = found.st_uid == os.geteuid() and not found.st_mode & 0o077
                if ours and stat.S_ISREG(found.st_mode) and found.st_size <= most:
                    with open(fd, "rb", closefd=False) as file:
                        data = file.read(most)
                    os.utime(fd)
                    return data
        return None

    def write(self, name: str, *parts: bytes) -> None:
        """Keep a content that comes in parts."""
        aside = os.path.join(self.folder, f"{_ASIDE}{os.urandom(8).hex()}")
        with contextlib.suppress(OSError):
            make_own_folder(self.folder)
            with whole_file(os.path.join(self.folder, name), aside) as file:
                file.writelines(parts)
            self._make_room()

    def remove(self, name: str) -> None:
        """Remove a file; nothing there is as well."""
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self.folder, name))

    def _make_room(self) -> None:
        known: list[tuple[float, int, str]] = []
        with os.scandir(self.folder) as listing:
            for item in listing:
                with contextlib.suppress(FileNotFoundError):  # another process removed it at the same time
                    found = item.stat(follow_symlinks=False)
                    if not item.name.startswith(_ASIDE):
                        known.append((found.st_mtime, found.st_size, item.name))
                    elif time.time() - found.st_mtime > _ABANDONED_S:
                        self.remove(item.name)
        held = 0
        for number, (_, size, name) in enumerate(sorted(known, reverse=True), 1):
            held += size
            if held > self.most_bytes or number > self.most_files:
                self.remove(name)


class LockedFolder:
    """A private folder that one process has at a time: until ``close``, or until the process ends."""

    def __init__(self, path: str, lock_fd: int) -> None:
        self.path = path
        self._lock_fd = lock_fd

    @staticmethod
    def root(kind: str) -> str:
        """Return the folder that holds all folders of one kind."""
        return os.path.join(state_root(), "sandbox-kernel", kind)

    @classmethod
    def claim(cls, path: str) -> Self | None:
        """Take a folder, made if need be; None while another process has it. Raises ``OSError`` if none is private."""
        make_own_folder(path)
        return cls.take(path, make=True)

    @classmethod
    def take(cls, path: str, *, make: bool = False) -> Self | None:
        """Take a folder that is there; None while another process has it, and when it is gone."""
        lock = os.path.join(path, _LOCK)
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_CREAT if make else 0)
        try:
            fd = os.open(lock, flags, 0o600)
        except OSError:
            return None
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Its owner may have removed it meanwhile.
            if os.path.samestat(os.fstat(fd), os.stat(lock)):
                return cls(path, fd)
        os.close(fd)
        return None

    @staticmethod
    @contextlib.contextmanager
    def alone(path: str) -> Iterator[None]:
        """Have a folder, which is made if need be, for a block of code; waits while another process has it."""
        make_own_folder(path)
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_CREAT
        with closed_after(os.open(os.path.join(path, _LOCK), flags, 0o600)) as fd:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield

    def remove(self) -> None:
        """Remove the folder with everything in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.close()

    def close(self) -> None:
        """Let another process have the folder; may be called twice."""
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1


def held_in(path: str, without: str = "") -> int:
    """Return the bytes of all files below a folder, but for one in it; a file that goes meanwhile counts nothing."""
    held = 0
    for folder, below, names in os.walk(path):
        if folder == path and without in below:
            below.remove(without)
        for name in names:
            with contextlib.suppress(OSError):
                held += os.lstat(os.path.join(folder, name)).st_size
    return held


def remove_oldest(root: str, keep: str, apart: str = "") -> None:
    """Remove what is beyond the limits and in no use: of too many folders the longest unused, of too much the largest.

    So what one program fills costs no other one a smaller folder. ``keep`` does not count. What is in the folders
    called ``apart`` has a bound of its own, and nothing else goes with it: it can be had again.
    """
    with contextlib.suppress(OSError):
        with os.scandir(root) as scan:
            known = [(entry.stat(follow_symlinks=False).st_mtime_ns, entry.path) for entry in scan if entry.is_dir()]
        others = [path for _, path in sorted(known, reverse=True) if path != keep]
        going, staying = [(path, "") for path in others[MOST_KEPT - 1 :]], others[: MOST_KEPT - 1]
        for part, most in (("", MOST_BYTES), *([(apart, MOST_APART_BYTES)] if apart else [])):
            sizes = sorted((held_in(os.path.join(path, part), "" if part else apart), path) for path in staying)
            while sum(size for size, _ in sizes) > most:
                going.append((sizes.pop()[1], part))
        for path, part in going:
            taken = LockedFolder.take(path, make=True)
            if taken is not None:
                shutil.rmtree(os.path.join(path, part), ignore_errors=True)
                taken.close()

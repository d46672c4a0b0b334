"""Folders that this program keeps on the host between runs, which no other user of the machine may be able to change.

Compiled programs are kept there, and files that are shown in every sandbox. That a folder is ours with mode 700 is not
enough: who may write to one of the folders above it can rename it and put another in its place, between a check and the
use. So every folder and link on the way is looked at.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Iterator

_MOST_LINKS = 40
_OVERFLOW = "/proc/sys/kernel/overflowuid"


class NotPrivate(PermissionError):
    """Another user could change what lies in a folder; the message says which folder on the way lets them."""


def cache_root() -> str:
    """The user's folder for caches: ``XDG_CACHE_HOME`` where that is absolute, else ``~/.cache``."""
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    return chosen if os.path.isabs(chosen) else os.path.join(os.path.expanduser("~"), ".cache")


def make_own_folder(folder: str) -> None:
    """Make a folder and those above it that are missing, open to nobody else whatever the umask is.

    ``NotPrivate`` says who else could change what lies there; another ``OSError`` why it cannot be made.
    """
    missing: list[str] = []
    path = os.path.abspath(folder)
    while not os.path.lexists(path):
        missing.append(path)
        path = os.path.dirname(path)
    for path in reversed(missing):
        try:
            os.mkdir(path, 0o700)
        except FileExistsError:
            continue  # another process of ours was faster, or somebody else: looked at below
    problem = weakness(folder)
    if problem is not None:
        raise NotPrivate(problem)


def weakness(folder: str) -> str | None:
    """Why somebody else could change what lies in a folder, or put another one in its place; None when nobody can.

    ``OSError`` when it is not there.
    """
    path = os.path.abspath(folder)
    if os.path.islink(path):
        return f"{path} is a link and not a folder"
    problem = parent_weakness(path)
    if problem is not None:
        return problem
    found = os.stat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        return f"{path} is not a folder of this user"
    if found.st_mode & 0o077:
        return f"{path} is open to other users (run: chmod 700 {path})"
    return None


def parent_weakness(parent: str) -> str | None:
    """Why somebody else could exchange a folder that we make in this one; None when nobody can.

    For folders that are not ours, as /tmp is.
    """
    found = (_replaceable(path, status) for path, status in _walked(os.path.abspath(parent)))
    return next((problem for problem in found if problem is not None), None)


def _walked(path: str) -> Iterator[tuple[str, os.stat_result]]:
    """Everything that the kernel passes through on the way to a path: folders and links, the last one included."""
    names = [name for name in path.split("/") if name]
    here, links = "/", 0
    yield here, os.lstat(here)
    while names:
        name = names.pop(0)
        if name == "..":
            here = os.path.dirname(here)
            continue
        there = os.path.join(here, name)
        found = os.lstat(there)
        yield there, found
        if not stat.S_ISLNK(found.st_mode):
            here = there
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(f"{path} leads through more than {_MOST_LINKS} links")
        target = os.readlink(there)
        here = "/" if os.path.isabs(target) else here
        names = [part for part in target.split("/") if part not in ("", ".")] + names


def _replaceable(path: str, found: os.stat_result) -> str | None:
    """Why another user could exchange this, or what lies in it; None when none can."""
    if found.st_uid not in _trusted():
        return f"{path} belongs to another user (uid {found.st_uid})"
    if stat.S_ISLNK(found.st_mode) or found.st_mode & stat.S_ISVTX:
        return None  # the mode of a link means nothing; below a sticky folder only owners rename and remove
    if found.st_mode & stat.S_IWOTH:
        return f"{path} can be written by everybody (run: chmod o-w {path})"
    if found.st_mode & stat.S_IWGRP and not _is_own_group(found.st_gid):
        return f"{path} can be written by the group {found.st_gid} (run: chmod g-w {path})"
    return None


def _trusted() -> set[int]:
    """Root and we ourselves; inside a user namespace also the owner whom it has no number for, as it is the host's."""
    trusted = {0, os.geteuid()}
    try:
        with open("/proc/self/uid_map") as file:
            mapped = sum(int(line.split()[2]) for line in file)
        if mapped < (1 << 32) - 1:
            with open(_OVERFLOW) as file:
                trusted.add(int(file.read()))
    except (OSError, ValueError, IndexError):
        pass
    return trusted


def _is_own_group(gid: int) -> bool:
    """Whether a group is root's, or the private one that many systems give to each user."""
    if gid == 0:
        return True
    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return False
    return group.gr_name == user and set(group.gr_mem) <= {user}

"""Removes a file tree that a hostile program made: any depth, any modes, and nothing outside of it.

It goes down one folder at a time and comes up through ``..``, with one open descriptor at any depth. On the way up it
checks that it is in the same folder as before; if a folder was moved meanwhile, removal stops. Links are removed and
never followed; mounts are not removed.
"""

from __future__ import annotations

import errno
import os
import time
from contextlib import suppress

from sandbox_kernel.errors import ExecutionFailed
from sandbox_kernel.util.values import dataclass
from sandbox_kernel.workspace.tree.beneath import SCAN, in_folder, open_folder
from sandbox_kernel.workspace.tree.paths import display_name

_NOT_EMPTY = (errno.ENOTEMPTY, errno.EEXIST)
_CHANGED = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP)
_OWNER_ALL = 0o700
#: Most subfolders that are remembered for one folder; the folder is listed again for the rest.
_MAX_NOTED = 10_000


def remove_tree(parent_fd: int, name: str, seconds: float) -> None:
    """Remove the folder ``name`` with its content. Raises OSError when it is not a folder."""
    _Removal(seconds).run(_open_to_remove(parent_fd, name))
    os.rmdir(name, dir_fd=parent_fd)


def empty_folder(folder_fd: int, seconds: float) -> None:
    """Remove everything in the folder. Raises ``ExecutionFailed`` at the end with what could not be removed."""
    _Removal(seconds).run(open_folder(folder_fd, ()))


@dataclass(slots=True)
class _Level:
    """A folder on the way down: its name in its parent, its identity, and its subfolders that are not empty."""

    name: str
    device: int
    inode: int
    deeper: list[str]


class _Removal:
    """One removal: the current folder, the way back, and what could not be removed."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds
        self._way: list[_Level] = []
        self._left: dict[tuple[int, str], str] = {}  # (inode of the folder, name in it): why

    def run(self, fd: int) -> None:
        """Empty the folder ``fd`` and close the descriptor."""
        try:
            self._enter("", fd)
            while True:
                level = self._way[-1]
                if level.deeper:
                    fd = self._down(fd, level)
                elif len(self._way) > 1:
                    fd = self._up(fd)
                elif not self._clean(fd):  # the last listing finds what was made meanwhile
                    break
        except OSError as error:
            raise ExecutionFailed(f"the folder could not be emptied: {error.strerror}; remove it by hand") from error
        finally:
            os.close(fd)
        if self._left:
            (_, name), reason = next(iter(self._left.items()))
            raise ExecutionFailed(
                f"{len(self._left)} entries could not be removed, the first is {display_name(name)!r}: {reason}; "
                "end what uses them and clear again"
            )

    def _enter(self, name: str, fd: int) -> None:
        status = os.fstat(fd)
        if status.st_mode & _OWNER_ALL != _OWNER_ALL:
            with suppress(PermissionError):  # not our folder: what cannot be removed because of it is named at the end
                os.fchmod(fd, status.st_mode & 0o777 | _OWNER_ALL)
        self._way.append(_Level(name, status.st_dev, status.st_ino, []))
        self._clean(fd)

    def _clean(self, fd: int) -> bool:
        """Remove files and empty folders, and remember the other folders. Returns whether there was anything."""
        level, found = self._way[-1], False
        with os.scandir(fd) as scan:
            for entry in scan:
                if (level.inode, entry.name) in self._left:
                    continue
                found = True
                if time.monotonic() > self._deadline:
                    raise ExecutionFailed(f"the folder was not empty after {self._seconds:g} s; call again to go on")
                remove = os.rmdir if entry.is_dir(follow_symlinks=False) else os.unlink
                try:
                    remove(entry.name, dir_fd=fd)
                except OSError as error:
                    if error.errno in _NOT_EMPTY:
                        level.deeper.append(entry.name)
                        if len(level.deeper) == _MAX_NOTED:
                            break
                    elif error.errno not in _CHANGED:
                        self._left[level.inode, entry.name] = str(error.strerror)
        return found

    def _down(self, fd: int, level: _Level) -> int:
        name = level.deeper.pop()
        try:
            child = _open_to_remove(fd, name)
        except OSError as error:
            if error.errno not in _CHANGED:
                mount = error.errno == errno.EXDEV
                self._left[level.inode, name] = "it is a mount point" if mount else str(error.strerror)
            return fd
        try:
            self._enter(name, child)
        except BaseException:
            os.close(child)
            raise
        os.close(fd)
        return child

    def _up(self, fd: int) -> int:
        level, above = self._way[-1], self._way[-2]
        parent = os.open("..", SCAN, dir_fd=fd)
        try:
            found = os.fstat(parent)
            if (found.st_dev, found.st_ino) != (above.device, above.inode):
                raise ExecutionFailed(
                    f"folder {display_name(level.name)!r} was moved while it was emptied; "
                    "end the program that did it and clear again"
                )
            try:
                os.rmdir(level.name, dir_fd=parent)
            except OSError as error:
                # Not empty: it changed while it was listed, or has more subfolders than are remembered. List again.
                if error.errno in _NOT_EMPTY and self._clean(fd):
                    os.close(parent)
                    return fd
                if error.errno not in _CHANGED:
                    self._left[above.inode, level.name] = str(error.strerror)
        except BaseException:
            os.close(parent)
            raise
        self._way.pop()
        os.close(fd)
        return parent


def _open_to_remove(parent_fd: int, name: str) -> int:
    """Open a folder for listing, also when its mode does not allow its owner to list it."""
    try:
        return open_folder(parent_fd, (name,), SCAN, cross_mounts=False)
    except PermissionError:
        # chmod by name would follow a link that was made meanwhile; a descriptor always means the folder.
        with in_folder(parent_fd, (name,), cross_mounts=False) as passing:
            os.chmod(f"/proc/self/fd/{passing}", _OWNER_ALL)
        return open_folder(parent_fd, (name,), SCAN, cross_mounts=False)

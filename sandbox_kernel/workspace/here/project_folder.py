"""``ProjectFolder``: the user's folder on the host, as it is on disk. Only ``applying/`` ever writes to it."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

from sandbox_kernel.errors import InvalidRequest, SandboxError
from sandbox_kernel.limits import quoted
from sandbox_kernel.policy.sandbox_policy import path_text
from sandbox_kernel.policy.written_folders import absolute, real_path
from sandbox_kernel.workspace.here.hidden import HiddenFiles
from sandbox_kernel.workspace.tree.beneath import PASS, open_folder
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import FILE, SYMLINK, TreeEntry, WalkLimits

#: The most that is copied where a folder cannot be shown copy-on-write.
MOST_COPIED_FILES = 5000
MOST_COPIED_BYTES = 128 << 20
#: Where no project lies: showing all of it would show the user's secrets, or the system.
_TOO_MUCH = ("/", "/proc", "/sys", "/dev", "/etc", "/root", "/home", "/usr", "/var", "/run", "/boot")


@dataclass(frozen=True)
class Mark:
    """What tells one version of a file of the host from another: type and mode, inode, size and both times."""

    mode: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, info: os.stat_result) -> Mark:
        """Return the mark for a result of ``lstat``."""
        return cls(info.st_mode, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)

    @classmethod
    def of_entry(cls, entry: TreeEntry) -> Mark:
        """Return the mark for an entry of a tree."""
        return cls(entry.mode, entry.inode, entry.size, entry.mtime_ns, entry.ctime_ns)

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return stat.S_ISDIR(self.mode)

    def same_content(self, other: Mark) -> bool:
        """Whether both are the same version; a rename changes nothing but the change time."""
        mine = (self.mode, self.inode, self.size, self.mtime_ns)
        return mine == (other.mode, other.inode, other.size, other.mtime_ns)


class ProjectFolder:
    """One folder of the user. Keeps a descriptor, so that it means the same folder when that is renamed."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        written = os.path.expanduser(path_text(path))
        try:
            #: The real path of the folder.
            self.path = real_path(absolute(written))
        except OSError as error:
            raise InvalidRequest(
                f"here={quoted(str(path))} cannot be opened: {error.strerror}; name a folder"
            ) from None
        home = os.path.realpath(os.path.expanduser("~"))
        if self.path in _TOO_MUCH or self.path == home:
            raise InvalidRequest(
                f"here={quoted(str(path))} is a whole home or system folder, with everything that is kept there; "
                "name the folder of the project, for example here='project'"
            )
        if not os.path.isdir(self.path):
            raise InvalidRequest(f"here={quoted(str(path))} is not a folder; name the folder that holds it")
        self.root = Rooted.at(self.path)
        self.hidden_files = HiddenFiles(self.path)

    def identity(self) -> tuple[int, int]:
        """Return device and inode. Raises ``InvalidRequest`` when the folder is not at its path any more."""
        own = os.fstat(self.root.fileno())
        try:
            if os.path.samestat(own, os.stat(self.path)):
                return own.st_dev, own.st_ino
            now = "is another folder now"
        except OSError as error:
            now = f"is gone: {error.strerror}"
        raise InvalidRequest(
            f"{self.path!r} {now}; programs would see another folder than the one that changes are applied to: work on "
            "it anew, with Sandbox(here=…), %sandbox restart --here, or a new kernel"
        )

    def mark(self, path: str) -> Mark | None:
        """Return the mark of a path; None when nothing is there that can be seen. Follows no link."""
        *above, name = path.split("/")
        try:
            folder = open_folder(self.root.fileno(), tuple(above), PASS)
        except OSError:
            return None
        try:
            return Mark.of(os.stat(name, dir_fd=folder, follow_symlinks=False))
        except OSError:
            return None
        finally:
            os.close(folder)

    def beneath(self, path: str) -> list[TreeEntry]:
        """Return everything below a folder, each folder before its content; bounded, and empty for a file."""
        try:
            fd = open_folder(self.root.fileno(), tuple(path.split("/")), cross_mounts=False)
        except OSError:
            return []
        try:
            with Rooted(fd) as folder:
                return [entry._replace(path=f"{path}/{entry.path}") for entry in folder.walk()]
        finally:
            os.close(fd)

    def copied(self) -> list[TreeEntry]:
        """Return all entries, without hidden ones, for a private copy. Raises ``InvalidRequest`` beyond the limits."""
        hidden = self.hidden_files.find()
        walk = self.root.walk(WalkLimits(entries=MOST_COPIED_FILES + len(hidden), seconds=10.0))
        found = [entry for entry in walk if not covered(entry.path, hidden)]
        size = sum(entry.size for entry in found if entry.type == FILE)
        if "entries" in walk.unseen.values() or len(found) > MOST_COPIED_FILES or size > MOST_COPIED_BYTES:
            raise InvalidRequest(
                f"{self.path!r} can only be copied here, not shown copy-on-write, and holds more than the "
                f"{MOST_COPIED_FILES} files or {MOST_COPIED_BYTES >> 20} MB that are copied; name a smaller folder, or "
                f"show it read-only: policy.mount({self.path!r}, '/data'), as an option --mount {self.path}:/data"
            )
        return found

    def links(self) -> list[str]:
        """Return the links in the folder, those in hidden folders too, bounded."""
        hidden = self.hidden_files.find()
        below = [entry.path for path in hidden for entry in self.beneath(path) if entry.type == SYMLINK]
        return [path for path in (*hidden, *self.hidden_files.marked()) if self.read_link(path) is not None] + below

    def read_link(self, path: str) -> str | None:
        """Return the target of a link; None for anything else."""
        try:
            return self.root.stat(tuple(path.split("/"))).target
        except SandboxError:
            return None


def covered(path: str, roots: tuple[str, ...] | frozenset[str]) -> bool:
    """Whether a path is one of these, or lies below one of them."""
    parts = path.split("/")
    return any("/".join(parts[: depth + 1]) in roots for depth in range(len(parts)))

"""``ProjectFolder``: the user's folder on the host, as it is on disk. Only ``apply.py`` ever writes to it."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable

from sandbox_kernel.errors import InvalidRequest, SandboxError
from sandbox_kernel.limits import MIB, quoted
from sandbox_kernel.model import FsChange, Note, notes
from sandbox_kernel.policy.written_folders import absolute, path_text, real_path
from sandbox_kernel.workspace.hidden import HiddenFiles
from sandbox_kernel.workspace.tree.paths import display_name, folders_above
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import SYMLINK, Entry, WalkLimits

#: The most that is copied where a folder cannot be shown copy-on-write.
MOST_COPIED_FILES = 5000
MOST_COPIED_BYTES = 128 * MIB
#: The list of tracked files of a repository; git writes it anew with most of what it does.
_INDEX = ".git/index"
_MOST_INDEX_BYTES = 64 * MIB
#: Where no project lies: showing all of it would show the user's secrets, or the system.
_TOO_MUCH = ("/", "/proc", "/sys", "/dev", "/etc", "/root", "/home", "/usr", "/var", "/run", "/boot")


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

    def entry_at(self, path: str) -> Entry | None:
        """Return what is at a path; None when nothing is there that can be seen. Follows no link."""
        return self.root.entry_at(tuple(path.split("/")))

    def has_folder(self, path: str) -> bool:
        """Whether the user has a folder at a path."""
        there = self.entry_at(path)
        return there is not None and there.is_dir

    def read_link(self, path: str) -> str | None:
        """Return the target of a link; None for anything else."""
        there = self.entry_at(path)
        return None if there is None else there.target

    def beneath(self, path: str) -> list[Entry]:
        """Return everything below a folder, each folder before its content; bounded, and empty for a file."""
        try:
            return self.root.below(tuple(path.split("/")))
        except SandboxError:
            return []

    def copied(self) -> list[Entry]:
        """Return all entries, without hidden ones, for a private copy. Raises ``InvalidRequest`` beyond the limits."""
        hidden = self.hidden_files.find()
        walk = self.root.walk(WalkLimits(entries=MOST_COPIED_FILES + len(hidden), seconds=10.0))
        found = [entry for entry in walk if not covered(entry.path, hidden)]
        size = sum(entry.size for entry in found if entry.is_file)
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

    def git_notes(self, changes: Iterable[FsChange]) -> list[Note]:
        """Return a note when git was used inside: it takes tracked files that are hidden there for deleted."""
        if not any(change.path == _INDEX for change in changes):
            return []
        hidden = [path for path in self.hidden_files.find() if not path.startswith(".git/")]
        try:
            index = self.root.read(_INDEX, _MOST_INDEX_BYTES)
        except SandboxError:
            return []
        tracked = []
        for path in hidden:
            name = path.encode(errors="surrogateescape")
            # Before the name of a file stands its length. Versions of the format that shorten names list it otherwise:
            # nothing is found then.
            if len(name).to_bytes(2, "big") + name + b"\0" in index or name + b"/" in index:
                tracked.append(display_name(path))
        return [notes.git_sees_deleted(tracked)] if tracked else []


def covered(path: str, roots: Collection[str]) -> bool:
    """Whether a path is one of these, or lies below one of them."""
    return any(one in roots for one in (path, *folders_above(path)))

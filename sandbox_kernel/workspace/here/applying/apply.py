"""Writes chosen changes into the user's folder: all of them or none, and only over what the changes are based on.

New contents are first written and synced in a stage, a folder of ours inside the user's; then the journal
(``apply_record.py``); then every change is one rename. What was there is renamed into the stage and removed only after
the last change. A failure, or a crash that ``recover_all`` finds later, takes everything back (``recovery.py``).
Parents are opened beneath the root without following links or crossing mounts, and what a rename took away is compared
with what the change is based on.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress

from sandbox_kernel.errors import Conflict, ExecutionFailed
from sandbox_kernel.workspace.here.applying.apply_record import ApplyJournal, ApplyRecord, ApplyStep
from sandbox_kernel.workspace.here.applying.recovery import recover, rename, set_mode, sync
from sandbox_kernel.workspace.here.applying.selection import Chosen
from sandbox_kernel.workspace.here.change_log import GONE, Kept
from sandbox_kernel.workspace.here.project_folder import Mark
from sandbox_kernel.workspace.transfer import copy_sparsely
from sandbox_kernel.workspace.tree.beneath import PASS, SCAN, open_folder
from sandbox_kernel.workspace.tree.rooted import Rooted, chunks
from sandbox_kernel.workspace.tree.walk import DIRECTORY, FILE

#: Most folders that are held open at once.
_MOST_OPEN = 200


def apply_changes(root: Rooted, contents: Rooted, chosen: Chosen) -> None:
    """Apply the changes. Raises ``Conflict``, and leaves the folder as it was, when it is not what they are based on.

    Args:
        root: The user's folder.
        contents: The private folder with the new contents, at the same paths.
        chosen: What to apply.

    """
    if not chosen.entries:
        return
    early = [path for path, kept in chosen.entries.items() if kept.unsure or not _is_base(root.fileno(), path, kept)]
    if early:
        raise Conflict(early)
    _Apply(root.fileno(), contents, chosen.entries).run()


class _Apply:
    """One application: its stage, its steps in order, and the parents that it has opened."""

    def __init__(self, root: int, contents: Rooted, entries: dict[str, Kept]) -> None:
        self._root, self._contents = root, contents
        self._parents: dict[str, int] = {}
        #: Inode and time of each new file in the stage; 0 where there is none.
        self._made: list[tuple[int, int]] = []
        # What goes is moved away first, deepest first, so that nothing is in the way of what comes.
        away = sorted((path for path, kept in entries.items() if _goes(kept)), key=lambda path: -path.count("/"))
        come = sorted((path for path, kept in entries.items() if not kept.is_gone), key=lambda path: path.count("/"))
        self._steps = [(path, entries[path], True) for path in away] + [(path, entries[path], False) for path in come]
        try:
            self._record = ApplyRecord.make()
        except OSError as error:
            raise ExecutionFailed(
                f"nothing was applied: its journal has no private place: {error}; make that folder yours alone, or "
                "name another one in the environment variable XDG_STATE_HOME"
            ) from None
        try:
            os.mkdir(self._record.stage, 0o700, dir_fd=root)
        except OSError as error:
            self._record.remove()
            self._record.close()
            raise ExecutionFailed(f"the folder cannot be written: {error.strerror}; nothing was applied") from None
        self._stage = os.open(self._record.stage, SCAN, dir_fd=root)

    def run(self) -> None:
        """Stage, write the journal, rename; everything is taken back when a step fails."""
        try:
            try:
                self._write_new()
                self._write_journal()
                for number, (path, kept, away) in enumerate(self._steps):
                    self._step(number, path, kept, away)
                # The journal lies on another file system: it may say "done" only when the renames are on disk.
                sync(self._stage)
                self._record.done()
            finally:
                self._forget_parents()
                recover(self._root, self._stage, self._record)
        except OSError as error:
            raise ExecutionFailed(f"nothing was applied: {error.strerror or error}") from error
        finally:
            os.close(self._stage)
            self._record.close()

    def _write_new(self) -> None:
        for number, (path, kept, away) in enumerate(self._steps):
            self._made.append((0, 0))
            if away or (kept.type == DIRECTORY and kept.base is not None and kept.base.is_folder):
                continue
            name = f"new{number}"
            owner = self._owner_of(path)
            if kept.type == FILE:
                self._copy(path, name, kept.mode, owner)
            elif kept.type == DIRECTORY:
                os.mkdir(name, kept.mode | 0o700, dir_fd=self._stage)
                os.chmod(name, kept.mode | 0o700, dir_fd=self._stage)
            else:
                os.symlink(kept.target or "", name, dir_fd=self._stage)
            if kept.type != FILE and owner is not None:
                os.chown(name, *owner, dir_fd=self._stage, follow_symlinks=False)
            info = os.stat(name, dir_fd=self._stage, follow_symlinks=False)
            self._made[number] = info.st_ino, info.st_mtime_ns

    def _copy(self, path: str, name: str, mode: int, owner: tuple[int, int] | None) -> None:
        source = self._contents.open_file(tuple(path.split("/")))
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            target = os.open(name, flags, 0o600, dir_fd=self._stage)
            try:
                copy_sparsely(chunks(source, 1 << 60), target)
                if owner is not None:
                    os.fchown(target, *owner)
                os.fchmod(target, mode & 0o777)
            finally:
                os.close(target)
        finally:
            os.close(source)

    def _owner_of(self, path: str) -> tuple[int, int] | None:
        """Return whom a file shall belong to when root applies: the owner of the file before, else of its folder."""
        if os.geteuid() != 0:
            return None
        while True:
            above, _, name = path.rpartition("/")
            with suppress(OSError):
                folder = open_folder(self._root, tuple(above.split("/")) if above else (), PASS, cross_mounts=False)
                try:
                    info = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    return info.st_uid, info.st_gid
                finally:
                    os.close(folder)
            if not above:
                info = os.fstat(self._root)
                return info.st_uid, info.st_gid
            path = above

    def _write_journal(self) -> None:
        """From here on a crash is taken back by ``recover_all``. One sync for the whole file system."""
        steps = tuple(
            ApplyStep(
                path, GONE if away else kept.type, *self._made[number], kept.base.mode if kept.base is not None else 0
            )
            for number, (path, kept, away) in enumerate(self._steps)
        )
        sync(self._stage)
        folder, stage = os.fstat(self._root).st_ino, os.fstat(self._stage).st_ino
        self._record.write(ApplyJournal(folder, stage, steps))

    def _step(self, number: int, path: str, kept: Kept, away: bool) -> None:
        try:
            folder, name = self._parent(path)
            if away:
                rename(folder, name, self._stage, f"old{number}", exchange=False)
                self._check(path, kept, f"old{number}")
            elif self._made[number][0] == 0:
                set_mode(folder, name, kept.mode | 0o700)
            elif kept.base is None or _goes(kept):
                rename(self._stage, f"new{number}", folder, name, exchange=False)
            else:
                rename(self._stage, f"new{number}", folder, name, exchange=True)
                self._check(path, kept, f"new{number}")
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EINVAL):
                raise
            raise Conflict([path]) from None

    def _check(self, path: str, kept: Kept, name: str) -> None:
        """The very thing that was taken away is what the change is based on; a folder must be empty."""
        info = os.stat(name, dir_fd=self._stage, follow_symlinks=False)
        if kept.base is not None and kept.base.is_folder:
            fd = os.open(name, SCAN, dir_fd=self._stage)
            try:
                if os.listdir(fd):
                    raise Conflict([path])
            finally:
                os.close(fd)
        elif kept.base is None or not kept.base.same_content(Mark.of(info)):
            raise Conflict([path])

    def _parent(self, path: str) -> tuple[int, str]:
        above, _, name = path.rpartition("/")
        if above not in self._parents:
            if len(self._parents) >= _MOST_OPEN:
                self._forget_parents()
            names = tuple(above.split("/")) if above else ()
            self._parents[above] = open_folder(self._root, names, PASS, cross_mounts=False)
        return self._parents[above], name

    def _forget_parents(self) -> None:
        for fd in self._parents.values():
            os.close(fd)
        self._parents = {}


def _goes(kept: Kept) -> bool:
    """Whether what the user has must be moved away first: it is removed, or becomes something of another type."""
    if kept.is_gone:
        return True
    return kept.base is not None and kept.base.is_folder != (kept.type == DIRECTORY)


def _is_base(root: int, path: str, kept: Kept) -> bool:
    """Whether the user's folder still has what a change is based on."""
    above, _, name = path.rpartition("/")
    try:
        folder = open_folder(root, tuple(above.split("/")) if above else (), PASS, cross_mounts=False)
    except OSError:
        # A folder that will be made, or that was never there: fine for something new.
        return kept.base is None
    try:
        now = Mark.of(os.stat(name, dir_fd=folder, follow_symlinks=False))
    except OSError:
        return kept.base is None
    finally:
        os.close(folder)
    if kept.base is None:
        return False
    return now.is_folder if kept.base.is_folder else now.same_content(kept.base)

"""Writes chosen changes into the user's folder: all of them or none, and only over what the changes are based on.

New contents are first written and synced in a stage, a folder of ours inside the user's; then the journal; then every
change is one rename. What was there is renamed into the stage and removed only after the last change. A failure, or a
crash that ``recover_all`` finds later, takes everything back, step by step from the journal. Parents are opened beneath
the root without following links or crossing mounts, and what a rename took away is compared with what the change is
based on.

The stage lies in the user's folder, which may come from a stranger. So nothing in it is believed: the journal lies in a
private folder of the user (``ApplyRecord``), under the name of the stage, which nobody can guess, with the inodes of
the folder and the stage. A stage without such a record is not ours. Whatever cannot be taken back, because the user has
something else there now, stays in the stage and is told once; the other steps are taken back all the same, and the
folder can be used.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

from sandbox_kernel.errors import Conflict, ExecutionFailed, SandboxError
from sandbox_kernel.limits import quoted
from sandbox_kernel.util.linux_calls import closed_after
from sandbox_kernel.util.own_folder import LockedFolder, weakness, whole_file
from sandbox_kernel.util.wire import check
from sandbox_kernel.workspace.overlay.kept_changes import Kept
from sandbox_kernel.workspace.overlay.selection import STAGE_PREFIX
from sandbox_kernel.workspace.tree.beneath import PASS, SCAN, in_folder, libc, open_folder
from sandbox_kernel.workspace.tree.paths import Names
from sandbox_kernel.workspace.tree.removal import remove_tree
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import DIRECTORY, FILE, GONE, Entry

_NOREPLACE, _EXCHANGE = 1, 2
#: How long removing a stage may take, in seconds.
_REMOVAL_S = 60.0
#: Most paths that a message names.
_MOST_NAMED = 5
#: Errors that say something of the folder and not of the path.
_OF_THE_FOLDER = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EINVAL)
_JOURNAL, _DONE = "journal", "done"
#: What is added to the name of a record that could not be used: its stage is no longer taken for ours.
_ASIDE = ".unusable"
_MOST_JOURNAL = 64 << 20


class ApplyJournal(NamedTuple):
    """All steps of an application, and the inodes of the folder and of the stage that they are about.

    A step is one rename: an entry with the new type, or gone, the inode of the new file or 0, the time at which its
    content was written, and the mode of before.
    """

    folder: int
    stage: int
    steps: tuple[Entry, ...]


class ApplyRecord(LockedFolder):
    """What one application is about to do, in a private folder of the user. Nobody else takes it back meanwhile."""

    @property
    def stage(self) -> str:
        """The name of the stage in the user's folder."""
        return STAGE_PREFIX + os.path.basename(self.path)

    @classmethod
    def make(cls) -> ApplyRecord:
        """Begin a record. Raises ``OSError`` when there is no folder that only this user can change."""
        made = cls.claim(os.path.join(cls.root("applying"), secrets.token_hex(16)))
        if made is None:
            raise OSError("it cannot be locked")
        return made

    @classmethod
    def path_of(cls, stage: str) -> str | None:
        """Return where the record of a stage is; None when we have none that only this user can change."""
        name = stage.removeprefix(STAGE_PREFIX)
        path = os.path.join(cls.root("applying"), name)
        try:
            return path if name.isalnum() and weakness(path) is None else None
        except OSError:
            return None

    def write(self, journal: ApplyJournal) -> None:
        """Write the journal, complete or not at all. From here on a crash is taken back."""
        with whole_file(os.path.join(self.path, _JOURNAL)) as file:
            file.write(json.dumps(journal).encode())
        with Rooted.at(self.path) as own:
            os.fsync(own.fileno())

    def done(self) -> None:
        """From here on the application stays: only its stage is removed."""
        os.rename(os.path.join(self.path, _JOURNAL), os.path.join(self.path, _DONE))

    def read(self) -> tuple[ApplyJournal | None, bool]:
        """Return the journal, if one was written, and whether its application stays. Raises ``ValueError``."""
        for name in (_JOURNAL, _DONE):
            try:
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
                fd = os.open(os.path.join(self.path, name), flags)
            except FileNotFoundError:
                continue
            with open(fd, "rb") as file:
                text = file.read(_MOST_JOURNAL)
            journal = check(document := json.loads(text), ApplyJournal)
            if any(len(step) != len(Entry._fields) for step in document[-1]):
                raise ValueError("it is of another version")
            return journal, name == _DONE
        return None, False

    def set_aside(self) -> str:
        """Use the record no more; returns where it is now."""
        os.rename(self.path, self.path + _ASIDE)
        return self.path + _ASIDE


def apply_changes(root: Rooted, contents: Rooted, entries: Mapping[str, Kept]) -> None:
    """Apply changes to the user's folder, with ``contents`` at the same paths; ``Conflict`` leaves it as it was."""
    if not entries:
        return
    early = [path for path, kept in entries.items() if kept.unsure or not _is_base(root.fileno(), path, kept.base)]
    if early:
        raise Conflict(early)
    _Apply(root.fileno(), contents, entries).run()


class _Apply:
    """One application: its stage, and its steps in order."""

    def __init__(self, root: int, contents: Rooted, entries: Mapping[str, Kept]) -> None:
        self._root, self._contents = root, contents
        # What goes is moved away first, deepest first, so that nothing is in the way of what comes.
        away = sorted((path for path, kept in entries.items() if _goes(kept)), key=lambda path: -path.count("/"))
        come = sorted((path for path, kept in entries.items() if not kept.is_gone), key=lambda path: path.count("/"))
        self._changes = [entries[path] for path in (*away, *come)]
        #: The steps of these changes, with the inode and time of each new file in the stage; 0 where there is none.
        self._steps: list[Entry] = []
        self._away = len(away)
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
            raise ExecutionFailed(f"the folder cannot be written: {error.strerror}; nothing was applied") from None
        self._stage = os.open(self._record.stage, SCAN, dir_fd=root)

    def run(self) -> None:
        """Stage, write the journal, rename; everything is taken back when a step fails."""
        try:
            try:
                for number, kept in enumerate(self._changes):
                    kind = GONE if number < self._away else kept.entry.type
                    inode, time_ns = (0, 0) if kind == GONE else self._write_new(f"new{number}", kept)
                    mode = kept.base.mode if kept.base else 0
                    self._steps.append(Entry(kept.entry.path, kind, 0, mode, inode, time_ns))
                self._write_journal()
                for number, (step, kept) in enumerate(zip(self._steps, self._changes, strict=True)):
                    self._step(number, step, kept)
                # The journal lies on another file system: it may say "done" only when the renames are on disk.
                libc().syncfs(self._stage)
                self._record.done()
            finally:
                recover(self._root, self._stage, self._record)
        except OSError as error:
            raise ExecutionFailed(f"nothing was applied: {error.strerror or error}") from error
        finally:
            os.close(self._stage)
            self._record.close()

    def _write_new(self, name: str, kept: Kept) -> tuple[int, int]:
        """Make what a change brings in the stage; returns its inode and time, zeros for a folder that gets a mode."""
        entry = kept.entry
        if entry.is_dir and kept.on_folder:
            return 0, 0
        made = entry._replace(path=name, mode=entry.mode | (0o700 if entry.is_dir else 0))
        try:
            with Rooted(self._stage) as stage:
                stage.put(made, self._contents, entry.names)
        except SandboxError as error:
            raise OSError(str(error)) from error
        owner = self._owner_of(entry.path)
        if owner is not None:
            os.chown(name, *owner, dir_fd=self._stage, follow_symlinks=False)
        info = os.stat(name, dir_fd=self._stage, follow_symlinks=False)
        return info.st_ino, info.st_mtime_ns

    def _owner_of(self, path: str) -> tuple[int, int] | None:
        """Return whom a file shall belong to when root applies: the owner of the file before, else of its folder."""
        if os.geteuid() != 0:
            return None
        while path:
            above, name = _parted(path)
            with suppress(OSError), in_folder(self._root, above, cross_mounts=False) as folder:
                info = os.stat(name, dir_fd=folder, follow_symlinks=False)
                return info.st_uid, info.st_gid
            path = "/".join(above)
        info = os.fstat(self._root)
        return info.st_uid, info.st_gid

    def _write_journal(self) -> None:
        """From here on a crash is taken back by ``recover_all``. One sync for the whole file system."""
        libc().syncfs(self._stage)
        folder, stage = os.fstat(self._root).st_ino, os.fstat(self._stage).st_ino
        self._record.write(ApplyJournal(folder, stage, tuple(self._steps)))

    def _step(self, number: int, step: Entry, kept: Kept) -> None:
        above, name = _parted(step.path)
        try:
            with in_folder(self._root, above, cross_mounts=False) as folder:
                if step.type == GONE:
                    rename(folder, name, self._stage, f"old{number}", exchange=False)
                    self._check(kept, f"old{number}")
                elif step.inode == 0:
                    set_mode(folder, name, kept.entry.mode | 0o700)
                elif kept.base is None or _goes(kept):
                    rename(self._stage, f"new{number}", folder, name, exchange=False)
                else:
                    rename(self._stage, f"new{number}", folder, name, exchange=True)
                    self._check(kept, f"new{number}")
        except OSError as error:
            if error.errno in _OF_THE_FOLDER:
                raise
            raise Conflict([step.path]) from None

    def _check(self, kept: Kept, name: str) -> None:
        """The very thing that was taken away is what the change is based on; a folder must be empty."""
        if kept.on_folder:
            changed = _has_content(self._stage, name)
        else:
            there = _entry_at(self._stage, name)
            changed = kept.base is None or there is None or not kept.base.is_version(there)
        if changed:
            raise Conflict([kept.entry.path])


def _goes(kept: Kept) -> bool:
    """Whether what the user has must be moved away first: it is removed, or becomes something of another type."""
    return kept.is_gone or (kept.base is not None and kept.base.is_dir != kept.entry.is_dir)


def _is_base(root: int, path: str, base: Entry | None) -> bool:
    above, name = _parted(path)
    try:
        with in_folder(root, above, cross_mounts=False) as folder:
            there = _entry_at(folder, name)
    except OSError:
        there = None  # a folder that will be made, or that was never there: fine for something new
    if base is None or there is None:
        return base is there
    return there.is_dir if base.is_dir else there.is_version(base)


# Taking back.


def recover_all(root: Rooted) -> int:
    """Take back what applications of this user that were killed have begun; returns how many.

    Called before a folder is used. Raises ``ExecutionFailed`` once for what could not be taken back; then the folder
    can be used. Stages of others are left alone (``strange_stages``).
    """
    found = 0
    for name in _stages(root):
        path = ApplyRecord.path_of(name)
        record = None if path is None else ApplyRecord.take(path, make=True)
        if record is None:
            continue  # it is not ours, or its maker is at work
        try:
            with in_folder(root.fileno(), (name,), SCAN) as stage:
                journal = record.read()[0]
                own = os.fstat(root.fileno()).st_ino, os.fstat(stage).st_ino
                # Else it is about the folder and the stage that these were copied from.
                if journal is None or (journal.folder, journal.stage) == own:
                    recover(root.fileno(), stage, record)
                    found += 1
        except OSError:
            continue  # it is no folder, or gone by now
        except ValueError as error:
            place = record.set_aside()
            raise ExecutionFailed(
                f"an apply to this folder was interrupted, and its journal is damaged ({error}); what was there before "
                f"is in {quoted(name)} in the folder: move back what you miss and remove it. The journal is now "
                f"{quoted(place)}; the folder can be used"
            ) from None
        finally:
            record.close()
    return found


def strange_stages(root: Rooted) -> tuple[str, ...]:
    """Return folders that look like our stages and are not: nobody knows what is in them, so they are left alone."""
    return tuple(sorted(name for name in _stages(root) if ApplyRecord.path_of(name) is None))


def recover(root: int, stage: int, record: ApplyRecord) -> None:
    """Take back every step of a journal that is not done, in reverse; then remove the stage and the record."""
    journal, stays = record.read()
    stuck: list[str] = []
    if journal is not None and not stays:
        for number, step in reversed(list(enumerate(journal.steps))):
            try:
                _take_back(root, stage, number, step)
            except OSError:
                stuck.append(f"{quoted(step.path)} (its version of before: {_before(step, number)})")
    if stuck:
        record.set_aside()
        more = f" and {len(stuck) - _MOST_NAMED} more" if len(stuck) > _MOST_NAMED else ""
        raise ExecutionFailed(
            f"an apply was interrupted, and the folder has something else by now at {', '.join(stuck[:_MOST_NAMED])}"
            f"{more}; the versions of before are in {quoted(record.stage)} in the folder: move back what you miss and "
            "remove it. Everything else is as it was before; the folder can be used"
        )
    with suppress(FileNotFoundError):
        remove_tree(root, record.stage, _REMOVAL_S)
    record.remove()


def _stages(root: Rooted) -> list[str]:
    with os.scandir(root.fileno()) as scan:
        return [item.name for item in scan if item.name.startswith(STAGE_PREFIX)]


def _before(step: Entry, number: int) -> str:
    return f"old{number}" if step.type == GONE else f"new{number}"


def _take_back(root: int, stage: int, number: int, step: Entry) -> None:
    above, name = _parted(step.path)
    kept_here = _entry_at(stage, _before(step, number))
    try:
        folder = open_folder(root, above, PASS, cross_mounts=False)
    except OSError:
        if kept_here is not None and step.type == GONE:
            raise
        return  # its folder was never made
    with closed_after(folder):
        there = _entry_at(folder, name)
        if step.type == GONE:
            if kept_here is not None:
                rename(stage, _before(step, number), folder, name, exchange=False)
        elif step.inode == 0:
            if there is not None and there.is_dir:
                set_mode(folder, name, stat.S_IMODE(step.mode))
        elif there is not None and there.inode == step.inode:
            if step.type == DIRECTORY and _has_content(folder, name):
                return  # the user has put something in
            if step.type == FILE and there.mtime_ns != step.mtime_ns:
                raise FileExistsError(step.path)  # the user has written to it
            rename(folder, name, stage, f"new{number}", exchange=kept_here is not None)
        elif kept_here is not None and kept_here.inode != step.inode:
            # What we had put there was replaced by the user, and what was there before us is in the stage.
            raise FileExistsError(step.path)


def _parted(path: str) -> tuple[Names, str]:
    *above, name = path.split("/")
    return tuple(above), name


def _has_content(folder: int, name: str) -> bool:
    with in_folder(folder, (name,), SCAN, cross_mounts=False) as fd:
        return bool(os.listdir(fd))


def _entry_at(folder: int, name: str) -> Entry | None:
    try:
        return Entry.of(name, os.stat(name, dir_fd=folder, follow_symlinks=False))
    except OSError:
        return None


def set_mode(folder: int, name: str, mode: int) -> None:
    """Give a folder a mode."""
    with in_folder(folder, (name,), SCAN, cross_mounts=False) as fd:
        os.fchmod(fd, mode & 0o777)


def rename(from_fd: int, old: str, to_fd: int, new: str, *, exchange: bool) -> None:
    """Rename; with ``exchange`` both change places, without it nothing may be there."""
    flags = _EXCHANGE if exchange else _NOREPLACE
    if libc().renameat2(from_fd, os.fsencode(old), to_fd, os.fsencode(new), flags) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), new)

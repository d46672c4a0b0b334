"""Takes back applications that failed or were killed, step by step from their journal, and removes their stages.

Whatever cannot be taken back, because the user has something else there now, stays in the stage and is told once; the
other steps are taken back all the same, and the folder can be used.
"""

from __future__ import annotations

import ctypes
import os
import stat
from contextlib import suppress

from sandbox_kernel.errors import ExecutionFailed
from sandbox_kernel.limits import quoted
from sandbox_kernel.workspace.here.applying.apply_record import ApplyJournal, ApplyRecord, ApplyStep, DamagedRecord
from sandbox_kernel.workspace.here.applying.selection import STAGE_PREFIX
from sandbox_kernel.workspace.here.change_log import GONE
from sandbox_kernel.workspace.tree.beneath import PASS, SCAN, open_folder
from sandbox_kernel.workspace.tree.removal import remove_tree
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import DIRECTORY, FILE

_NOREPLACE, _EXCHANGE = 1, 2
#: How long removing a stage may take, in seconds.
_REMOVAL_S = 60.0
#: Most paths that a message names.
_MOST_NAMED = 5
_libc = ctypes.CDLL(None, use_errno=True)


def recover_all(root: Rooted) -> int:
    """Take back what applications of this user that were killed have begun; returns how many.

    Called before a folder is used. Raises ``ExecutionFailed`` once for what could not be taken back; then the folder
    can be used. Stages of others are left alone (``strange_stages``).
    """
    found = 0
    for name in _stages(root):
        try:
            record = ApplyRecord.find(name)
        except BlockingIOError:
            continue  # its maker is at work
        if record is None:
            continue
        try:
            stage = os.open(name, SCAN, dir_fd=root.fileno())
            try:
                if _is_about(record, root.fileno(), stage):
                    recover(root.fileno(), stage, record)
                    found += 1
            finally:
                os.close(stage)
        except OSError:
            continue  # it is no folder, or gone by now
        except DamagedRecord as error:
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
    found = []
    for name in _stages(root):
        with suppress(BlockingIOError):
            record = ApplyRecord.find(name)
            if record is None:
                found.append(name)
            else:
                record.close()
    return tuple(sorted(found))


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


def _is_about(record: ApplyRecord, root: int, stage: int) -> bool:
    """Whether a record is about this folder and this stage, and not about those that they were copied from."""
    journal: ApplyJournal | None = record.read()[0]
    if journal is None:
        return True
    return (journal.folder, journal.stage) == (os.fstat(root).st_ino, os.fstat(stage).st_ino)


def _before(step: ApplyStep, number: int) -> str:
    return f"old{number}" if step.kind == GONE else f"new{number}"


def _take_back(root: int, stage: int, number: int, step: ApplyStep) -> None:
    above, _, name = step.path.rpartition("/")
    kept_here = _look(stage, _before(step, number)) is not None
    try:
        folder = open_folder(root, tuple(above.split("/")) if above else (), PASS, cross_mounts=False)
    except OSError:
        if kept_here and step.kind == GONE:
            raise
        return  # its folder was never made
    try:
        there = _look(folder, name)
        if step.kind == GONE:
            if kept_here:
                rename(stage, _before(step, number), folder, name, exchange=False)
        elif step.inode == 0:
            if there is not None and stat.S_ISDIR(there.st_mode):
                set_mode(folder, name, stat.S_IMODE(step.mode))
        elif there is not None and there.st_ino == step.inode:
            if step.kind == DIRECTORY and _has_content(folder, name):
                return  # the user has put something in
            if step.kind == FILE and there.st_mtime_ns != step.mtime_ns:
                raise FileExistsError(step.path)  # the user has written to it
            rename(folder, name, stage, f"new{number}", exchange=kept_here)
        elif kept_here and not _is_new(stage, number, step):
            # What we had put there was replaced by the user, and what was there before us is in the stage.
            raise FileExistsError(step.path)
    finally:
        os.close(folder)


def _is_new(stage: int, number: int, step: ApplyStep) -> bool:
    info = _look(stage, f"new{number}")
    return info is not None and info.st_ino == step.inode


def _has_content(folder: int, name: str) -> bool:
    fd = open_folder(folder, (name,), SCAN, cross_mounts=False)
    try:
        return bool(os.listdir(fd))
    finally:
        os.close(fd)


def _look(folder: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None


def set_mode(folder: int, name: str, mode: int) -> None:
    """Give a folder a mode."""
    fd = open_folder(folder, (name,), SCAN, cross_mounts=False)
    try:
        os.fchmod(fd, mode & 0o777)
    finally:
        os.close(fd)


def rename(from_fd: int, old: str, to_fd: int, new: str, *, exchange: bool) -> None:
    """Rename; with ``exchange`` both change places, without it nothing may be there."""
    flags = _EXCHANGE if exchange else _NOREPLACE
    if _libc.renameat2(from_fd, os.fsencode(old), to_fd, os.fsencode(new), flags) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), new)


def sync(fd: int) -> None:
    """Have the whole file system of a descriptor on disk."""
    _libc.syncfs(fd)

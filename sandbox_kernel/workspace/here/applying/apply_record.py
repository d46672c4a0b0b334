"""``ApplyRecord``: what one application is about to do, written down where only this user can write.

The stage of an application lies in the user's folder, which may come from a stranger. So nothing in it is believed: the
journal lies in a private folder of the user, under the name of the stage, which nobody can guess, with the inodes of
the folder and the stage. A stage without such a record is not ours.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
from dataclasses import dataclass

from sandbox_kernel.ground.own_folder import make_own_folder, state_root, weakness
from sandbox_kernel.workspace.here.applying.selection import STAGE_PREFIX
from sandbox_kernel.workspace.tree.beneath import SCAN

_JOURNAL, _DRAFT, _DONE = "journal", "draft", "done"
#: What is added to the name of a record that could not be used: its stage is no longer taken for ours.
_ASIDE = ".unusable"
_MOST_JOURNAL = 64 << 20


class DamagedRecord(Exception):
    """The journal of a record cannot be read."""


@dataclass(frozen=True)
class ApplyStep:
    """One rename of an application; ``kind`` is ``gone`` or the new type, ``mode`` that of before.

    ``inode`` is that of the new file or 0, ``mtime_ns`` when its content was written.
    """

    path: str
    kind: str
    inode: int
    mtime_ns: int
    mode: int


@dataclass(frozen=True)
class ApplyJournal:
    """All steps of an application, and the inodes of the folder and of the stage that they are about."""

    folder: int
    stage: int
    steps: tuple[ApplyStep, ...]


class ApplyRecord:
    """One record that this process has locked: nobody else takes its application back. ``close`` it at the end."""

    def __init__(self, path: str, fd: int) -> None:
        self._path, self._fd = path, fd
        #: The name of the stage in the user's folder.
        self.stage = STAGE_PREFIX + os.path.basename(path)

    @classmethod
    def make(cls) -> ApplyRecord:
        """Begin a record. Raises ``OSError`` when there is no folder that only this user can change."""
        make_own_folder(_root())
        path = os.path.join(_root(), secrets.token_hex(16))
        os.mkdir(path, 0o700)
        fd = os.open(path, SCAN)
        fcntl.flock(fd, fcntl.LOCK_EX)
        return cls(path, fd)

    @classmethod
    def find(cls, stage: str) -> ApplyRecord | None:
        """Return the record of a stage. None when we have none. Raises ``BlockingIOError`` while its maker works."""
        name = stage.removeprefix(STAGE_PREFIX)
        if not name.isalnum():
            return None
        path = os.path.join(_root(), name)
        try:
            if weakness(path) is not None:
                return None
            fd = os.open(path, SCAN)
        except OSError:
            return None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        return cls(path, fd)

    def write(self, journal: ApplyJournal) -> None:
        """Write the journal, complete or not at all. From here on a crash is taken back."""
        steps = [[step.path, step.kind, step.inode, step.mtime_ns, step.mode] for step in journal.steps]
        fd = os.open(_DRAFT, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=self._fd)
        with os.fdopen(fd, "w", encoding="utf-8", errors="surrogateescape") as file:
            json.dump({"folder": journal.folder, "stage": journal.stage, "steps": steps}, file)
            file.flush()
            os.fsync(fd)
        os.rename(_DRAFT, _JOURNAL, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        os.fsync(self._fd)

    def done(self) -> None:
        """From here on the application stays: only its stage is removed."""
        os.rename(_JOURNAL, _DONE, src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def read(self) -> tuple[ApplyJournal | None, bool]:
        """Return the journal, if one was written, and whether its application stays. Raises ``DamagedRecord``."""
        for name in (_JOURNAL, _DONE):
            try:
                fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self._fd)
            except FileNotFoundError:
                continue
            with os.fdopen(fd, encoding="utf-8", errors="surrogateescape") as file:
                return _parsed(file.read(_MOST_JOURNAL)), name == _DONE
        return None, False

    def set_aside(self) -> str:
        """Use the record no more; returns where it is now."""
        os.rename(self._path, self._path + _ASIDE)
        return self._path + _ASIDE

    def remove(self) -> None:
        """Remove the record: its stage is gone."""
        shutil.rmtree(self._path, ignore_errors=True)

    def close(self) -> None:
        """Let go of the lock; may be called twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _parsed(text: str) -> ApplyJournal:
    try:
        told = json.loads(text)
        steps = tuple(ApplyStep(str(path), str(kind), *map(int, numbers)) for path, kind, *numbers in told["steps"])
        return ApplyJournal(int(told["folder"]), int(told["stage"]), steps)
    except (ValueError, TypeError, KeyError) as error:
        raise DamagedRecord(str(error)) from None


def _root() -> str:
    return os.path.join(state_root(), "sandbox-kernel", "applying")

"""The place of one host process: a group of ours that holds the leaves of its sandboxes, made once and swept when dead.

A place is locked as long as its host lives. The kernel lets go of the lock when the host dies, however it dies, so a
place without a lock is a leftover: whoever makes a place next to it removes it. What still runs in a leftover leaf is
a sandbox without a host, and is killed. Everything else that lives there (a program that a moved host had started) is
left alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import signal
import time

from sandbox_kernel.jail.cgroups.cgroup_files import read, write
from sandbox_kernel.jail.cgroups.cgroup_plan import GROUP_PREFIX, PLACE_PREFIX, PlacePlan

#: The group of a host that had to move, in its place.
_HOST = "host"
#: How long a sweep waits for what it killed.
_DEATH_S = 0.2


class Place:
    """A group in ``plan.parent`` that only its owner can enter; ``OSError`` where the plan cannot be followed."""

    def __init__(self, plan: PlacePlan) -> None:
        self._plan = plan
        self._pid = os.getpid()
        self._moved = False
        self.folder, self._lock = _locked_folder(plan.parent)
        try:
            if plan.move:
                os.mkdir(f"{self.folder}/{_HOST}")
                write(f"{self.folder}/{_HOST}/cgroup.procs", str(self._pid))
                self._moved = True
            if plan.enable:
                write(f"{plan.parent}/cgroup.subtree_control", _words("+", plan))
            for name, value in plan.limits.items():
                write(f"{self.folder}/{name}", value)
            if plan.controllers:
                write(f"{self.folder}/cgroup.subtree_control", _words("+", plan))
        except OSError:
            self.remove()
            raise

    def remove(self) -> None:
        """Undo what was made, as far as nothing lives in it; a moved host goes back. Does nothing in a forked child."""
        if os.getpid() != self._pid or self._lock < 0:
            return
        for leaf in _leaves(self.folder):
            _removed(leaf)
        if self._plan.controllers:
            with contextlib.suppress(OSError):
                write(f"{self.folder}/cgroup.subtree_control", _words("-", self._plan))
        if self._moved:
            with contextlib.suppress(OSError):
                # Refused as long as another place below the same group needs them; then this process stays, too.
                write(f"{self._plan.parent}/cgroup.subtree_control", _words("-", self._plan))
                write(f"{self._plan.parent}/cgroup.procs", str(self._pid))
                self._moved = False
        _removed(f"{self.folder}/{_HOST}")
        _removed(self.folder)
        self.forget()

    def forget(self) -> None:
        """Let go of the lock and of nothing else: in a forked child the place is the parent's."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def sweep(parent: str) -> None:
    """Remove the places of dead hosts of ours in a group, and kill what still runs in their leaves."""
    with contextlib.suppress(OSError):
        for name in os.listdir(parent):
            if name.startswith(PLACE_PREFIX):
                with contextlib.suppress(OSError):
                    _sweep_place(f"{parent}/{name}")


def _sweep_place(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(fd).st_uid != os.geteuid():
            return
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises while its host lives
        deadline = time.monotonic() + _DEATH_S
        for leaf in _leaves(folder):
            _kill(leaf)
            while not _removed(leaf) and time.monotonic() < deadline:
                time.sleep(0.001)
        _removed(f"{folder}/{_HOST}")
        _removed(folder)
    finally:
        os.close(fd)


def _locked_folder(parent: str) -> tuple[str, int]:
    """A new folder and the descriptor that locks it. Until it is locked, somebody's sweep may take it; then another."""
    while True:
        folder = f"{parent}/{PLACE_PREFIX}{secrets.token_hex(4)}"
        os.mkdir(folder, 0o700)
        with contextlib.suppress(FileNotFoundError, BlockingIOError):
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.stat(folder).st_ino == os.fstat(fd).st_ino:
                    return folder, fd
            except OSError:
                os.close(fd)
                raise
            os.close(fd)


def _leaves(folder: str) -> list[str]:
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        return [entry.path for entry in entries if entry.is_dir() and entry.name.startswith(GROUP_PREFIX)]
    return []


def _kill(leaf: str) -> None:
    if os.path.exists(f"{leaf}/cgroup.kill"):
        write(f"{leaf}/cgroup.kill", "1")
        return
    for pid in map(int, read(f"{leaf}/cgroup.procs").split()):
        with contextlib.suppress(OSError):
            fd = os.pidfd_open(pid)
            try:
                # The number may be another process's by now; the descriptor is not.
                if str(pid) in read(f"{leaf}/cgroup.procs").split():
                    signal.pidfd_send_signal(fd, signal.SIGKILL)
            finally:
                os.close(fd)


def _removed(folder: str) -> bool:
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _words(sign: str, plan: PlacePlan) -> str:
    return " ".join(f"{sign}{name}" for name in plan.controllers)

"""The place of one host process: the group that contains the leaves of its sandboxes, made once for each process.

A place is locked as long as its host lives; the kernel releases the lock when the host dies. A place without a lock is
therefore a leftover, and the next host that makes a place beside it removes it. Processes in a leftover leaf belong to
a sandbox without a host and are killed. Other processes there (a program of a moved host) are left alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time

from sandbox_kernel.jail.cgroups.cgroup_files import read, write
from sandbox_kernel.jail.cgroups.cgroup_plan import GROUP_PREFIX, PLACE_PREFIX, PlacePlan

#: The group, inside the place, of a host that had to move.
_HOST = "host"
#: How long a sweep waits for killed processes.
_DEATH_S = 0.2


class Place:
    """A group in ``plan.parent`` that only its owner can enter. Raises ``OSError`` if the plan does not work."""

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
        """Undo what was made if it is empty; a moved host moves back. Does nothing in a forked child."""
        if os.getpid() != self._pid or self._lock < 0:
            return
        for leaf in _leaves(self.folder):
            _removed(leaf)
        if self._plan.controllers:
            with contextlib.suppress(OSError):
                write(f"{self.folder}/cgroup.subtree_control", _words("-", self._plan))
        if self._moved:
            with contextlib.suppress(OSError):
                # The kernel refuses this while another place below the same group needs them. Then this process stays.
                write(f"{self._plan.parent}/cgroup.subtree_control", _words("-", self._plan))
                write(f"{self._plan.parent}/cgroup.procs", str(self._pid))
                self._moved = False
        _removed(f"{self.folder}/{_HOST}")
        _removed(self.folder)
        self.forget()

    def forget(self) -> None:
        """Close the lock and do nothing else: in a forked child the place belongs to the parent."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def sweep(parent: str) -> None:
    """Remove the places of dead hosts in a group, and kill the processes in their leaves."""
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
    """Make a folder and return it with the descriptor that locks it. Tries again if a sweep removed it before that."""
    while True:
        folder = f"{parent}/{PLACE_PREFIX}{os.urandom(4).hex()}"
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
                # The pid may belong to another process by now; the descriptor cannot.
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

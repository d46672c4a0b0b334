"""Checkpoints: forks of the worker that sleep (are *frozen*) until the gate wakes them.

The *child* becomes the checkpoint and the parent goes on as the worker, so its threads and connections are not
disturbed. A checkpoint shares its parent's open files and their positions; ``Marks`` records the positions before the
fork and sets them again when the checkpoint wakes. It also sets back what fork changes (the state of ``random``).
Threads are not copied: a session that rolls back loses them.

A checkpoint is woken by a signal. End-of-file on a pipe would not do: checkpoints inherit each other's descriptors. The
kernel reports the sender of a signal; a checkpoint wakes for the gate only and discards every other signal.

A checkpoint can be *sealed*: the parent makes itself non-dumpable before the fork and dumpable again after it. Then no
process of the session can read or write the checkpoint's memory, trace it, or take its descriptors. A later cell can
still kill it (the gate notices), lower its priority, and write to memory that both share (MAP_SHARED).
"""

from __future__ import annotations

import _socket
import contextlib
import ctypes
import errno
import fcntl
import os
import signal
import stat
import sys

from ..gate import lockdown
from . import sleeping_fork
from .held import WAKE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, List, Tuple


_SENT_BY_KILL = 0
#: References taken before the first cell, because a cell may replace these functions.
_waitpid, _peek = os.waitpid, os.waitid
_make, _close, _stat = getattr(os, "memfd_create", None), os.close, os.fstat
_set_dumpable, _is_dumpable = lockdown.set_dumpable, lockdown.is_dumpable


class Marks:
    """State that a fork shares or does not copy: recorded in the parent, restored when the checkpoint wakes.

    Also counts what the checkpoint cannot hold: a network socket and the file of an open database are the same ones in
    every state, a child process goes on by itself, threads are not copied. Written with plain system calls: each object
    that is touched between two checkpoints costs a page of memory in each.
    """

    def __init__(self, checkpoints: List[int], threads: int = 0) -> None:
        self.positions: Dict[int, Tuple[int, int, int | None]] = {}
        self.sockets = self.databases = self.children = 0
        for name in os.listdir("/proc/self/fd"):
            fd = int(name)
            try:
                info = os.fstat(fd)
                flags = fcntl.fcntl(fd, fcntl.F_GETFL)
                position = os.lseek(fd, 0, os.SEEK_CUR) if stat.S_ISREG(info.st_mode) else None
                self.sockets += stat.S_ISSOCK(info.st_mode) and _is_network(fd)
            except OSError:
                continue
            self.positions[fd] = (info.st_ino, flags, position)
            if position is not None:
                with contextlib.suppress(OSError):  # open for writing only
                    self.databases += os.pread(fd, len(_SQLITE), 0) == _SQLITE
        for thread in os.listdir("/proc/self/task"):
            try:
                fd = os.open(f"/proc/self/task/{thread}/children", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                continue
            try:
                for pid in os.read(fd, 1 << 16).split():
                    self.children += int(pid) not in checkpoints
            finally:
                os.close(fd)
        self.random: object = None
        self.open_before = True
        self.folder: str | None = None
        with contextlib.suppress(OSError):  # it was removed, or its path is longer than the system accepts
            # Not ``os.getcwd``: 100 000 folders deep the C library searches for the path itself, for minutes.
            path = os.readlink("/proc/self/cwd")
            self.folder = path if os.path.samefile(path, ".") else None
        self.processors = os.sched_getaffinity(0)
        self.threads = threads

    def keep_random(self) -> None:
        """Record the state of ``random``: it takes new numbers where Python has forked."""
        module = sys.modules.get("random")
        try:
            self.random = module.getstate() if module is not None else None
        except Exception:
            self.random = None  # the user has replaced it

    def put_back(self) -> None:
        """Restore the recorded state; called in the checkpoint. Skips what cannot be restored (a removed folder)."""
        for fd, (inode, flags, position) in self.positions.items():
            try:
                if os.fstat(fd).st_ino != inode:
                    continue
                if fcntl.fcntl(fd, fcntl.F_GETFL) != flags:
                    fcntl.fcntl(fd, fcntl.F_SETFL, flags)
                if position is not None:
                    os.lseek(fd, position, os.SEEK_SET)
            except OSError:
                continue
        if self.random is not None:
            sys.modules["random"].setstate(self.random)
        with contextlib.suppress(OSError):
            # Every process of the same user can change it, even while we were frozen.
            os.sched_setaffinity(0, self.processors)
        if self.folder is not None:
            with contextlib.suppress(OSError):
                os.chdir(self.folder)


def set_oom_score(wanted: int) -> None:
    """Set this process's ``oom_score_adj``; a refusal is ignored. The kernel kills the highest score first."""
    with contextlib.suppress(OSError):
        fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, b"%d" % wanted)
        finally:
            os.close(fd)


class Freezer:
    """Makes checkpoints of this process and remembers their pids."""

    def __init__(self) -> None:
        self.gate = os.getppid()
        #: Returns how many threads the user's code has started.
        self.threads: Callable[[], int] = lambda: 0
        self.children: List[int] = []
        self.spare = SpareDescriptor()
        self.score = read_score("self")
        self.gate_score = read_score(str(self.gate))

    def freeze(self, *, sealed: bool, look: Callable[[int], None], woken: Callable[[Marks], None]) -> Tuple[int, Marks]:
        """Fork a checkpoint. Returns its pid in the parent at once, and 0 in the checkpoint when the gate wakes it.

        The checkpoint calls ``look`` with the signal ``LOOK`` when the gate asks to look at the variables, and with
        SIGCHLD when the process that looked has ended. Neither may leave a trace in the state. When the gate wakes it,
        it calls ``woken`` first, if this process has no other threads: before the state is set right. Then
        ``come_back``. The caller has blocked all signals. Raises ``OSError`` when the kernel refuses another process,
        or when this one uses an accelerator.
        """
        self.reap()
        pid = -1
        self.spare.give()
        try:
            if uses_accelerator():
                raise OSError(errno.ENOTSUP, _ON_GPU)
            marks = Marks(self.children, self.threads())
            alone = sleeping_fork.alone()
            if not alone:
                marks.keep_random()
            pid, open_before = self.fork(sealed=sealed, alone=alone)
        finally:
            if pid:
                self.spare.take()
        if pid:
            self.children.append(pid)
            return pid, marks
        marks.open_before = open_before
        self.sleep(marks, look, woken, due=alone)
        return 0, marks

    def fork(self, *, sealed: bool, alone: bool) -> Tuple[int, bool]:
        """Fork a checkpoint. Returns its pid, or 0 in the checkpoint, and whether this process can be looked into."""
        open_before = _is_dumpable()
        # The checkpoint inherits score and sealing: once sealed, it cannot change its own score.
        set_oom_score(self.gate_score)
        if sealed:
            _set_dumpable(False)
        pid = -1
        try:
            pid = sleeping_fork.fork() if alone else sleeping_fork.fork_beside_threads()
        finally:
            if pid:
                _set_dumpable(open_before)
                set_oom_score(self.score)
        return pid, open_before

    def sleep(self, marks: Marks, look: Callable[[int], None], woken: Callable[[Marks], None], *, due: bool) -> None:
        """Be a checkpoint until the gate wakes it; see ``freeze``. ``due``: this process is still to be set right."""
        number = 0
        while number != WAKE:
            number = sleeping_fork.sleep(self.gate, _SENT_BY_KILL, signal.SIGCHLD)
            if due:
                due = False
                if number == WAKE:
                    woken(marks)
                marks.keep_random()
                sleeping_fork.wake_up()
            if number == signal.SIGCHLD:
                reap_any()
            if number != WAKE:
                look(number)

    def come_back(self, marks: Marks) -> None:
        """Restore what a fork shares or changes; called in a checkpoint that has become the worker."""
        self.children = []
        reap_any()
        _set_dumpable(marks.open_before)
        # Signals that came while it was frozen: the rollback undid the cell that sent them.
        while pending := signal.sigpending() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.sigwait(pending)
        set_oom_score(self.score)
        marks.put_back()
        self.spare.take()

    def reap(self) -> None:
        """Reap checkpoints that the host has dropped: one call when none has ended, as most often, not one for each."""
        try:
            if _peek(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                return
        except ChildProcessError:
            pass  # none is left, and the list is emptied below
        for pid in list(self.children):
            try:
                if _waitpid(pid, os.WNOHANG)[0] == pid:
                    self.children.remove(pid)
            except ChildProcessError:
                self.children.remove(pid)


def reap_any() -> None:
    """Reap the processes that have looked at the variables: a checkpoint has no other children."""
    with contextlib.suppress(ChildProcessError):
        while _waitpid(-1, os.WNOHANG)[0]:
            pass


def read_score(who: str) -> int:
    """Return the ``oom_score_adj`` of a process (a pid or ``self``); 0 when it cannot be read."""
    try:
        with open(f"/proc/{who}/oom_score_adj") as file:
            return int(file.read())
    except OSError:
        return 0


class SpareDescriptor:
    """One open file that nobody needs: a checkpoint opens files, also when cells have used up all descriptors.

    A cell may close it, and its number may then belong to a file of the cell.
    """

    def __init__(self) -> None:
        self._fd = -1
        self._file: Tuple[int, int] | None = None
        self.take()

    def take(self) -> None:
        """Take a descriptor into reserve, if one is free."""
        try:
            self._fd = _make("spare") if _make is not None else -1
            self._file = _which(self._fd)
        except OSError:
            self._file = None

    def give(self) -> None:
        """Give the descriptor back, if it is still ours."""
        try:
            if self._file is not None and _which(self._fd) == self._file:
                _close(self._fd)
        except OSError:
            pass  # a cell has closed it
        self._file = None


def _which(fd: int) -> Tuple[int, int]:
    """Return what tells a file in memory from every other file."""
    found = _stat(fd)
    return found.st_dev, found.st_ino


_SO_DOMAIN = 39
_NETWORK = (_socket.AF_INET, _socket.AF_INET6)
_SQLITE = b"SQLite format 3\0"
#: Called without an object of ``socket``, which would ask for more, and could let no call on the socket wait any more.
_ask, _domain, _size = ctypes.PyDLL(None).getsockopt, ctypes.c_int(), ctypes.c_uint(ctypes.sizeof(ctypes.c_int))


def _is_network(fd: int) -> bool:
    refused = _ask(fd, _socket.SOL_SOCKET, _SO_DOMAIN, ctypes.byref(_domain), ctypes.byref(_size))
    return not refused and _domain.value in _NETWORK


#: Every program for NVIDIA's or AMD's cards opens one of these.
_FILES = ("/dev/nvidiactl", "/dev/kfd")
#: Why no checkpoint is made of such a process.
_ON_GPU = "it uses a GPU, and the state of a GPU cannot be copied"
_DEVICES = {os.stat(path).st_rdev for path in _FILES if os.path.exists(path)}


def uses_accelerator() -> bool:
    """Whether a device file of an accelerator is open. Costs nothing in a jail without one."""
    if not _DEVICES:
        return False
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.fstat(int(name)).st_rdev in _DEVICES:
                return True
        except OSError:
            continue
    return False

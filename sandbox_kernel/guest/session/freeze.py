"""Checkpoints: a forked copy of the worker that waits, frozen, until the gate wakes it.

The *child* freezes and the parent goes on, so threads and connections live on when all is well. A checkpoint shares
its parent's open files, and with them their positions, so these are written down before the fork and put back when
the checkpoint wakes. What fork itself changes (the state of ``random``) is put back too. Threads are not copied.

A checkpoint is told by a signal and never by end-of-file: checkpoints inherit each other's descriptors. Only the gate
may wake it, and the kernel says who sent a signal. Signals of others are thrown away as they come.

A checkpoint is *sealed* from its first moment on: the parent forbids to be looked into before it forks, and allows it
again afterwards. So no process of the session can read or write its memory, trace it, or take its descriptors. What a
later cell still can do: kill it, which the gate notices; give it a lower priority; and write to memory that both share
(MAP_SHARED).
"""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import sys
import threading
import warnings

from ..gate import lockdown
from .signals import EVERY_SIGNAL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Tuple


#: The same signal as ``checkpoint_gate.WAKE``.
WAKE = signal.SIGUSR2
_SENT_BY_KILL = 0
#: Ours, whatever a cell puts in their place.
_fork, _waitpid = os.fork, os.waitpid
_set_dumpable, _is_dumpable = lockdown.set_dumpable, lockdown.is_dumpable


class Marks:
    """What a fork does not copy, or shares: taken in the parent, put back in a checkpoint that wakes."""

    def __init__(self) -> None:
        self.positions: Dict[int, Tuple[int, int, int | None]] = {}
        for name in os.listdir("/proc/self/fd"):
            fd = int(name)
            try:
                info = os.fstat(fd)
                flags = fcntl.fcntl(fd, fcntl.F_GETFL)
                position = os.lseek(fd, 0, os.SEEK_CUR) if stat.S_ISREG(info.st_mode) else None
            except OSError:
                continue
            self.positions[fd] = (info.st_ino, flags, position)
        module = sys.modules.get("random")
        self.random = module.getstate() if module is not None else None
        self.folder = working_folder()
        self.processors = os.sched_getaffinity(0)
        self.threads = len(os.listdir("/proc/self/task")) - 1

    def put_back(self) -> None:
        """Call in the checkpoint; what cannot be put back (a folder that is gone) stays as it is."""
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
        try:
            # Anybody of the same user can change it, for a frozen process too.
            os.sched_setaffinity(0, self.processors)
        except OSError:
            pass
        if self.folder is not None:
            try:
                os.chdir(self.folder)
            except OSError:
                pass


def working_folder() -> str | None:
    """Where this process is; None when that has no path any more, or one longer than the system takes.

    Not ``os.getcwd``: below 100 000 folders the C library looks for the path by itself, for minutes.
    """
    try:
        path = os.readlink("/proc/self/cwd")
        return path if os.path.samefile(path, ".") else None
    except OSError:
        return None


def first_victim(wanted: int) -> None:
    """Say how gladly the kernel should end this process when memory runs out; never less gladly than it allows."""
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write(str(wanted))
    except OSError:
        pass


class Freezer:
    """Makes checkpoints of this process, and knows which of its children they are."""

    def __init__(self) -> None:
        self.gate = os.getppid()
        self.children: List[int] = []
        self.score = read_score("self")
        self.calm = read_score(str(self.gate))

    def freeze(self, *, sealed: bool) -> Tuple[int, Marks]:
        """Fork. Returns the checkpoint's pid in the parent, and 0 in a checkpoint that has been told to take over.

        All signals are blocked when this is called; OSError when the kernel refuses another process.
        """
        self.reap()
        marks = Marks()
        open_before = _is_dumpable()
        # A checkpoint gets both from us: one that is sealed may not even change its own score.
        first_victim(self.calm)
        if sealed:
            _set_dumpable(False)
        pid = -1
        try:
            with warnings.catch_warnings():
                # Threads of the user's are known not to be copied; the host is told how many there were.
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = _fork()
        finally:
            if pid:
                _set_dumpable(open_before)
                first_victim(self.score)
        if pid:
            self.children.append(pid)
            return pid, marks
        self.children = []
        # A session of its own: what the cell does to its process group must not reach a checkpoint.
        os.setsid()
        while True:
            told = signal.sigwaitinfo(EVERY_SIGNAL)
            if told.si_signo == WAKE and told.si_pid == self.gate and told.si_code == _SENT_BY_KILL:
                break
        _set_dumpable(open_before)
        forget_signals()
        first_victim(self.score)
        marks.put_back()
        return 0, marks

    def reap(self) -> None:
        """Collect checkpoints that the host has dropped."""
        for pid in list(self.children):
            try:
                if _waitpid(pid, os.WNOHANG)[0] == pid:
                    self.children.remove(pid)
            except ChildProcessError:
                self.children.remove(pid)


def forget_signals() -> None:
    """What was sent to a checkpoint while it was frozen was meant for the cell that sent it, which never was."""
    while pending := signal.sigpending() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.sigwait(pending)


def read_score(who: str) -> int:
    """The kernel's inclination to end a process when memory runs out."""
    try:
        with open(f"/proc/{who}/oom_score_adj") as file:
            return int(file.read())
    except OSError:
        return 0


def user_threads() -> int:
    """Threads besides the one that runs cells."""
    return threading.active_count() - 1

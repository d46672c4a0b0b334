"""Whether a program waits for its user: one of its threads sleeps in a call that reads from an empty pipe.

Nothing is asked of the program, so it works for every language. The kernel says in which call a thread sleeps and with
which arguments, to whoever may trace the process. Where that is refused (some containers, programs of another user),
nobody can tell a program that waits from one that works.
"""

from __future__ import annotations

import fcntl
import os
import struct
import termios
from collections.abc import Iterator

from sandbox_kernel.jail.meter.process_tree import tree
from sandbox_kernel.jail.meter.process_view import runs, tasks
from sandbox_kernel.jail.rules.syscalls import ARCHES, number

_IN = 1  # POLLIN and EPOLLIN
_POLLFD = struct.Struct("ihh")
#: Longer lists of descriptors than this are not read; a program that waits for its user has short ones.
_MAX_WATCHED = 1024


def _numbers(*names: str) -> frozenset[int]:
    arch = os.uname().machine
    found = (number(name, arch) for name in names) if arch in ARCHES else ()
    return frozenset(one for one in found if one is not None)


_READS = _numbers("read", "readv", "splice")
_POLLS = _numbers("poll", "ppoll")
_SELECTS = _numbers("select", "pselect6")
_EPOLLS = _numbers("epoll_wait", "epoll_pwait", "epoll_pwait2")


class CannotTell(Exception):
    """The kernel does not say what these processes do."""


def waits_for_input(init_pid: int, pipe_fd: int) -> bool:
    """Whether a process below ``init_pid`` sleeps until something is written to this pipe, and nothing is in it.

    ``CannotTell`` where the kernel refuses to say. It does so for a moment too, of a process that begins or ends.
    """
    name = f"pipe:[{os.fstat(pipe_fd).st_ino}]"
    looks = [_reads(pid, name) for pid in tree(init_pid) if pid != init_pid]
    if None in looks and True not in looks:
        raise CannotTell
    # Looked at last: who slept in an empty pipe sleeps on until somebody writes, and that is the one who looks.
    return True in looks and not _holds_something(pipe_fd)


def _holds_something(pipe_fd: int) -> bool:
    size: int = struct.unpack("i", fcntl.ioctl(pipe_fd, termios.FIONREAD, b"\0\0\0\0"))[0]
    return size > 0


def _reads(pid: int, pipe: str) -> bool | None:
    """Whether a thread of a process sleeps in this pipe; None when it may not be looked at."""
    looks = [_task_reads(task, pipe) for task in tasks(pid) or [str(pid)]]
    return True if True in looks else None if None in looks else False


def _task_reads(task: str, pipe: str) -> bool | None:
    """The same of one thread, by its folder below /proc: each may have its own descriptors, and end by itself."""
    try:
        return any(_is(task, fd, pipe) for fd in _read_by(task))
    except PermissionError:
        # A thread that has ended belongs to root, and reads nothing.
        return None if runs(task) else False
    except (OSError, ValueError):  # it ended while we looked, or has something there that no one can read
        return False


def _read_by(task: str) -> Iterator[int]:
    """The descriptors that a thread waits for."""
    with open(f"/proc/{task}/syscall") as file:
        words = file.read().split()
    if len(words) < 4:  # it runs, or sleeps in no call
        return iter(())
    call, first, second = int(words[0]), int(words[1], 16), int(words[2], 16)
    if call in _READS:
        return iter((first,))
    if call in _POLLS:
        return _polled(task, first, second)
    if call in _SELECTS:
        return _selected(task, first, second)
    if call in _EPOLLS:
        return _epolled(task, first)
    return iter(())


def _is(task: str, fd: int, pipe: str) -> bool:
    """Whether a descriptor of a thread is this pipe; the link is read, never followed."""
    try:
        return os.readlink(f"/proc/{task}/fd/{fd}") == pipe
    except FileNotFoundError:
        return False


def _memory(task: str, address: int, size: int) -> bytes:
    fd = os.open(f"/proc/{task}/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(fd, size, address)
    finally:
        os.close(fd)


def _polled(task: str, address: int, count: int) -> Iterator[int]:
    data = _memory(task, address, min(count, _MAX_WATCHED) * _POLLFD.size) if address and count else b""
    whole = len(data) - len(data) % _POLLFD.size
    return (fd for fd, events, _ in _POLLFD.iter_unpack(data[:whole]) if events & _IN)


def _selected(task: str, count: int, address: int) -> Iterator[int]:
    count = min(count, _MAX_WATCHED)
    data = _memory(task, address, (count + 7) // 8) if address and count else b""
    return (fd for fd in range(min(count, len(data) * 8)) if data[fd // 8] >> fd % 8 & 1)


def _epolled(task: str, fd: int) -> Iterator[int]:
    """``tfd:        0 events:       19 data: ...``, a line for each descriptor that is watched."""
    with open(f"/proc/{task}/fdinfo/{fd}") as file:
        lines = [line.split() for line in file.read(1 << 20).splitlines() if line.startswith("tfd:")]
    return (int(words[1]) for words in lines[:_MAX_WATCHED] if int(words[3], 16) & _IN)

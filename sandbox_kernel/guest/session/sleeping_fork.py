"""Forks this process into a child that sleeps at once, and touches as little of its memory as can be.

``os.fork`` lets the child set its locks and its random numbers right, which copies pages that both could share: a
third of a megabyte or more for each checkpoint, and 1.3 ms of a processor after each cell (1.5 instead of 0.2, with
IPython and pandas loaded); most checkpoints never wake. Here the child does that when it wakes. Until then it runs
next to no Python code (``sleep``, ``tell``) and does not give up the interpreter's lock, which nobody else would take
and give back. So this is for processes without other Python threads: one of those may have asked for the lock. Python
3.8 or later.
"""

from __future__ import annotations

import ctypes
import os
import sys
import warnings

#: The C library, called with the interpreter's lock held.
_libc, _python = ctypes.PyDLL(None, use_errno=True), ctypes.pythonapi
#: References taken before the first cell, because a cell may replace these functions.
_fork, _set_group, _wait_for_signal, _fork_of_os = _libc.fork, _libc.setpgid, _libc.sigwaitinfo, os.fork
_before, _in_parent, _in_child = _python.PyOS_BeforeFork, _python.PyOS_AfterFork_Parent, _python.PyOS_AfterFork_Child
for _function in (_before, _in_parent, _in_child):
    _function.restype = None
_errno = ctypes.get_errno
_receive, _send = _libc.recv, _libc.send
_AT_ONCE, _NO_SIGNAL = 0x40, 0x4000
#: Where messages that nobody reads go.
_WASTE = ctypes.create_string_buffer(1 << 12)
#: Every signal, as ``sigset_t``; and a ``siginfo_t``, of which the numbers below are fields.
_EVERY, _INFO = (ctypes.c_ubyte * 128)(), (ctypes.c_int * 32)()
_libc.sigfillset(_EVERY)
_CODE, _SENDER = 2, 4
#: Whether this Python has what ``alone`` needs, and a lock for all threads.
_KNOWS = hasattr(_python, "PyInterpreterState_Get") and getattr(sys, "_is_gil_enabled", lambda: True)()
if _KNOWS:
    _interpreter, _first, _next = (
        _python.PyInterpreterState_Get,
        _python.PyInterpreterState_ThreadHead,
        _python.PyThreadState_Next,
    )
    for _function in (_interpreter, _first, _next):
        _function.restype = ctypes.c_void_p
    _first.argtypes = _next.argtypes = [ctypes.c_void_p]


def alone() -> bool:
    """Whether no other thread of this process has anything to do with Python. Threads of libraries do not count."""
    return _KNOWS and _next(_first(_interpreter())) is None


def fork() -> int:
    """Fork. Returns the child's pid, and 0 in the child, which calls nothing but ``sleep`` before ``wake_up``.

    The caller has blocked all signals and has just asked ``alone``. Raises ``OSError`` when the kernel refuses.
    """
    _before()
    pid: int = _fork()
    # A process group of its own: signals that a cell sends to its group must not reach the child. Both set it, as
    # shells do: the parent may run a cell before the child has run at all.
    if pid == 0:
        _set_group(0, 0)
        return 0
    if pid > 0:
        _set_group(pid, pid)
    _in_parent()
    if pid < 0:
        number = _errno()
        raise OSError(number, os.strerror(number))
    return pid


def fork_beside_threads() -> int:
    """Fork as Python does, for a process with other threads. Python warns of that; we know, and count the threads."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = _fork_of_os()
    _set_group(pid, pid)
    return pid


def sleep(sender: int, code: int, own: int) -> int:
    """Return the next signal that ``sender`` has sent with ``si_code`` ``code``, or ``own``; discard all others."""
    while True:
        number: int = _wait_for_signal(_EVERY, _INFO)
        if number == own or (number > 0 and _INFO[_SENDER] == sender and _INFO[_CODE] == code):
            return number


def tell(socket: int, frame: bytes) -> bool:
    """Discard what a socket holds, then send one small message; False if that blocks. May come before ``wake_up``."""
    while _receive(socket, _WASTE, len(_WASTE), _AT_ONCE) > 0:
        pass
    return bool(_send(socket, frame, len(frame), _AT_ONCE | _NO_SIGNAL) == len(frame))


def wake_up() -> None:
    """Set right what ``fork`` left to the child; called once, before anything but ``sleep`` and ``tell``."""
    _in_child()

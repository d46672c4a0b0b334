"""Descriptors, and calls of Linux that some builds of Python lack: those of Conda have no ``os.pidfd_open``.

``guest/gate/lockdown.py`` has the same for code inside.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

F_ADD_SEALS, F_GET_SEALS = 1033, 1034
#: Seals of a memory file: against changes of its content and size, and against more seals too.
UNCHANGEABLE, ALL_SEALS = 0b1110, 0b1111
_MFD_CLOEXEC, _MFD_ALLOW_SEALING = 1, 2
_PIDFD_SEND_SIGNAL, _PIDFD_OPEN = 424, 434
_MEMFD_CREATE = {"x86_64": 319, "aarch64": 279}

_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.restype = ctypes.c_long


@contextmanager
def closed_after(fd: int) -> Iterator[int]:
    """Have a descriptor for a block of code, and close it afterwards."""
    try:
        yield fd
    finally:
        os.close(fd)


def pidfd_open(pid: int) -> int:
    """Return a descriptor that means this process only, also when its number is given again."""
    return _call(_PIDFD_OPEN, pid, 0)


def pidfd_send_signal(fd: int, number: int) -> None:
    """Send a signal to the process of such a descriptor."""
    _call(_PIDFD_SEND_SIGNAL, fd, number, 0, 0)


def memfd_create(name: str, *, sealable: bool = False) -> int:
    """Return a new memory file: one that children get, or one that can be sealed."""
    flags = _MFD_CLOEXEC | _MFD_ALLOW_SEALING if sealable else 0
    return _call(_MEMFD_CREATE[os.uname().machine], name.encode(), flags)


def _call(number: int, *arguments: int | bytes) -> int:
    wide = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    answer: int = _syscall(ctypes.c_long(number), *wide)
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return answer

"""Making files as the owner of the folder they go into.

A host that runs as root must not leave root's files in a sandbox's folder, and often cannot: a tmpfs that belongs to
another user namespace answers EOVERFLOW to an owner it does not know. So root takes on the folder's owner for the
moment of making something. It also gives up its right to ignore permissions for that moment.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@contextmanager
def as_owner_of(folder_fd: int) -> Iterator[None]:
    """Within it this *thread* makes files as the owner of ``folder_fd``; nothing changes unless the host is root.

    The file-system identity belongs to the thread, so nothing inside may wait, switch tasks or call back.
    """
    owner = os.fstat(folder_fd)
    if sys.platform != "linux" or os.geteuid() != 0 or (owner.st_uid, owner.st_gid) == (0, os.getegid()):
        yield
        return
    libc = _libc()
    libc.setfsgid(owner.st_gid)
    libc.setfsuid(owner.st_uid)
    try:
        yield
    finally:
        libc.setfsuid(os.geteuid())
        libc.setfsgid(os.getegid())

"""Makes files as the owner of the folder that they go into.

A host that runs as root must not leave files of root in the folder of a sandbox, and often cannot: a tmpfs of another
user namespace answers EOVERFLOW for an owner that it does not know. So root switches to the owner of the folder while
it makes a file. Meanwhile it has no right to ignore permissions.
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
    """Within the block, this *thread* makes files as the owner of ``folder_fd``. Does nothing unless the host is root.

    The file-system identity belongs to the thread, so code in the block must not wait, switch tasks or call back.
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

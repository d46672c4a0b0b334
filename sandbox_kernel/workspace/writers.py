"""Whether somebody can still write to a file of a sandbox that lives.

A file that is mapped changes without a new time: the first write to a page shows, later ones do not. Whoever looks for
changes must know which files are mapped. The processes are not asked, because a process can forbid to be looked into.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import signal
import sys

from sandbox_kernel.workspace.tree.owner import as_owner_of

#: File systems (``statfs``) where a file that is mapped is open: tmpfs, ext2 to ext4, XFS, F2FS. On an overlay a
#: mapping holds a file of the layer beneath.
_TELLING = (0x01021994, 0xEF53, 0x58465342, 0xF2F52010)
_F_SETSIG = 10


def open_for_writing(file: int, *, tells: bool) -> bool:
    """Whether a file is open for writing somewhere, or mapped; ``file`` is our own descriptor, open for reading.

    The kernel grants a read lease on a file that nobody can write to. The lease is given back at once; who opens the
    file in that moment waits for it. True also where nobody can tell (``tells_who_writes``).
    """
    if not tells:
        return True
    try:
        with as_owner_of(file):
            # The kernel would send SIGIO, which ends a program, when somebody opens the file now; this one is ignored.
            fcntl.fcntl(file, _F_SETSIG, signal.SIGURG)
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        return True
    return False


def tells_who_writes(folder: int) -> bool:
    """Whether the answer of ``open_for_writing`` is to be had on the file system of an open folder."""
    if sys.platform != "linux":
        return False
    found = (ctypes.c_long * 64)()
    return _libc().fstatfs(folder, ctypes.byref(found)) == 0 and found[0] in _TELLING


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)

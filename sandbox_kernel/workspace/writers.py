"""Finds out whether a process can still write to a file of a running sandbox.

A mapped file changes without a new modification time: only the first write to each page updates it. The search for
changes must therefore know which files are mapped. It does not inspect processes, because a process can forbid that.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import signal
import sys

from sandbox_kernel.workspace.tree.owner import as_owner_of

#: File systems (magic numbers of ``statfs``) where a mapped file counts as open: tmpfs, ext2 to ext4, XFS, F2FS. On an
#: overlay, a mapping holds the file of the lower layer instead.
_TELLING = (0x01021994, 0xEF53, 0x58465342, 0xF2F52010)
_F_SETSIG = 10


def open_for_writing(file: int, *, tells: bool) -> bool:
    """Return whether any process has a file open for writing or mapped. ``file`` is our descriptor, open for reading.

    The kernel grants a read lease only on a file that no process can write to. The lease is released at once; a process
    that opens the file in that moment waits. Returns True as well where the kernel cannot tell (``tells`` is false).
    """
    if not tells:
        return True
    try:
        with as_owner_of(file):
            # If a process opens the file now, the kernel sends SIGIO, which ends a program; SIGURG is ignored.
            fcntl.fcntl(file, _F_SETSIG, signal.SIGURG)
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        return True
    return False


def tells_who_writes(folder: int) -> bool:
    """Return whether ``open_for_writing`` can tell on the file system of an open folder."""
    if sys.platform != "linux":
        return False
    found = (ctypes.c_long * 64)()
    return _libc().fstatfs(folder, ctypes.byref(found)) == 0 and found[0] in _TELLING


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)

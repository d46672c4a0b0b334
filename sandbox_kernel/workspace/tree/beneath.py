"""Opens folders beneath a descriptor, where no link, race or ``..`` leads out of it, and makes files as their owner.

The kernel does it in one step (``openat2`` with RESOLVE_BENEATH, Linux 5.6). Where the kernel lacks that call or the
filter of a container refuses it, each name is opened on its own without following links, with the same result.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import stat
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from sandbox_kernel.util.linux_calls import closed_after
from sandbox_kernel.workspace.tree.paths import Names

#: Flags to open a folder for listing it.
SCAN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: Flags to open a folder for opening what is in it; works without permission to list it.
PASS = (getattr(os, "O_PATH", 0) or os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

_SYS_OPENAT2 = 437  # the same number on every architecture
_NO_XDEV, _NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x01, 0x02, 0x04, 0x08
_AT_FDCWD = -100


def open_folder(root_fd: int, names: Names, flags: int = SCAN, *, cross_mounts: bool = True) -> int:
    """Return a new descriptor of the folder ``names`` beneath ``root_fd``; the caller closes it.

    Raises OSError: ELOOP when a name is a link, EXDEV at a mount point unless ``cross_mounts``. Walking and removing do
    not cross mounts; a path that a user gave may, since the user granted the mounts.
    """
    if openat2_works():
        resolve = _BENEATH | _NO_SYMLINKS | _NO_MAGICLINKS | (0 if cross_mounts else _NO_XDEV)
        # With O_NOFOLLOW a link would be opened itself; without it, NO_SYMLINKS refuses a link as the last name too.
        return _openat2(root_fd, os.fsencode("/".join(names) or "."), flags & ~os.O_NOFOLLOW, resolve)
    return _step_by_step(root_fd, names, flags, cross_mounts)


@contextmanager
def in_folder(root_fd: int, names: Names, flags: int = PASS, *, cross_mounts: bool = True) -> Iterator[int]:
    """Within the block, have a folder open; see ``open_folder``."""
    with closed_after(open_folder(root_fd, names, flags, cross_mounts=cross_mounts)) as fd:
        yield fd


@functools.cache
def openat2_works() -> bool:
    """Return whether this kernel has ``openat2`` and no syscall filter refuses it (some answer EPERM)."""
    if sys.platform != "linux":
        return False
    try:
        os.close(_openat2(_AT_FDCWD, b"/", PASS, _NO_SYMLINKS))
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EPERM):
            return False
        raise
    return True


@functools.cache
def libc() -> ctypes.CDLL:
    """Return the C library."""
    return ctypes.CDLL(None, use_errno=True)


@functools.cache
def _syscall() -> ctypes._NamedFuncPointer:
    function = ctypes.CDLL(None, use_errno=True).syscall  # a library of its own: argtypes are kept by it
    function.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
    function.restype = ctypes.c_long
    return function


def _openat2(dir_fd: int, path: bytes, flags: int, resolve: int) -> int:
    how = struct.pack("=QQQ", flags, 0, resolve)
    while True:
        result: int = _syscall()(_SYS_OPENAT2, dir_fd, path, how, len(how))
        if result >= 0:
            return result
        number = ctypes.get_errno()
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number), os.fsdecode(path))


def _step_by_step(root_fd: int, names: Names, flags: int, cross_mounts: bool) -> int:
    current = os.open(".", flags if not names else PASS, dir_fd=root_fd)
    try:
        for index, name in enumerate(names, 1):
            following = _open_child(current, name, flags if index == len(names) else PASS)
            os.close(current)
            current = following
        if not cross_mounts and names and mount_of(current) != mount_of(root_fd):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), "/".join(names))
    except BaseException:
        os.close(current)
        raise
    return current


def _open_child(folder: int, name: str, flags: int) -> int:
    try:
        return os.open(name, flags, dir_fd=folder)
    except NotADirectoryError:
        # With O_DIRECTORY a link gives ENOTDIR; callers need ELOOP for a link, even if it became a folder meanwhile.
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
        if stat.S_ISLNK(mode) or stat.S_ISDIR(mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name) from None
        raise


def mount_of(fd: int) -> tuple[int, str]:
    """Return values that tell mounts apart: a bind mount of the same file system differs only in its mount number."""
    number = ""
    # Without /proc (macOS) the device alone decides.
    with contextlib.suppress(FileNotFoundError), open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as info:
        number = next((line for line in info if line.startswith("mnt_id:")), "")
    return os.fstat(fd).st_dev, number


@contextmanager
def as_owner_of(folder_fd: int) -> Iterator[None]:
    """Within the block, this *thread* makes files as the owner of ``folder_fd``. Does nothing unless the host is root.

    A host that runs as root must not leave files of root in the folder of a sandbox, and often cannot: a tmpfs of
    another user namespace answers EOVERFLOW for an owner that it does not know. Meanwhile it has no right to ignore
    permissions. The file-system identity belongs to the thread, so code in the block must not wait, switch tasks or
    call back.
    """
    owner = os.fstat(folder_fd)
    if sys.platform != "linux" or os.geteuid() != 0 or (owner.st_uid, owner.st_gid) == (0, os.getegid()):
        yield
        return
    libc().setfsgid(owner.st_gid)
    libc().setfsuid(owner.st_uid)
    try:
        yield
    finally:
        libc().setfsuid(os.geteuid())
        libc().setfsgid(os.getegid())

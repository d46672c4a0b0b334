"""Open, read, write and remove one file or folder of a hostile work folder without following links.

Every function takes the descriptor of an open folder and a name in it. Where the mode forbids access, it is changed:
the gate runs as the owner of the files.
"""

from __future__ import annotations

import fcntl
import os
import signal
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Tuple

DIR = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


#: File systems on which a mapping keeps the opened file itself open, so that leases show mappings too.
_TELLING = (b"tmpfs", b"ext2", b"ext3", b"ext4", b"xfs", b"f2fs")
_F_SETSIG = 10


def tells_who_writes(root: str) -> bool:
    """Whether ``open_for_writing`` can be trusted on the file system of a folder.

    On an overlay it cannot: there a mapping holds a file of the layer beneath.
    """
    device = os.stat(root).st_dev
    place = f"{os.major(device)}:{os.minor(device)}".encode()
    try:
        with open("/proc/self/mountinfo", "rb") as file:
            for line in file:
                mount, _, system = line.partition(b" - ")
                if mount.split()[2] == place:
                    return system.split()[0] in _TELLING
    except OSError:
        pass
    return False


def open_for_writing(file: int) -> bool:
    """Whether any process has a file open for writing, or mapped; ``file`` is our own descriptor, open for reading.

    The kernel grants a read lease only on a file that no process has open for writing. Unlike a search through
    /proc, a process cannot prevent this test. The lease is returned at once; a process that opens the file in that
    moment waits for that.
    """
    try:
        # If a process opens the file now, the kernel sends SIGIO, which would end us; SIGURG is ignored by default.
        fcntl.fcntl(file, _F_SETSIG, signal.SIGURG)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        return True  # it is open for writing, or the file system has no leases
    return False


def open_folder(fd: int, name: str) -> int:
    """Open a subfolder; if its mode forbids that, change the mode."""
    try:
        return os.open(name, DIR, dir_fd=fd)
    except PermissionError:
        set_mode(fd, name, 0o700)
        return os.open(name, DIR, dir_fd=fd)


def set_mode(fd: int, name: str, mode: int) -> None:
    """Change the mode of a file or folder; if a link has taken its place, the link is not followed."""
    itself = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
    try:
        os.chmod(f"/proc/self/fd/{itself}", mode)
    finally:
        os.close(itself)


def walk(root: int, path: Tuple[str, ...]) -> int:
    """Open a folder by its path below a root, without following links."""
    fd = os.dup(root)
    for name in path:
        inner = open_folder(fd, name)
        os.close(fd)
        fd = inner
    return fd


def open_file(fd: int, name: str) -> int:
    """Open a regular file for reading, even if its mode forbids that."""
    try:
        return os.open(name, _READ, dir_fd=fd)
    except PermissionError:
        mode = stat.S_IMODE(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode)
        set_mode(fd, name, mode | 0o600)
        file = os.open(name, _READ, dir_fd=fd)
        os.fchmod(file, mode)
        return file


def read_file(file: int, most_bytes: int) -> bytes:
    """Read an open file and close it. Of a file larger than ``most_bytes``, returns slightly more than that."""
    parts, size = [], 0
    try:
        while size <= most_bytes:
            part = os.read(file, 1 << 20)
            if not part:
                break
            parts.append(part)
            size += len(part)
    finally:
        os.close(file)
    return b"".join(parts)


def write_file(fd: int, name: str, data: bytes, info: os.stat_result) -> None:
    """Restore content, mode and times of a file; writes in place where the file still exists."""
    try:
        if read_file(open_file(fd, name), len(data)) == data:
            finish(fd, name, info)
            return
        set_mode(fd, name, 0o600)
        file = os.open(name, _WRITE, dir_fd=fd)
    except FileNotFoundError:
        file = os.open(name, _WRITE | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=fd)
    try:
        os.ftruncate(file, 0)
        view = memoryview(data)
        while view:
            view = view[os.write(file, view) :]
    finally:
        os.close(file)
    finish(fd, name, info)


def finish(fd: int, name: str, info: os.stat_result) -> None:
    """Restore mode and times of a file or folder; called last, because writing changes them."""
    set_mode(fd, name, stat.S_IMODE(info.st_mode))
    os.utime(name, ns=(info.st_atime_ns, info.st_mtime_ns), dir_fd=fd, follow_symlinks=False)


def link(root: int, first: Tuple[str, ...], fd: int, name: str) -> None:
    """Restore a hard link to a file that has been restored already."""
    folder = walk(root, first[:-1])
    try:
        try:
            os.unlink(name, dir_fd=fd)
        except FileNotFoundError:
            pass
        os.link(first[-1], name, src_dir_fd=folder, dst_dir_fd=fd, follow_symlinks=False)
    finally:
        os.close(folder)


def remove(root: int, fd: int, name: str) -> None:
    """Remove a file or folder. Subfolders are first moved to the root, so that any depth can be removed."""
    waiting: List[str] = []

    def unlink(folder: int, entry: str) -> None:
        try:
            os.unlink(entry, dir_fd=folder)
        except IsADirectoryError:
            try:
                # Most folders are empty, and there may be 100 000 of them.
                os.rmdir(entry, dir_fd=folder)
                return
            except OSError:
                pass
            moved = f".removed-{os.urandom(8).hex()}"
            # The move changes the folder's "..", so the folder itself must be writable.
            set_mode(folder, entry, 0o700)
            os.rename(entry, moved, src_dir_fd=folder, dst_dir_fd=root)
            waiting.append(moved)

    unlink(fd, name)
    while waiting:
        current = waiting.pop()
        inner = open_folder(root, current)
        try:
            for entry in os.listdir(inner):
                unlink(inner, entry)
        finally:
            os.close(inner)
        os.rmdir(current, dir_fd=root)

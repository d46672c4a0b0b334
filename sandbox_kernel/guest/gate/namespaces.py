"""Creates new namespaces from an unprivileged process, and sets them up as walls.

``template.py`` uses it in the fork that becomes a gate, and calls the functions in the order of this file. Every
failure is an ``OSError`` that names the step; the caller must then end the process.
"""

from __future__ import annotations

import _socket as socket
import ctypes
import fcntl
import os
import struct

from . import lockdown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, List, Tuple


MS_NOSUID, MS_NODEV, MS_NOEXEC, _MS_BIND, _MS_REC = 2, 4, 8, 4096, 16384

_CLONE = {"x86_64": 56, "aarch64": 220}
_NEWNS, _NEWCGROUP, _NEWUTS, _NEWIPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
_NEWUSER, _NEWPID, _NEWNET = 0x10000000, 0x20000000, 0x40000000
_SIGCHLD = 17
_CLOSE_RANGE, _LAST_FD = 436, 0xFFFFFFFF
_ENOSYS = 38
#: The same number on every architecture.
_FSPICK, _FSPICK_CLOEXEC, _AT_FDCWD = 433, 1, -100
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1

# PyDLL keeps the interpreter's lock during a call, so that no other thread runs meanwhile.
_held = ctypes.PyDLL(None, use_errno=True)
_held.syscall.restype = ctypes.c_long
_python = ctypes.pythonapi
for _hook in (_python.PyOS_BeforeFork, _python.PyOS_AfterFork_Parent, _python.PyOS_AfterFork_Child):
    _hook.restype = None


def fork_into_namespaces() -> int:
    """Like ``os.fork``, but the child is the init of new namespaces: user, process, mount, network and the others.

    The child has every capability inside them and none outside. glibc's ``fork`` takes no flags, so this makes the
    system call itself, between the interpreter's hooks for before and after a fork. The caller must have one thread.
    """
    number = _CLONE.get(os.uname().machine)
    if number is None:
        raise OSError(_ENOSYS, f"fork_into_namespaces: no syscall numbers for {os.uname().machine}")
    flags = _NEWUSER | _NEWPID | _NEWNS | _NEWNET | _NEWIPC | _NEWUTS | _SIGCHLD
    if os.path.exists("/proc/self/ns/cgroup"):
        flags |= _NEWCGROUP
    arguments = [ctypes.c_long(value) for value in (number, flags, 0, 0, 0, 0)]
    _python.PyOS_BeforeFork()
    pid: int = _held.syscall(*arguments)
    if pid == 0:
        _python.PyOS_AfterFork_Child()
        return 0
    code = ctypes.get_errno()
    _python.PyOS_AfterFork_Parent()
    if pid < 0:
        raise OSError(code, f"fork_into_namespaces: {os.strerror(code)}")
    return pid


def keep_descriptors(kept: Iterable[int]) -> None:
    """Close all descriptors except these."""
    first = 0
    for fd in sorted(kept):
        _close_range(first, fd - 1)
        first = fd + 1
    _close_range(first, _LAST_FD)


def _close_range(first: int, last: int) -> None:
    if first > last:
        return
    arguments = [ctypes.c_long(value) for value in (_CLOSE_RANGE, first, last, 0)]
    if _held.syscall(*arguments) < 0:
        for name in os.listdir("/proc/self/fd"):
            if first <= int(name) <= last:
                try:
                    os.close(int(name))
                except OSError:
                    pass  # the descriptor of the listing itself


def be_user(uid: int) -> None:
    """Map this user and group of the parent namespace to themselves, and map no others."""
    # Only a dumpable process owns its files in /proc.
    lockdown.set_dumpable(True)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{uid} {uid} 1")):
        write(f"/proc/self/{name}", text)
    lockdown.set_dumpable(False)


def show_again(tree: int, target: str) -> None:
    """Bind a tree at its path again, after a file system was mounted over it; a read-only tree stays read-only."""
    if os.path.isdir(f"/proc/self/fd/{tree}"):
        os.makedirs(target, 0o755, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), 0o755, exist_ok=True)
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
    mount("", target, _MS_BIND | _MS_REC, "", f"/proc/self/fd/{tree}")


def mount(kind: str, target: str, flags: int, options: str, source: str = "") -> None:
    """Mount a new file system of this kind at ``target``, or a source."""
    source = source or kind
    answer = _held.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), options.encode())
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"mount {target}: {os.strerror(code)}")


def bring_up_loopback() -> None:
    """Bring up the loopback interface of the new network namespace."""
    asked = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        fcntl.ioctl(asked.fileno(), _SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", _IFF_UP))
    finally:
        asked.close()


def write(path: str, text: str) -> None:
    """Write text to a file in /proc with a single system call, as the kernel requires."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)
    except OSError as error:
        raise OSError(error.errno, f"write {path}: {error.strerror}") from None


# Mounts a layer over the folder of the host that a program works on: it sees the folder, and changes the layer.
#
# The layer lies in the sized memory file system of the work folder and is mounted over it, so that no path leads to it
# any more; neither does one to the folder of the host. The host gets a descriptor of the layer and reads from it what
# the program changed. Called in a fork of a template that may still mount (``template.py``).

#: The work folder, and where the template's root shows the folder of the host: as in ``jail/walls.py``.
WORK, HERE = "/box", "/here"
UPPER, SCRATCH = "/box/upper", "/box/work"


def mount_layer() -> List[int]:
    """Mount the layer over the work folder and hide the folder of the host.

    Returns a descriptor of the layer, and one of the mount's settings where the kernel gives it: with that the host can
    have the kernel forget which names it has looked up. A program never gets either. Renaming a folder of the host
    needs ``redirect_dir``, which the kernel refuses in a user namespace: programs get EXDEV, which ``mv`` knows.
    """
    mode = os.stat(HERE).st_mode & 0o777
    os.mkdir(UPPER, 0o700)
    os.chmod(UPPER, mode | 0o700)
    os.mkdir(SCRATCH, 0o700)
    try:
        # A folder that is removed and made again is noted down in such an attribute. tmpfs has them since Linux 6.6.
        os.setxattr(UPPER, "user.canary", b"y")
        os.removexattr(UPPER, "user.canary")
    except OSError as error:
        raise OSError(error.errno, f"attributes of files in memory: {error.strerror}") from None
    layer = os.open(UPPER, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    # userxattr: what overlayfs notes down is in attributes that it may set inside a user namespace.
    options = f"lowerdir={HERE},upperdir={UPPER},workdir={SCRATCH},userxattr"
    mount("overlay", WORK, MS_NOSUID | MS_NODEV, options)
    mount("tmpfs", HERE, MS_NOSUID | MS_NODEV, "mode=0555,size=4k")
    settings: int = _held.syscall(_FSPICK, _AT_FDCWD, WORK.encode(), _FSPICK_CLOEXEC)
    return [layer, settings] if settings >= 0 else [layer]


def show_at_own_path(path: str, inside: List[Tuple[int, str]]) -> None:
    """Show the layer at the path of the host's folder too, and again what is mounted inside of that, unless hidden."""
    os.makedirs(path, 0o755, exist_ok=True)  # in /tmp, which is new
    mount("", path, _MS_BIND, "", WORK)
    for tree, target in inside:
        if os.path.exists(target):
            mount("", target, _MS_BIND | _MS_REC, "", f"/proc/self/fd/{tree}")
        os.close(tree)

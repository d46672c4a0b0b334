"""Gives a running jail a folder or file of the host or a listening socket, and takes a folder away again.

A program of its own: joining a user namespace needs a process with one thread. It does one plan and ends; nothing of it
stays. It first copies the mount where the host's mounts are seen (an ordinary user: in a child with namespaces of its
own), then joins the owner of the jail's namespaces, where it has every right, and has none outside. After that it
imports, executes and reads nothing that the jail could have made. Programs in the jail do not see it.

A late folder is shown through overlayfs and is read-only: a jail that began without grants may open unix sockets, and
through a bind it could reach those of the host. Through overlayfs it cannot. A writable one is a bind; only jails whose
filter refuses unix sockets get it (``late_grants.py`` checks). A single file is a bind too: it is a regular file, which
is checked when its mount is copied, so no socket can take its place.

Its arguments are PLAN-FD REPLY-FD; ``jail/late_grants.py`` writes the plan and reads the reply.
"""

from __future__ import annotations

import array
import ctypes
import fcntl
import marshal
import os
import socket
import stat
import sys

from . import root_stage as low
from .root_stage import call, check, libc

_FSOPEN, _FSCONFIG, _FSMOUNT, _OPENAT2 = 430, 431, 432, 437
_RDONLY, _NOSUID, _NODEV, _MS_PRIVATE = 1, 2, 4, 1 << 18
_NEWNS, _NEWUSER, _NEWNET, _NS_GET_USERNS, _MNT_DETACH = 0x20000, 0x10000000, 0x40000000, 0xB701, 2
_SET_FLAG, _SET_STRING, _SET_FD, _CREATE, _NO_SYMLINKS = 0, 1, 5, 6, 4
_UMOUNT_NOFOLLOW = 8


def main() -> None:
    """Carry out the plan, and answer ``+`` (with a descriptor, if there is one) or ``-`` and what went wrong."""
    reply = socket.socket(fileno=int(sys.argv[2]))
    handed: list[int] = []
    try:
        with open(int(sys.argv[1]), "rb") as file:
            plan = marshal.load(file)  # noqa: S302 - written by the host that started us
        handed = _ACTS[plan["act"]](plan)
        answer = b"+"
    except OSError as error:
        answer = b"-" + f"{error.errno or 0}|{error}".encode("utf-8", "replace")[:2000]
    reply.sendmsg([answer], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", handed))] if handed else [])


def _mount(plan: dict[str, object]) -> list[int]:
    writable = bool(plan["writable"])
    tree = _cloned(str(plan["source"]), plan["uid"], 0 if writable else _RDONLY)
    found = os.fstat(tree)
    kind = found.st_mode
    if plan["identity"] not in (None, (found.st_dev, found.st_ino)):
        raise OSError(f"{plan['source']} was exchanged meanwhile")
    if not (stat.S_ISDIR(kind) or stat.S_ISREG(kind)):
        raise OSError(f"{plan['source']} is neither a folder nor a regular file any more")
    is_file = stat.S_ISREG(kind)
    _enter(plan, "mnt", _NEWNS)
    target = str(plan["target"])
    if plan["shelf"] is not None:
        _make_shelf(str(plan["shelf"]), plan["covered"])
        at = _on_shelf(str(plan["shelf"]), target, is_file)
    else:
        at = _made(target, is_file)
    if writable or is_file:
        _move(tree, at)
        return []
    # A layer must be mounted somewhere that we have rights over: the copy is attached, used, and taken off again.
    _move(tree, at)
    memory = _fresh(b"tmpfs", _NOSUID | _NODEV, (_SET_STRING, b"size", b"64k", 0))
    for part in ("upper", "work"):
        os.mkdir(part, 0o755, dir_fd=memory)
    upper, work = (os.open(part, os.O_RDONLY | os.O_DIRECTORY, dir_fd=memory) for part in ("upper", "work"))
    made = _fresh(
        b"overlay", _NOSUID | _NODEV | _RDONLY, (_SET_FD, b"lowerdir+", None, _place(target)),
        (_SET_FD, b"upperdir", None, upper), (_SET_FD, b"workdir", None, work), (_SET_FLAG, b"userxattr", None, 0),
    )  # fmt: skip
    check("take the copy off", libc.umount2(target.encode(), _MNT_DETACH))
    _move(made, at)
    return []


def _unmount(plan: dict[str, object]) -> list[int]:
    """Succeeds only when nothing in the jail holds a file, folder or mapping of it."""
    _enter(plan, "mnt", _NEWNS)
    folder, name = os.path.split(str(plan["target"]))
    os.fchdir(_place(folder))
    check("unmount", libc.umount2(name.encode(), _UMOUNT_NOFOLLOW))
    return []


def _listen(plan: dict[str, object]) -> list[int]:
    _enter(plan, "net", _NEWNET)
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.bind(("127.0.0.1", 0))
    made.listen(64)
    return [made.detach()]


_ACTS = {"mount": _mount, "unmount": _unmount, "listen": _listen}


def _cloned(source: str, uid: object, flags: int) -> int:
    """Return a private copy of a mount, without those below it; root's files belong to the jail's user there."""
    if uid is not None:
        return _clone(source, low.id_map(int(str(uid))), flags)
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        try:
            check("unshare", libc.unshare(_NEWUSER | _NEWNS))
            fds = array.array("i", [_clone(source, -1, flags)])
            theirs.sendmsg([b"+"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
        except OSError as error:
            theirs.send(b"-" + str(error).encode("utf-8", "replace")[:1000])
        os._exit(0)
    theirs.close()
    data, descriptors, _, _ = socket.recv_fds(ours, 2000, 1)
    os.waitpid(child, 0)
    if data[:1] != b"+" or not descriptors:
        raise OSError(data[1:].decode("utf-8", "replace") or "the folder could not be copied")
    return descriptors[0]


def _clone(source: str, map_fd: int, flags: int) -> int:
    tree = call(f"open {source}", low.OPEN_TREE, low.AT_FDCWD, os.fsencode(source), 1 | low.CLOEXEC)
    flags |= _NOSUID | _NODEV | (low.ATTR_IDMAP if map_fd >= 0 else 0)
    # Private: else taking it off here would take the host's own mount off.
    attributes = (ctypes.c_uint64 * 4)(flags, 0, _MS_PRIVATE, max(map_fd, 0))
    call(f"copy {source}", low.MOUNT_SETATTR, tree, b"", low.EMPTY_PATH, attributes, 32)
    return tree


def _enter(plan: dict[str, object], name: str, kind: int) -> None:
    """Join a namespace of the jail as its owner. Whoever made a user namespace has every right in it and below."""
    if plan["uid"] is not None:
        uid = int(str(plan["uid"]))
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    space = os.open(f"/proc/{plan['pid']}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)
    owner = check("ask for the owner", fcntl.ioctl(space, _NS_GET_USERNS))
    check("join the owner", libc.setns(owner, _NEWUSER))
    check("join the jail", libc.setns(space, kind))


def _make_shelf(shelf: str, covered: object) -> None:
    """Put a small file system over an empty folder, at the first mount in it, with what the jail has there already."""
    root = _place(shelf)
    if os.fstat(root).st_dev != os.stat("/").st_dev:
        return
    assert isinstance(covered, tuple)
    copies = [
        (path, call(f"copy {path}", low.OPEN_TREE, low.AT_FDCWD, os.fsencode(path), 1 | low.RECURSIVE | low.CLOEXEC))
        for path in covered
    ]
    _move(
        _fresh(b"tmpfs", _NOSUID | _NODEV, (_SET_STRING, b"size", b"64k", 0), (_SET_STRING, b"mode", b"0755", 0)), root
    )
    for path, copy in copies:
        _move(copy, _made(path, not stat.S_ISDIR(os.fstat(copy).st_mode)))


def _on_shelf(shelf: str, target: str, is_file: bool) -> int:
    """Make the place for a mount on the small file system, which can be written to only meanwhile."""
    root = _place(shelf)
    for flags in ((0, _RDONLY), (_RDONLY, 0)):
        attributes = (ctypes.c_uint64 * 4)(*flags, 0, 0)
        call("make room for a mount", low.MOUNT_SETATTR, root, b"", low.EMPTY_PATH, attributes, 32)
        if flags[1]:
            _made(target, is_file)
    return _place(target)


def _made(path: str, is_file: bool) -> int:
    """Open a folder or file, made if it is not there. What is on the way, programs may have made: no link counts."""
    names = path.strip("/").split("/")
    for depth in range(1, len(names)):
        above = _place("/" + "/".join(names[:depth]))
        try:
            if is_file and depth == len(names) - 1:
                os.close(os.open(names[depth], os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644, dir_fd=above))
            else:
                os.mkdir(names[depth], 0o755, dir_fd=above)
        except FileExistsError:
            continue
        finally:
            os.close(above)
    return _place(path)


def _place(path: str) -> int:
    how = (ctypes.c_uint64 * 3)(os.O_PATH | os.O_CLOEXEC, 0, _NO_SYMLINKS)
    return call(f"open {path}", _OPENAT2, low.AT_FDCWD, path.encode(), how, 24)


def _fresh(kind: bytes, attributes: int, *options: tuple[int, bytes | None, bytes | None, int]) -> int:
    context = call("open a file system", _FSOPEN, kind, 1)
    for command, key, value, aux in (*options, (_CREATE, None, None, 0)):
        call(f"set up {kind.decode()}", _FSCONFIG, context, command, key, value, aux)
    return call(f"mount {kind.decode()}", _FSMOUNT, context, 1, attributes)


def _move(mount: int, target: int) -> None:
    call("attach", low.MOVE_MOUNT, mount, b"", target, b"", 4 | 0x40)

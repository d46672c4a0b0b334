"""Prepares bubblewrap for a host that runs as root.

If real root starts bubblewrap, the program keeps kuid 0 and can write the host's sysctls. So root first becomes an
ordinary, otherwise unused uid. That uid cannot look below a 0700 home, where interpreters often are, and cannot write
root's own files, which the policy may allow. So this program runs as root in its own mount namespace and binds each
source to a path that the new uid can reach, with root's ids mapped to the new uid. Allowed files then behave as they do
for an ordinary user with their own files. Then it becomes that uid for good and executes bubblewrap.

It is a program of its own. ``jail/root_user.py`` makes the plan and decides when one is needed. It imports
little, because it delays the start of a sandbox.
"""

from __future__ import annotations

import ctypes
import marshal
import os
import stat
import sys

#: Where the stage shows the sources: a memory file system in its own mount namespace. As in ``jail/root_user.py``.
PLACE = "/run"

_MS_NOSUID, _MS_NODEV, _MS_REC, _MS_SLAVE = 2, 4, 16384, 1 << 19
_CLONE_NEWNS, _CLONE_NEWUSER = 0x20000, 0x10000000
OPEN_TREE, MOVE_MOUNT, MOUNT_SETATTR = 428, 429, 442  # the same numbers on every architecture
AT_FDCWD, EMPTY_PATH, RECURSIVE, CLONE, CLOEXEC, FROM_EMPTY = -100, 0x1000, 0x8000, 1, 0o2000000, 4
ATTR_IDMAP = 0x00100000
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _SIGKILL = 1, 4, 9


libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def main() -> None:
    """Carry out the plan. A failure is one line on stderr and exit code 1, as with bubblewrap."""
    try:
        plan_fd = int(sys.argv[1])
        with open(plan_fd, "rb") as file:
            plan = marshal.load(file)  # noqa: S302 - written by the host that started us
        _stage(plan["uid"], plan["binds"], plan["identities"])
        os.execve(plan["argv"][0], [*plan["argv"], *sys.argv[2:]], {})
    except OSError as error:
        sys.stderr.write(f"root stage: {error}\n")
        sys.exit(1)


def _stage(uid: int, binds: list[list[object]], identities: dict[object, object]) -> None:
    check("unshare", libc.unshare(_CLONE_NEWNS))
    check("make mounts private", libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_SLAVE), None))
    flags = ctypes.c_ulong(_MS_NOSUID | _MS_NODEV)
    trees = []
    for source, target, mapped, with_mounts in binds:
        # Opened before /run is covered, because a source may be there.
        how = CLONE | CLOEXEC | (RECURSIVE if with_mounts else 0)
        tree = call(f"open {source}", OPEN_TREE, AT_FDCWD, os.fsencode(str(source)), how)
        found = os.fstat(tree)
        if identities.get(source) not in (None, (found.st_dev, found.st_ino)):
            raise OSError(f"{source} is not what the policy allowed: it was exchanged meanwhile")
        trees.append((tree, str(source), str(target), bool(mapped)))
    check("mount stage", libc.mount(b"tmpfs", PLACE.encode(), b"tmpfs", flags, b"mode=0755"))
    namespace = id_map(uid) if any(mapped for *_, mapped in trees) else -1
    for tree, source, target, mapped in trees:
        if stat.S_ISDIR(os.stat(source).st_mode if os.path.exists(source) else os.fstat(tree).st_mode):
            os.mkdir(target, 0o755)
        else:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
        if mapped:
            attributes = (ctypes.c_uint64 * 4)(ATTR_IDMAP, 0, 0, namespace)
            call(f"map ids of {source}", MOUNT_SETATTR, tree, b"", EMPTY_PATH | RECURSIVE, attributes, 32)
        call(f"show {source}", MOVE_MOUNT, tree, b"", AT_FDCWD, target.encode(), FROM_EMPTY)
        os.close(tree)
    if namespace >= 0:
        os.close(namespace)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    # A change of uid clears these two settings: die with the host, and let bubblewrap write its own id maps.
    libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL)
    libc.prctl(_PR_SET_DUMPABLE, 1)
    os.chdir("/")


def call(what: str, number: int, *given: object) -> int:
    """Make a system call. Raises ``OSError`` that says what failed."""
    held = [ctypes.c_long(value) if isinstance(value, int) else value for value in given]
    return check(what, libc.syscall(ctypes.c_long(number), *held))


def check(what: str, answer: int) -> int:
    """Return the answer of a system call. Raises ``OSError`` that says what failed."""
    if answer < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return answer


def id_map(uid: int) -> int:
    """Return a descriptor of a user namespace that maps root's files to ``uid`` and leaves all others as they are."""
    ready_read, ready_write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ready_read)
        status = libc.unshare(_CLONE_NEWUSER)
        os.write(ready_write, b"x" if status == 0 else b"!")
        libc.pause()
        os._exit(0)
    os.close(ready_write)
    try:
        if os.read(ready_read, 1) != b"x":
            raise OSError("no user namespace for the id map could be made")
        for name in ("uid_map", "gid_map"):
            with open(f"/proc/{child}/{name}", "w") as file:
                file.write(f"0 {uid} 1\n1 1 {uid - 1}\n")
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(ready_read)
        os.kill(child, _SIGKILL)
        os.waitpid(child, 0)

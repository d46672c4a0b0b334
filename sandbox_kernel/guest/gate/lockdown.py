"""Builds the walls around the calling process. Runs inside: standard library only.

Each function takes rights away from the process for good: they stay lost over ``exec`` and in all children. They are
called in the order of this file, because each may need a right that the next one takes; the syscall filter comes last,
because it may refuse the calls of the others. Every failure is an ``OSError`` that names the step; the caller must then
end the process and never go on without the wall.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # typing and collections.abc would cost more time than all the rest of this module
if TYPE_CHECKING:
    import ctypes
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any


_NUMBERS = {
    "x86_64": {"capset": 126, "seccomp": 317, "memfd_create": 319},
    "aarch64": {"capset": 91, "seccomp": 277, "memfd_create": 279},
}
#: System calls that have the same number on all architectures.
_SAME_NUMBERS = {
    "pidfd_send_signal": 424, "pidfd_open": 434, "landlock_create": 444, "landlock_add": 445, "landlock_restrict": 446,
}  # fmt: skip
_PR_SET_PDEATHSIG, _PR_GET_DUMPABLE, _PR_SET_DUMPABLE, _PR_SET_KEEPCAPS = 1, 3, 4, 8
_PR_CAPBSET_READ, _PR_CAPBSET_DROP, _PR_GET_SECUREBITS, _PR_SET_SECUREBITS = 23, 24, 27, 28
#: SECBIT_NO_SETUID_FIXUP and its lock: a change of user keeps the capabilities, and ``access`` honours them too.
_SAME_CAPABILITIES = 0b1100
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS, _PR_GET_NO_NEW_PRIVS = 36, 38, 39
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 2, 4
_CAPABILITY_VERSION_3 = 0x20080522
_SECCOMP_SET_MODE_FILTER, _SECCOMP_FILTER_FLAG_TSYNC, _SECCOMP_FILTER_FLAG_NEW_LISTENER = 1, 1, 8
_LANDLOCK_RULE_PATH_BENEATH = 1
#: Rights that only a directory can have; the kernel refuses a rule that gives them to a file.
_DIRECTORY_RIGHTS = 0x3FF8
_EPERM, _ESRCH, _EBUSY, _EINVAL, _ENOSYS = 1, 3, 16, 22, 38
_CLONE_THREAD = 0x10000


class _Late:
    """Imports ``ctypes`` at first use: that takes 6 ms, where an interpreter starts in 12 (``-I -S``)."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> object:
        load()
        return getattr(globals()[self._name], name)


if TYPE_CHECKING:
    _libc = ctypes.CDLL(None)
else:
    ctypes, _libc = _Late("ctypes"), _Late("_libc")


def load() -> None:
    """Import ``ctypes`` now. A process that forks many children calls this once, so that they need not."""
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    # ctypes forgets a type of array with its last user, and making one takes 0.2 ms in a fork: these are kept.
    arrays = (ctypes.c_uint32 * 2, ctypes.c_uint32 * 6, ctypes.c_uint64 * 2)
    globals().update(ctypes=ctypes, _libc=library, _arrays=arrays)


def set_rlimits(limits: Mapping[str, int | tuple[int, int]]) -> None:
    """Set limits by name, as ``{"NOFILE": 256, "CPU": (2, 3)}`` (soft, hard), as far as the hard limits allow."""
    import resource

    for name, value in limits.items():
        which = getattr(resource, f"RLIMIT_{name}", None)
        if which is None:
            raise OSError(_EINVAL, f"set_rlimits: there is no limit {name!r}")
        asked = (value, value) if isinstance(value, int) else (value[0], value[1])
        most = resource.getrlimit(which)[1]
        soft, hard = (most if limit < 0 or 0 <= most < limit else limit for limit in asked)
        try:
            resource.setrlimit(which, (soft, hard))
        except (OSError, ValueError, OverflowError) as error:
            raise OSError(getattr(error, "errno", None) or _EINVAL, f"set_rlimits {name}={asked}: {error}") from None


def set_pdeathsig(signal_number: int = 9, parent: int | None = None) -> None:
    """Make the kernel signal this process when the thread that started it, of the process ``parent``, ends."""
    _prctl("set_pdeathsig", _PR_SET_PDEATHSIG, signal_number)
    if parent is not None and os.getppid() != parent:
        raise OSError(_ESRCH, f"set_pdeathsig: parent {parent} is gone, now it is {os.getppid()}")


def set_subreaper() -> None:
    """Become the parent of orphaned descendants, so that this process can find and end them."""
    _prctl("set_subreaper", _PR_SET_CHILD_SUBREAPER, 1)


def no_new_privs() -> None:
    """Make ``exec`` never give more rights than this process has: set-uid bits and file capabilities are ignored."""
    require_single_thread("no_new_privs")
    _prctl("no_new_privs", _PR_SET_NO_NEW_PRIVS, 1)


def become_user(uid: int, keep: Sequence[int] = ()) -> None:
    """Change from root to this user for good, with the capabilities in ``keep`` and no others.

    ``access`` is made to honour the kept capabilities, as ``open`` does: linkers call it before they use a file.
    Without CAP_SETPCAP that is not possible, and ``landlock_weaknesses`` reports it.
    """
    _empty_bounding_set("become_user", keep)
    if keep:
        bits = _libc.prctl(_PR_GET_SECUREBITS, *_zeros(4))
        if bits < 0 or _libc.prctl(_PR_SET_SECUREBITS, ctypes.c_ulong(bits | _SAME_CAPABILITIES), *_zeros(3)) < 0:
            _prctl("become_user: keep", _PR_SET_KEEPCAPS, 1)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    drop_capabilities(keep)


def drop_capabilities(keep: Sequence[int] = ()) -> None:
    """Give up all capabilities but ``keep``, which survive ``exec``, and every way to get more, also as root.

    Emptying the bounding set takes CAP_SETPCAP. A caller without it must have called ``no_new_privs`` or emptied the
    set before; either makes the set meaningless.
    """
    require_single_thread("drop_capabilities")
    _prctl("drop_capabilities: ambient", _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    _empty_bounding_set("drop_capabilities", keep)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    low = sum(1 << capability for capability in keep)
    # Effective, permitted and inheritable, for the first 32 capabilities and then for the rest.
    _syscall("drop_capabilities", "capset", header, (ctypes.c_uint32 * 6)(low, low, low, 0, 0, 0))
    for capability in keep:
        _prctl("drop_capabilities: keep", _PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, capability)


def _empty_bounding_set(step: str, keep: Sequence[int]) -> None:
    capability, zeros = 0, tuple(_zeros(3))
    if not keep:
        # One call for each capability, until the kernel knows no more or refuses.
        while _libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(capability), *zeros) >= 0:
            capability += 1
    while (held := _libc.prctl(_PR_CAPBSET_READ, ctypes.c_ulong(capability), *_zeros(3))) >= 0:
        dropped = capability in keep or not held
        if not dropped and _libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(capability), *_zeros(3)) < 0:
            if _libc.prctl(_PR_GET_NO_NEW_PRIVS, *_zeros(4)) != 1:
                raise OSError(_EPERM, f"{step}: bounding set keeps {capability}; call no_new_privs first")
            break
        capability += 1


def landlock_restrict(plan: Mapping[str, Any]) -> None:
    """Restrict this process to the files and peers of a ``LandlockPlan``; ``OSError`` for a path of another file."""
    require_single_thread("landlock_restrict")
    handled = [plan[name] for name in ("handled_fs", "handled_net", "scoped")]
    # Older kernels accept a longer structure if the fields that they do not know are zero.
    attributes = (ctypes.c_uint64 * 3)(*handled)
    ruleset = _syscall("landlock_restrict: ruleset", "landlock_create", attributes, ctypes.sizeof(attributes), 0)
    try:
        for path, access in plan["paths"]:
            _allow_path(ruleset, path, access, plan["identities"].get(path))
        _syscall("landlock_restrict", "landlock_restrict", ruleset, 0)
    finally:
        os.close(ruleset)


def set_dumpable(flag: bool) -> None:
    """Set whether other processes of this user may read this process and it may dump core; ``exec`` resets it."""
    _prctl("set_dumpable", _PR_SET_DUMPABLE, int(flag))


def is_dumpable() -> bool:
    """Whether other processes of this user may read this process."""
    return _prctl("is_dumpable", _PR_GET_DUMPABLE, 0) == 1


def pidfd_open(pid: int) -> int:
    """Return a pidfd of a process; raises ``OSError`` when there is none. Some builds of Python lack these calls."""
    return _syscall("pidfd_open", "pidfd_open", pid, 0)


def pidfd_send_signal(fd: int, number: int) -> None:
    """Send a signal to the process of a pidfd; raises ``OSError`` when it is gone."""
    _syscall("pidfd_send_signal", "pidfd_send_signal", fd, number, 0, 0)


def memfd_create(name: str, flags: int) -> int:
    """Return a new memory file."""
    return _syscall("memfd_create", "memfd_create", ctypes.create_string_buffer(name.encode()), flags)


def load_seccomp(program: bytes, *, listener: bool = False) -> int:
    """Load a seccomp filter for all threads of this process. Filters add up; the strictest answer counts.

    With ``listener``, returns a descriptor at which another process decides the calls that the filter leaves open;
    -1 where the kernel gives none, and then these calls fail.
    """
    count, rest = divmod(len(program), 8)
    if not isinstance(program, bytes) or rest or not 0 < count <= 4096:
        raise OSError(_EINVAL, f"load_seccomp: {len(program)} bytes; a filter has 1 to 4096 records of 8 bytes")
    code = ctypes.create_string_buffer(program, len(program))
    # struct sock_fprog: a 16-bit count, padding, a pointer.
    fprog = (ctypes.c_uint64 * 2)(count, ctypes.addressof(code))
    mode, flags = _SECCOMP_SET_MODE_FILTER, _SECCOMP_FILTER_FLAG_TSYNC
    if listener:
        require_single_thread("load_seccomp")
        try:
            return _syscall("load_seccomp", "seccomp", mode, _SECCOMP_FILTER_FLAG_NEW_LISTENER, fprog)
        except OSError:
            pass  # another filter has a listener already, or the kernel is older than 5.5
    stubborn = _syscall("load_seccomp", "seccomp", mode, flags, fprog)
    if stubborn:
        raise OSError(_EBUSY, f"load_seccomp: thread {stubborn} has a filter of its own")
    return -1


def require_single_thread(step: str) -> None:
    """Raise ``OSError`` if this process has more than one thread: these walls would hold only one of them."""
    try:
        threads = len(os.listdir("/proc/self/task"))
    except OSError:
        # Without /proc: unshare(CLONE_THREAD) fails in a process with several threads and does nothing in one with one.
        ctypes.set_errno(0)
        if _libc.unshare(_CLONE_THREAD) == 0:
            return
        if ctypes.get_errno() != _EINVAL:
            raise OSError(_EBUSY, f"{step}: cannot tell whether other threads run; mount /proc") from None
        threads = 2
    if threads > 1:
        raise OSError(_EBUSY, f"{step}: {threads} threads run; lock down before any is started")


def _allow_path(ruleset: int, path: str, access: int, identity: object) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        raise OSError(error.errno, f"landlock_restrict: path {path!r}: {error.strerror}") from None
    try:
        found = os.fstat(fd)
        if identity not in (None, (found.st_dev, found.st_ino)):
            raise OSError(_EPERM, f"landlock_restrict: path {path!r} was exchanged meanwhile")
        if found.st_mode & 0o170000 != 0o040000:
            access &= ~_DIRECTORY_RIGHTS
        # struct landlock_path_beneath_attr is packed: 64-bit access, then a 32-bit descriptor.
        rule = (ctypes.c_uint32 * 3)(access & 0xFFFFFFFF, access >> 32, fd)
        what = f"landlock_restrict: path {path!r}"
        _syscall(what, "landlock_add", ruleset, _LANDLOCK_RULE_PATH_BENEATH, rule, 0)
    finally:
        os.close(fd)


def _zeros(count: int) -> Iterable[ctypes.c_ulong]:
    return (ctypes.c_ulong(0) for _ in range(count))


def _prctl(step: str, option: int, value: int, more: int = 0) -> int:
    if isinstance(_libc, _Late):
        quick = _quick_prctl(option, value, more)
        if quick >= 0:
            return quick
    answer: int = _libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(more), *_zeros(2))
    if answer < 0:
        raise _failure(step)
    return answer


def _quick_prctl(option: int, value: int, more: int) -> int:
    """Call ``prctl`` through ``_ctypes`` alone, which is faster to import; negative when that fails for any reason."""
    try:
        import _ctypes

        address = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]
        answer: int = _ctypes.call_cdeclfunction(address, (option, value, more, 0, 0))
    except (ImportError, AttributeError, OSError, TypeError):
        return -1
    return answer


def _syscall(
    step: str,
    name: str,
    *arguments: int | ctypes.Array[ctypes.c_uint32] | ctypes.Array[ctypes.c_uint64] | ctypes.Array[ctypes.c_char],
) -> int:
    number = _SAME_NUMBERS.get(name) or _NUMBERS.get(os.uname().machine, {}).get(name)
    if number is None:
        raise OSError(_ENOSYS, f"{step}: no syscall numbers for {os.uname().machine}")
    wide = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    answer: int = _libc.syscall(ctypes.c_long(number), *wide)
    if answer < 0:
        raise _failure(step)
    return answer


def _failure(step: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, f"{step}: {os.strerror(number)}")


# Limits, in the sandbox's own user namespace, resources that the kernel counts for each user.
#
# To the kernel all sandboxes of a user are that user, so one of them could use up the user's whole quota: then file
# watches of the host's own programs would fail. A user namespace can have lower limits of its own. Setting them takes
# capabilities in it, so the gate does it before it gives these up.
#
# Resources that namespaces do not divide are limited with ``setrlimit`` (``languages/recipe.py``) or refused
# (``jail/rules/seccomp.py``).

#: Files in /proc/sys/user and their values. A user usually has 128 inotify instances and 8192 watches or more; the
#: syscall filter refuses the calls behind the others.
SHARES = {
    "max_inotify_instances": 16,
    "max_inotify_watches": 1024,
    "max_fanotify_groups": 0,
    "max_fanotify_marks": 0,
    "max_user_namespaces": 0,
}
_CAP_SETPCAP, _CAP_SYS_RESOURCE = 8, 24


def take_shares() -> None:
    """Set the limits; ``/proc`` must belong to our own namespaces. Raises ``OSError`` when one cannot be set."""
    for name, most in SHARES.items():
        path = f"/proc/sys/user/{name}"
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # an older kernel does not have this limit
        try:
            os.write(fd, str(most).encode())
        finally:
            os.close(fd)


def give_up_rights() -> None:
    """Give up the two capabilities that bubblewrap gave the gate for ``take_shares``, and every way to get more."""
    import _ctypes

    library = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]
    prctl, capset = _ctypes.dlsym(library, "prctl"), _ctypes.dlsym(library, "capset")
    header = _CAPABILITY_VERSION_3.to_bytes(4, sys.byteorder) + bytes(4)
    calls = [(prctl, (_PR_CAPBSET_DROP, capability, 0, 0, 0)) for capability in (_CAP_SYS_RESOURCE, _CAP_SETPCAP)]
    # Effective, permitted and inheritable, for the first 32 capabilities and then for the rest; clears ambient ones
    # too.
    for function, arguments in (*calls, (capset, (header, bytes(24)))):
        if _ctypes.call_cdeclfunction(function, arguments) != 0:
            raise OSError("the gate could not give up its capabilities")

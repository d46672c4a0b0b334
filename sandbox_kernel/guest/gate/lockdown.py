"""Builds the walls around the calling process. Runs inside: standard library only, imported or started by path.

Each function takes rights away from the process for good: they stay lost over ``exec`` and in all children. The
functions are called in the order of this file (``lock_down`` does that), because each may need a right that the next
one takes; the syscall filter comes last, because it may refuse the calls of the others. Every failure is an ``OSError``
that names the step; the caller must then end the process and never go on without the wall.

As a program, with the arguments SPEC_FD STATUS_FD COMMAND [ARG ...], it reads a spec from one descriptor, locks itself
down and executes the command. If the status descriptor is closed and empty, the command runs; otherwise it holds one
line that says which step failed, and the exit code is 126. The spec is in ``marshal`` format: reading JSON would double
the start time.
"""

from __future__ import annotations

import marshal
import os
import sys

TYPE_CHECKING = False  # typing and collections.abc would cost more time than all the rest of this module
if TYPE_CHECKING:
    import ctypes
    from collections.abc import Iterable, Mapping, Sequence

_NUMBERS = {
    "x86_64": {"capset": 126, "seccomp": 317},
    "aarch64": {"capset": 91, "seccomp": 277},
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
_LANDLOCK_RULE_PATH_BENEATH, _LANDLOCK_RULE_NET_PORT = 1, 2
#: Rights that only a directory can have; the kernel refuses a rule that gives them to a file.
_DIRECTORY_RIGHTS = 0x3FF8
_EPERM, _ESRCH, _EBUSY, _EINVAL, _ENOSYS = 1, 3, 16, 22, 38
_CLONE_THREAD = 0x10000
_LAST_SIGNAL = 64
_SETUP_FAILED = 126


class _Late:
    """Imports ``ctypes`` at first use: the import takes half as long as the start of an interpreter."""

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
    """Set resource limits by name: ``{"NOFILE": 256, "CPU": (2, 3)}`` (soft, hard).

    A value above the present hard limit, or -1 (as much as possible), becomes the present hard limit.
    """
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
    """Make the kernel signal this process when the thread that started it ends.

    Raises ``OSError`` when ``parent`` is given and is not our parent any more.
    """
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


def landlock_restrict(plan: Mapping[str, object]) -> None:
    """Restrict this process to the files, ports and peers of a plan (``LandlockPlan.to_dict``).

    Raises ``OSError`` when a path of the plan does not exist, or is another file than the plan says.
    """
    require_single_thread("landlock_restrict")
    identities = _mapping(plan.get("identities") or {}, "identities")
    handled = [_number(plan, name) for name in ("handled_fs", "handled_net", "scoped")]
    # Older kernels accept a longer structure if the fields that they do not know are zero.
    attributes = (ctypes.c_uint64 * 3)(*handled)
    ruleset = _syscall("landlock_restrict: ruleset", "landlock_create", attributes, ctypes.sizeof(attributes), 0)
    try:
        for path, access in _pairs(plan, "paths"):
            _allow_path(ruleset, path, access, identities.get(path))
        for port, access in _pairs(plan, "ports"):
            rule = (ctypes.c_uint64 * 2)(access, int(port))
            what = f"landlock_restrict: port {port}"
            _syscall(what, "landlock_add", ruleset, _LANDLOCK_RULE_NET_PORT, rule, 0)
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
    """Return a pidfd of a process, for Python versions without ``os.pidfd_open``."""
    return _syscall("pidfd_open", "pidfd_open", pid, 0)


def pidfd_send_signal(fd: int, number: int) -> None:
    """Send a signal to the process of a pidfd, for Python versions without ``signal.pidfd_send_signal``."""
    _syscall("pidfd_send_signal", "pidfd_send_signal", fd, number, 0, 0)


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


def lock_down(spec: Mapping[str, object]) -> None:
    """Apply a whole spec in the right order.

    Keys, all optional: ``rlimits`` (name to limit), ``parent`` (die with this process), ``subreaper`` (bool),
    ``landlock`` (a plan), ``dumpable`` (bool), ``seccomp`` (filters, applied in this order). New privileges and
    capabilities are always given up. An unknown key is an error, so that a misspelt wall is not left out.
    """
    unknown = set(spec) - {"rlimits", "parent", "subreaper", "landlock", "dumpable", "seccomp"}
    if unknown:
        raise OSError(_EINVAL, f"lock_down: unknown key {min(unknown)!r}")
    rlimits, parent, landlock = spec.get("rlimits"), spec.get("parent"), spec.get("landlock")
    if rlimits is not None:
        set_rlimits(_mapping(rlimits, "rlimits"))  # type: ignore[arg-type]
    if parent is not None:
        set_pdeathsig(parent=_number(spec, "parent"))
    if spec.get("subreaper"):
        set_subreaper()
    no_new_privs()
    drop_capabilities()
    if landlock is not None:
        landlock_restrict(_mapping(landlock, "landlock"))
    if "dumpable" in spec:
        set_dumpable(bool(spec["dumpable"]))
    filters = spec.get("seccomp") or ()
    if not isinstance(filters, (list, tuple)):
        raise OSError(_EINVAL, "lock_down: seccomp must be a list")
    for program in filters:
        load_seccomp(program)


def main(argv: list[str]) -> int:
    """Read the spec, lock down, execute the command; returns only when that failed.

    The command gets exactly the spec's ``env``: Python may have added to its own (LC_CTYPE). All signals are set to
    their defaults: those that Python ignores (SIGPIPE, SIGXFSZ) and those that a shell ignores in the background.
    """
    spec_fd, status_fd, command = int(argv[1]), int(argv[2]), argv[3:]
    os.set_inheritable(status_fd, False)
    step = "spec"
    try:
        with open(spec_fd, "rb") as file:
            spec = dict(_mapping(marshal.load(file), "spec"))  # noqa: S302 - the host wrote it
        env = _mapping(spec.pop("env", {}), "env")
        step = "lockdown"
        lock_down(spec)
        for number in range(1, _LAST_SIGNAL + 1):
            _libc.signal(number, None)
        step = f"exec {command[0]!r}"
        os.execvpe(command[0], command, env)  # type: ignore[arg-type]
    except (OSError, ValueError, EOFError, TypeError) as error:
        os.write(status_fd, f"{step}: {error}\n".encode("utf-8", "backslashreplace"))
    return _SETUP_FAILED


def _allow_path(ruleset: int, path: str, access: int, identity: object) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        raise OSError(error.errno, f"landlock_restrict: path {path!r}: {error.strerror}") from None
    try:
        found = os.fstat(fd)
        if identity is not None and identity != [found.st_dev, found.st_ino]:
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
    step: str, name: str, *arguments: int | ctypes.Array[ctypes.c_uint32] | ctypes.Array[ctypes.c_uint64]
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


def _mapping(value: object, name: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise OSError(_EINVAL, f"lock_down: {name} must be a table")
    return value


def _number(table: Mapping[str, object], name: str) -> int:
    value = table.get(name)
    if not isinstance(value, int):
        raise OSError(_EINVAL, f"lock_down: {name} must be a number, got {value!r}")
    return value


def _pairs(table: Mapping[str, object], name: str) -> Iterable[tuple[str, int]]:
    rows = table.get(name)
    if not isinstance(rows, (list, tuple)):
        raise OSError(_EINVAL, f"lock_down: {name} must be a list of pairs, got {rows!r}")
    for row in rows:
        if not isinstance(row, (list, tuple)) or len(row) != 2 or not isinstance(row[1], int):
            raise OSError(_EINVAL, f"lock_down: {name} holds {row!r}, which is not a pair of an object and its rights")
        yield row[0], row[1]


if __name__ == "__main__":
    sys.exit(main(sys.argv))

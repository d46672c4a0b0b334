"""The syscall filter, as bytes for ``bwrap --seccomp`` or ``guest/gate/lockdown.py``.

Everything is allowed except what is named here; an allow-list would break programs with every new libc. Refused are
calls that reach beyond the sandbox (mounts, namespaces, modules, clocks, keys), calls that look into other processes,
and parts of the kernel that many escapes used and few programs need (bpf, io_uring, userfaultfd, rare socket families).

- A foreign architecture (32-bit code on a 64-bit kernel) kills the process: its numbers mean other calls.
- x32 numbers, and calls newer than our table, return ENOSYS.
- ``clone3`` and io_uring return ENOSYS too: a filter cannot read their arguments, which are behind a pointer. libc and
  libuv then use the older calls. So does ``io_setup``, which uses up a quota of the whole machine.
- Real-time scheduling needs no rule: without CAP_SYS_NICE and with RLIMIT_RTPRIO 0 the kernel refuses it.

The same arguments always give the same bytes, so a filter can be cached, compared and tested without a kernel.
"""

from __future__ import annotations

import functools
import os
import struct
import sys

from sandbox_kernel.errors import EnforcerUnavailable
from sandbox_kernel.jail.rules.syscalls import ARCHES, AUDIT_ARCH, LAST_REVIEWED, number

# Classic BPF, as far as a syscall filter needs it: instructions as bytes, and the few patterns that rules use.
#
# A program is a list of 8-byte ``sock_filter`` records (16-bit code, two 8-bit forward jumps, 32-bit constant), little
# endian on the supported architectures. Its input is a ``seccomp_data``: number, architecture, six 64-bit arguments.

LOAD_WORD = 0x20  # A = the 32-bit word at offset k
AND = 0x54  # A &= k
JUMP_EQUAL = 0x15
JUMP_AT_LEAST = 0x35
JUMP_ANY_BIT = 0x45
RETURN = 0x06

ALLOW = 0x7FFF0000
KILL_PROCESS = 0x80000000
ASK_LISTENER = 0x7FC00000
_ERRNO = 0x00050000

OFFSET_NUMBER = 0
OFFSET_ARCH = 4

Code = tuple[bytes, ...]


def instruction(code: int, k: int, jump_true: int = 0, jump_false: int = 0) -> bytes:
    """Encode one ``sock_filter``. Jumps count from the next instruction; one beyond 255 raises ``struct.error``."""
    return struct.pack("<HBBI", code, jump_true, jump_false, k)


def give(action: int) -> Code:
    """Return code that ends the program with this action."""
    return (instruction(RETURN, action),)


def refuse(errno_value: int) -> Code:
    """Return code that ends the program: the call is not made and fails with this errno."""
    return give(_ERRNO | errno_value)


def load_argument(index: int) -> Code:
    """Return code for A = the low half of an argument. The kernel reads int arguments the same way."""
    return (instruction(LOAD_WORD, 16 + 8 * index),)


def load_argument_high(index: int) -> Code:
    """Return code for A = the high half of an argument; for pointers, where both halves count."""
    return (instruction(LOAD_WORD, 20 + 8 * index),)


def mask(bits: int) -> Code:
    """Return code for A &= bits."""
    return (instruction(AND, bits),)


def when_equal(value: int, body: Code) -> Code:
    """Run the body if A is this value. The body must end the program on every path."""
    return (instruction(JUMP_EQUAL, value, 0, len(body)), *body)


def unless_equal(value: int, body: Code) -> Code:
    """Run the body if A is another value."""
    return (instruction(JUMP_EQUAL, value, len(body), 0), *body)


def when_any_bit(bits: int, body: Code) -> Code:
    """Run the body if A has any of these bits."""
    return (instruction(JUMP_ANY_BIT, bits, 0, len(body)), *body)


def unless_one_of(values: tuple[int, ...], body: Code) -> Code:
    """Run the body if A is none of these values; at most 250 values."""
    tests = tuple(
        instruction(JUMP_EQUAL, value, len(values) - 1 - index + len(body), 0) for index, value in enumerate(values)
    )
    return (*tests, *body)


AF_UNIX, AF_INET, AF_INET6, AF_NETLINK = 1, 2, 10, 16

#: The socket families of ordinary programs. Netlink is left out: an empty network has no interfaces to list.
DEFAULT_FAMILIES: tuple[int, ...] = (AF_UNIX, AF_INET, AF_INET6)
#: For programs that see files of the host, because some of these may be unix sockets.
INTERNET: tuple[int, ...] = (AF_INET, AF_INET6)

_REFUSED = (
    *("mount", "umount2", "pivot_root", "chroot", "open_tree", "move_mount", "fsopen", "fsconfig", "fsmount", "fspick"),
    *("mount_setattr", "open_tree_attr", "unshare", "setns", "listns"),
    *("init_module", "finit_module", "delete_module", "create_module", "get_kernel_syms", "query_module"),
    *("kexec_load", "kexec_file_load", "reboot", "swapon", "swapoff", "acct", "quotactl", "quotactl_fd", "syslog"),
    *("settimeofday", "clock_settime", "adjtimex", "clock_adjtime", "sethostname", "setdomainname"),
    *("iopl", "ioperm", "modify_ldt", "vhangup", "nfsservctl", "lookup_dcookie", "uselib", "ustat", "sysfs", "_sysctl"),
    *("bpf", "perf_event_open", "userfaultfd", "memfd_secret", "add_key", "request_key", "keyctl"),
    *("fanotify_init", "fanotify_mark", "name_to_handle_at", "open_by_handle_at", "lsm_set_self_attr"),
    *("ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd", "process_madvise", "process_mrelease"),
    *("mbind", "set_mempolicy", "migrate_pages", "move_pages", "set_mempolicy_home_node"),
)
#: ``io_setup`` uses up a number of requests (fs.aio-max-nr) that the whole machine shares. The calls of the other lines
#: tell of the host (NUMA nodes, security modules), or are so new that programs have another way, or have no code in
#: most kernels. Docker refuses them too. ``uprobe`` is for the kernel's own probes, which no filter stops.
_ABSENT = (
    *("clone3", "io_uring_setup", "io_uring_enter", "io_uring_register", "io_setup"),
    *("get_mempolicy", "lsm_get_self_attr", "lsm_list_modules", "file_getattr", "file_setattr", "rseq_slice_yield"),
    *("afs_syscall", "getpmsg", "putpmsg", "security", "tuxcall", "vserver", "uprobe"),
)
#: Access lists of files in memory take 256 KB each, which no control group counts. Programs take it as a file system
#: that has no attributes.
_ATTRIBUTES = ("setxattr", "lsetxattr", "fsetxattr", "setxattrat")
#: Refused behind Landlock alone (``refuse_shared_ids``, with ``_own_process_rules``), and where memory is watched.
_SYSV_IPC = (
    *("shmget", "shmat", "shmctl", "msgget", "msgsnd", "msgrcv", "msgctl"),
    *("semget", "semop", "semtimedop", "semctl", "mq_open", "mq_unlink"),
)
#: Refused behind Landlock alone (``refuse_metadata``), which does not control these. A file that is open can still
#: be changed through its descriptor.
_FILE_METADATA = (
    *("chmod", "fchmodat", "fchmodat2", "chown", "lchown", "fchownat", "utime", "utimes", "futimesat"),
    *("removexattr", "lremovexattr", "removexattrat"),
    *("inotify_init", "inotify_init1", "inotify_add_watch"),
)

#: NEWTIME, NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET.
_NEW_NAMESPACE = 0x80 | 0x20000 | 0x2000000 | 0x4000000 | 0x8000000 | 0x10000000 | 0x20000000 | 0x40000000
_CLONE_THREAD = 0x10000
#: What libc's ``fork`` asks for: CLONE_CHILD_SETTID, CLONE_CHILD_CLEARTID and SIGCHLD.
_PLAIN_FORK = 0x1000000 | 0x200000 | 17
#: Ioctls that put input into a terminal (TIOCSTI, TIOCLINUX), load a line discipline (TIOCSETD) or rebind console keys
#: (KDSKBENT).
_TERMINAL_TRICKS = (0x5412, 0x541C, 0x5423, 0x4B47)
#: PER_LINUX, PER_LINUX32, both with UNAME26, and the value that only reads the personality.
_PERSONALITIES = (0, 8, 0x20000, 0x20008, 0xFFFFFFFF)
_SOCKET_TYPE_BITS, _SOCK_STREAM, _SOCK_DGRAM, _SOCK_SEQPACKET = 0xF, 1, 2, 5
_INTERNET_PROTOCOLS = (0, 6, 17)
_NETLINK_ROUTE = 0
#: Options of sockets. Those that change nothing here: SO_SNDBUF, SO_RCVBUF and SO_RCVLOWAT, because what waits to be
#: accepted counts for no control group. Those that are refused: programs for the kernel, whose compiled form takes from
#: a memory that the whole machine shares, and keys of TCP, which nobody counts.
_SOL_SOCKET, _BUFFER_SIZES, _KERNEL_PROGRAMS = 1, (7, 8, 18), (26, 50, 51, 52)
_SOL_TCP, _TCP_KEYS = 6, (14, 32, 38)
_FILE_TYPE_BITS, _CHARACTER_DEVICE, _BLOCK_DEVICE = 0o170000, 0o020000, 0o060000
_PRIO_PROCESS, _IOPRIO_WHO_PROCESS = 0, 1
#: MAP_SHARED, which is in MAP_SHARED_VALIDATE too, and MAP_ANONYMOUS.
_SHARED_WITHOUT_FILE = 0x21

# Linux's numbers: the errno module of another system would give other bytes.
#: F_SETLEASE, F_NOTIFY, F_SETDELEG: with a file that it may only read, a program could keep others from opening it.
_HOLDS_UP_OTHERS = (1024, 1026, 1044)
_EPERM, _ENOSYS, _EPROTONOSUPPORT, _EAFNOSUPPORT = refuse(1), refuse(38), refuse(93), refuse(97)
_EINVAL, _EOPNOTSUPP = refuse(22), refuse(95)
#: What ``prctl`` may be asked for: up to PR_TIMER_CREATE_RESTORE_IDS, PR_SET_VMA and PR_SET_PTRACER. PR_FUTEX_HASH, the
#: next one, makes the kernel take up to 2 GB that count for no process.
_FIRST_UNREVIEWED, _HIGH_OPTIONS, _PR_SET_SECCOMP = 78, (0x53564D41, 0x59616D61), 22
#: The call is not made, and returns 0.
_NOTHING = refuse(0)
_YES = give(ALLOW)


def host_arch() -> str:
    """Return the architecture of this machine. Raises ``EnforcerUnavailable`` when there is no table for it."""
    if sys.platform != "linux":
        raise EnforcerUnavailable(
            "seccomp", f"it is a part of Linux and this is {sys.platform}; use a Linux virtual machine"
        )
    machine = os.uname().machine
    if machine not in ARCHES:
        known = ", ".join(ARCHES)
        raise EnforcerUnavailable(
            "seccomp",
            f"no syscall table for the architecture {machine!r} (known: {known}); use a 64-bit x86 or ARM system",
        )
    if struct.calcsize("P") != 8:
        raise EnforcerUnavailable(
            "seccomp", f"this Python is a 32-bit program on {machine}, with other syscall numbers; use a 64-bit Python"
        )
    return machine


@functools.lru_cache(maxsize=16)
def build_filter(
    arch: str,
    *,
    families: tuple[int, ...] = DEFAULT_FAMILIES,
    refuse_shared_ids: bool = False,
    refuse_metadata: bool = False,
    serves_unix: bool = False,
) -> bytes:
    """Return the base filter of every sandboxed process on the architecture ``arch``.

    Args:
        arch: See ``syscalls.py``.
        families: The address families that ``socket`` may open. Leave unix sockets out where files of the host are
            visible, because a program can write to a socket that is shown read-only. Connected pairs stay possible.
        refuse_shared_ids: For jails without IPC and PID namespaces. Refuses System V and POSIX messages, and to change
            limits, priority or scheduling of a process by its pid, which may be a process of the host.
        refuse_metadata: For jails without a mount namespace. Refuses to change mode, owner, times or attributes of a
            file by its path, or to watch it, because Landlock does not control that. GNU ld needs ``chmod``, so leave
            it off to compile.
        serves_unix: The program may listen on unix stream sockets, and connect to nothing: neither Landlock before
            ABI 9 nor a filter can tell which socket of the host a path leads to. Stream sockets send to peers only.
    """
    refused = (*_REFUSED, *(_SYSV_IPC if refuse_shared_ids else ()), *(_FILE_METADATA if refuse_metadata else ()))
    verdicts = dict.fromkeys(refused, _EPERM) | dict.fromkeys(_ABSENT, _ENOSYS)
    verdicts |= dict.fromkeys(_ATTRIBUTES, _EOPNOTSUPP)
    verdicts |= {
        "clone": (*load_argument(0), *when_any_bit(_NEW_NAMESPACE, _EPERM), *_YES),
        "socket": _socket_rule(families, serves_unix=serves_unix),
        "socketpair": _pair_rule(connected_only=AF_UNIX not in families),
        "setsockopt": _option_rule(),
        "ioctl": (*load_argument(1), *unless_one_of(_TERMINAL_TRICKS, _YES), *_EPERM),
        "fcntl": (*load_argument(1), *unless_one_of(_HOLDS_UP_OTHERS, _YES), *refuse(22)),
        "personality": (*load_argument(0), *unless_one_of(_PERSONALITIES, _EPERM), *_YES),
        "mknod": _device_rule(1),
        "mknodat": _device_rule(2),
        "prlimit64": _limit_rule(),
        "prctl": (
            *load_argument(0),
            *unless_one_of(_HIGH_OPTIONS, (instruction(JUMP_AT_LEAST, _FIRST_UNREVIEWED, 0, 1), *_EINVAL)),
            *_YES,
        ),
    }
    if refuse_shared_ids:
        verdicts |= _own_process_rules()
    if serves_unix:
        verdicts["connect"] = _EPERM
        # libzmq sets the scheduling of its own threads to what it is, by their ids, and ends its process if it cannot.
        verdicts["sched_setscheduler"] = (*load_argument(0), *unless_equal(0, _NOTHING), *_YES)
    if refuse_metadata:
        # Without a path the call changes the open file: this is how futimens works.
        no_path = (*load_argument(1), *unless_equal(0, _EPERM), *load_argument_high(1), *unless_equal(0, _EPERM))
        verdicts["utimensat"] = (*no_path, *_YES)
    return _program(arch, verdicts)


def build_namespace_filter(shows_host_files: bool, lists_interfaces: bool = False) -> bytes:
    """Return the base filter of a jail with namespaces, for this machine. Where it shows files of the host, it has no
    unix sockets. With ``lists_interfaces``, a program may list the interfaces of its own network.
    """
    families = INTERNET if shows_host_files else DEFAULT_FAMILIES
    return build_filter(host_arch(), families=(*families, AF_NETLINK) if lists_interfaces else families)


def build_step_filter(
    arch: str, *, may_spawn: bool, memory_is_watched: bool, host_decides: bool = False
) -> bytes | None:
    """Return the second filter of one step, or None when the step needs none. Threads and ``execve`` stay possible.

    ``host_decides``: where new processes are denied, plain forks wait for a decision of the host (a session's
    checkpoints are forks). All other ways to start a process stay refused.

    ``may_spawn`` is false when the policy allows no new processes. ``memory_is_watched`` is true when no control group
    limits memory and the host adds up what /proc shows. Some memory then counts for no process: files in memory
    (``memfd_create``) that are held by a process whose descriptors the host may not list or that wait in a socket,
    System V segments, queues and semaphores that no process has attached, large pages of which a pipe was given a byte
    (``vmsplice``), rules of Landlock, filters of the program's own, and pages of a shared mapping without a file, which
    it keeps when no process maps them any more. The filter refuses them. ``memfd_create`` answers ENOSYS, as on an old
    kernel: libraries use a file.
    """
    verdicts: dict[str, Code] = {}
    if not may_spawn:
        asked = when_equal(_PLAIN_FORK, give(ASK_LISTENER)) if host_decides else ()
        thread_only = (*load_argument(0), *when_any_bit(_CLONE_THREAD, _YES), *asked, *_EPERM)
        verdicts |= {"fork": _EPERM, "vfork": _EPERM, "clone": thread_only, "clone3": _ENOSYS}
    if memory_is_watched:
        absent = ("memfd_create", "vmsplice", "landlock_create_ruleset", "seccomp")
        verdicts["prctl"] = (*load_argument(0), *when_equal(_PR_SET_SECCOMP, _EINVAL), *_YES)
        verdicts |= dict.fromkeys(_SYSV_IPC, _EPERM) | dict.fromkeys(absent, _ENOSYS)
        of_no_file = when_equal(_SHARED_WITHOUT_FILE, _EPERM)
        verdicts["mmap"] = (*load_argument(3), *mask(_SHARED_WITHOUT_FILE), *of_no_file, *_YES)
    return _program(arch, verdicts) if verdicts else None


def build_no_watch_filter(arch: str) -> bytes:
    """Return a second filter for a user that may read more than Landlock lets it open: no watching of paths."""
    return _program(arch, {"inotify_add_watch": _EPERM})


def _socket_rule(families: tuple[int, ...], *, serves_unix: bool) -> Code:
    """Refuse all other families; allow only TCP and UDP of the internet families, and only routes of netlink.

    AF_INET allows more than it seems: SOCK_RAW, SOCK_PACKET (which the kernel turns into AF_PACKET), and protocols such
    as SCTP, DCCP or L2TP whose modules are loaded on demand.
    """
    internet = (
        *load_argument(1),
        *mask(_SOCKET_TYPE_BITS),
        *unless_one_of((_SOCK_STREAM, _SOCK_DGRAM), _EPERM),
        *load_argument(2),
        *unless_one_of(_INTERNET_PROTOCOLS, _EPROTONOSUPPORT),
        *_YES,
    )
    netlink = (*load_argument(2), *unless_equal(_NETLINK_ROUTE, _EPROTONOSUPPORT), *_YES)
    stream = (*load_argument(1), *mask(_SOCKET_TYPE_BITS), *unless_equal(_SOCK_STREAM, _EPERM), *_YES)
    special = {AF_INET: internet, AF_INET6: internet, AF_NETLINK: netlink}
    rule = load_argument(0)
    if serves_unix:
        # libzmq ends its process when it cannot list interfaces, unless the kernel says that it has no such thing.
        rule += (*when_equal(AF_UNIX, stream), *when_equal(AF_NETLINK, _EOPNOTSUPP))
    for family in sorted(set(families)):
        rule += when_equal(family, special.get(family, _YES))
    return (*rule, *_EAFNOSUPPORT)


def _option_rule() -> Code:
    """Let buffers of sockets stay as large as the system makes them, and refuse what takes uncounted memory."""
    of_tcp = (*load_argument(2), *unless_one_of(_TCP_KEYS, _YES), *_EPERM)
    others = (*when_equal(_SOL_TCP, of_tcp), *_YES)
    programs = (*unless_one_of((*_BUFFER_SIZES, *_KERNEL_PROGRAMS), _YES), *unless_one_of(_BUFFER_SIZES, _EPERM))
    return (*load_argument(1), *unless_equal(_SOL_SOCKET, others), *load_argument(2), *programs, *_NOTHING)


def _pair_rule(*, connected_only: bool) -> Code:
    """Allow pairs of unix sockets only: for other families the kernel creates (and loads) the family before it refuses.

    A datagram socket of a pair can send to any path, even where Landlock shows none. Stream and seqpacket pairs are
    connected to each other for good.
    """
    rule = (*load_argument(0), *unless_equal(AF_UNIX, _EAFNOSUPPORT))
    if connected_only:
        rule += (*load_argument(1), *mask(_SOCKET_TYPE_BITS), *unless_one_of((_SOCK_STREAM, _SOCK_SEQPACKET), _EPERM))
    return (*rule, *_YES)


def _device_rule(mode_argument: int) -> Code:
    """Allow making regular files, pipes and sockets; refuse device nodes."""
    return (
        *load_argument(mode_argument),
        *mask(_FILE_TYPE_BITS),
        *when_equal(_CHARACTER_DEVICE, _EPERM),
        *when_equal(_BLOCK_DEVICE, _EPERM),
        *_YES,
    )


def _limit_rule() -> Code:
    """Allow reading the limits of other processes; allow setting only one's own, with the pid 0.

    Otherwise a cell could set a limit of zero on a checkpoint of its session, and nothing could raise it again.
    """
    asks = (*load_argument(2), *unless_equal(0, _EPERM), *load_argument_high(2), *unless_equal(0, _EPERM), *_YES)
    return (*load_argument(0), *unless_equal(0, asks), *_YES)


def _own_process_rules() -> dict[str, Code]:
    """Without a PID namespace, a process may change only itself: these calls accept the pid 0 and no other."""
    own_id = (*load_argument(0), *unless_equal(0, _EPERM), *_YES)
    by_id = ("prlimit64", "sched_setparam", "sched_setscheduler", "sched_setaffinity", "sched_setattr")
    rules = dict.fromkeys(by_id, own_id)
    for name, process in (("setpriority", _PRIO_PROCESS), ("ioprio_set", _IOPRIO_WHO_PROCESS)):
        own = (*load_argument(1), *unless_equal(0, _EPERM), *_YES)
        rules[name] = (*load_argument(0), *unless_equal(process, _EPERM), *own)
    return rules


def _program(arch: str, verdicts: dict[str, Code]) -> bytes:
    """Put the rules behind the checks that each filter needs. Calls that this architecture lacks are left out."""
    if arch not in ARCHES:
        raise EnforcerUnavailable(
            "seccomp", f"no syscall table for the architecture {arch!r}; known are {', '.join(ARCHES)}"
        )
    code = (
        instruction(LOAD_WORD, OFFSET_ARCH),
        *unless_equal(AUDIT_ARCH[arch], give(KILL_PROCESS)),
        instruction(LOAD_WORD, OFFSET_NUMBER),
        instruction(JUMP_AT_LEAST, LAST_REVIEWED + 1, 0, len(_ENOSYS)),
        *_ENOSYS,
    )
    numbered = {number(name, arch): verdict for name, verdict in verdicts.items()}
    numbered.pop(None, None)
    for value in sorted(value for value in numbered if value is not None):
        code += when_equal(value, numbered[value])
    return b"".join((*code, *_YES))

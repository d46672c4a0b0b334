"""Every rule of the filter, on both architectures, in a BPF machine of our own: no kernel is asked."""

import functools
import itertools
import re
import struct
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_kernel.errors import EnforcerUnavailable
from sandbox_kernel.jail.rules import seccomp
from sandbox_kernel.jail.rules.seccomp import (
    ASK_LISTENER,
    build_filter,
    build_no_watch_filter,
    build_step_filter,
    host_arch,
)
from sandbox_kernel.jail.rules.syscalls import ARCHES, LAST_REVIEWED, number
from tests.jail.rules import bpf_machine as bpf

ALLOW, KILL = bpf.ALLOW, bpf.KILL

EPERM, EINVAL, ENOSYS, EPROTONOSUPPORT, EAFNOSUPPORT = 1, 22, 38, 93, 97
SIGCHLD = 17
TIOCSTI, TIOCLINUX, TIOCSETD, KDSKBENT = 0x5412, 0x541C, 0x5423, 0x4B47
CLONE_VM, CLONE_FS, CLONE_FILES, CLONE_SIGHAND, CLONE_VFORK, CLONE_THREAD = 0x100, 0x200, 0x400, 0x800, 0x4000, 0x10000
THREAD_FLAGS = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD
NEW_NAMESPACES = {
    "NEWTIME": 0x80,
    "NEWNS": 0x20000,
    "NEWCGROUP": 0x2000000,
    "NEWUTS": 0x4000000,
    "NEWIPC": 0x8000000,
    "NEWUSER": 0x10000000,
    "NEWPID": 0x20000000,
    "NEWNET": 0x40000000,
}
REFUSED = re.findall(
    r"\w+",
    """
    mount umount2 pivot_root chroot open_tree move_mount fsopen fsconfig fsmount fspick mount_setattr open_tree_attr
    unshare setns listns init_module finit_module delete_module create_module get_kernel_syms query_module
    kexec_load kexec_file_load reboot swapon swapoff acct quotactl quotactl_fd syslog
    settimeofday clock_settime adjtimex clock_adjtime sethostname setdomainname
    iopl ioperm modify_ldt vhangup nfsservctl lookup_dcookie uselib ustat sysfs _sysctl
    bpf perf_event_open userfaultfd memfd_secret add_key request_key keyctl
    fanotify_init fanotify_mark name_to_handle_at open_by_handle_at lsm_set_self_attr
    ptrace process_vm_readv process_vm_writev kcmp pidfd_getfd process_madvise process_mrelease
    mbind set_mempolicy migrate_pages move_pages set_mempolicy_home_node
""",
)
ABSENT = re.findall(
    r"\w+",
    """
    get_mempolicy lsm_get_self_attr lsm_list_modules file_getattr file_setattr rseq_slice_yield
    afs_syscall getpmsg putpmsg security tuxcall vserver uprobe
""",
)
SYSV_IPC = re.findall(
    r"\w+", "shmget shmat shmctl msgget msgsnd msgrcv msgctl semget semop semtimedop semctl mq_open mq_unlink"
)
FILE_METADATA = re.findall(
    r"\w+",
    """
    chmod fchmodat fchmodat2 chown lchown fchownat utime utimes futimesat
    removexattr lremovexattr removexattrat inotify_add_watch
""",
)
#: read, write, mmap, execve, exit_group, futex, rt_sigaction, kill, openat, pidfd_open, pidfd_send_signal, seccomp.
ORDINARY = {
    "x86_64": (0, 1, 9, 59, 231, 202, 13, 62, 257, 434, 424, 317),
    "aarch64": (63, 64, 222, 221, 94, 98, 134, 129, 56, 434, 424, 277),
}
NO_SPAWN = functools.partial(build_step_filter, may_spawn=False, memory_is_watched=False)
PROGRAMS = {
    "default": build_filter,
    "no sockets": lambda arch: build_filter(arch, families=(), refuse_shared_ids=True, refuse_metadata=True),
    "a kernel": lambda arch: build_filter(arch, families=(), refuse_shared_ids=True, serves_unix=True),
    "many families": lambda arch: build_filter(arch, families=tuple(range(1, 40))),
    "no spawn": NO_SPAWN,
    "no watch": build_no_watch_filter,
}

both = pytest.mark.parametrize("arch", ARCHES)
every_program = pytest.mark.parametrize(("arch", "kind"), list(itertools.product(ARCHES, PROGRAMS)))


def _ask(program: bytes, name: str, arch: str, *arguments: int) -> str | int:
    value = number(name, arch)
    assert value is not None
    return bpf.verdict(program, value, arguments, arch)


@every_program
def test_a_program_is_an_array_of_sock_filter_whose_jumps_land_inside_and_whose_paths_end(arch: str, kind: str) -> None:
    program = PROGRAMS[kind](arch)
    length = len(bpf.instructions(program))
    assert 0 < length <= 4096 and len(program) == 8 * length
    assert program[:8] == struct.pack("=HBBI", 0x20, 0, 0, 4), "the architecture is looked at first"
    assert program[-8:] == struct.pack("=HBBI", 0x06, 0, 0, 0x7FFF0000)
    assert all(at < to < length for at, to in bpf.reachable_ends(program))


def test_the_order_of_families_does_not_matter() -> None:
    assert build_filter("x86_64", families=(10, 1, 2, 2)) == build_filter("x86_64", families=(1, 2, 10))


@every_program
def test_a_foreign_architecture_is_killed(arch: str, kind: str) -> None:
    program = PROGRAMS[kind](arch)
    for foreign in set(bpf.AUDIT) - {arch}:
        assert {bpf.verdict(program, value, (), foreign) for value in (0, 1, 11, 39, 120, 1 << 30)} == {KILL}


@every_program
def test_x32_and_calls_younger_than_the_review_do_not_exist(arch: str, kind: str) -> None:
    program = PROGRAMS[kind](arch)
    for value in (LAST_REVIEWED + 1, 512, 547, 0x40000000, 0x40000000 | 56, 0x40000000 | 520, 0x7FFFFFFF, 0xFFFFFFFF):
        assert bpf.verdict(program, value, (), arch) == ENOSYS, hex(value)


@pytest.mark.parametrize(("arch", "name"), [pair for pair in itertools.product(ARCHES, REFUSED) if number(*pair[::-1])])
@pytest.mark.one_case
def test_a_call_that_reaches_beyond_the_sandbox_is_not_permitted(arch: str, name: str) -> None:
    assert _ask(build_filter(arch), name, arch) == EPERM


def test_the_list_above_is_the_whole_list() -> None:
    assert sorted(seccomp._REFUSED) == sorted(REFUSED)


@pytest.mark.parametrize(("arch", "name"), [pair for pair in itertools.product(ARCHES, ABSENT) if number(*pair[::-1])])
def test_a_call_that_docker_refuses_and_no_program_needs_does_not_exist(arch: str, name: str) -> None:
    for program in (build_filter(arch), PROGRAMS["no sockets"](arch)):
        assert _ask(program, name, arch) == ENOSYS


@both
@pytest.mark.parametrize("name", ["clone3", "io_uring_setup", "io_uring_enter", "io_uring_register"])
def test_calls_that_hide_their_arguments_do_not_exist_so_that_programs_take_the_older_way(arch: str, name: str) -> None:
    assert _ask(build_filter(arch), name, arch) == ENOSYS


@both
def test_ordinary_calls_are_allowed(arch: str) -> None:
    for program in (build_filter(arch), PROGRAMS["no sockets"](arch), NO_SPAWN(arch)):
        assert {bpf.verdict(program, value, (5, 6, 7), arch) for value in ORDINARY[arch]} == {ALLOW}


@both
def test_clone_makes_processes_and_threads_and_no_namespace(arch: str) -> None:
    program = build_filter(arch)
    for flags in (SIGCHLD, CLONE_VM | CLONE_VFORK | SIGCHLD, THREAD_FLAGS):
        assert _ask(program, "clone", arch, flags) == ALLOW
    for name, flag in NEW_NAMESPACES.items():
        assert _ask(program, "clone", arch, flag | SIGCHLD) == EPERM, name
        assert _ask(program, "clone", arch, flag | CLONE_VM | (0xABC << 32)) == EPERM, name


@both
def test_only_unix_and_internet_sockets_are_opened_by_default(arch: str) -> None:
    program = build_filter(arch)
    allowed = {family for family in range(64) if _ask(program, "socket", arch, family, 1) == ALLOW}
    assert allowed == {1, 2, 10}
    refused = {_ask(program, "socket", arch, family, 1) for family in range(64) if family not in allowed}
    assert refused == {EAFNOSUPPORT}


@both
@pytest.mark.parametrize("family", [2, 10])
@pytest.mark.parametrize("flags", [0, 0o4000, 0o2000000, 0o2004000, 0xABC << 32])
def test_internet_sockets_are_streams_or_datagrams_whatever_flags_are_added(arch: str, family: int, flags: int) -> None:
    program = build_filter(arch)
    answers = {kind: _ask(program, "socket", arch, family, kind | flags) for kind in range(16)}
    assert {kind for kind, answer in answers.items() if answer == ALLOW} == {1, 2}
    assert answers[3] == EPERM, "raw"
    assert answers[10] == EPERM, "SOCK_PACKET, which the kernel turns into a packet socket"


@both
@pytest.mark.parametrize("family", [2, 10])
def test_internet_sockets_speak_tcp_and_udp_and_load_no_other_protocol(arch: str, family: int) -> None:
    program = build_filter(arch)
    answers = {protocol: _ask(program, "socket", arch, family, 1, protocol) for protocol in range(300)}
    assert {protocol for protocol, answer in answers.items() if answer == ALLOW} == {0, 6, 17}
    assert answers[132] == EPROTONOSUPPORT, "SCTP"


@both
def test_netlink_is_for_routes_only_when_it_is_asked_for(arch: str) -> None:
    program = build_filter(arch, families=(1, 16))
    assert _ask(program, "socket", arch, 16, 3, 0) == ALLOW
    assert {_ask(program, "socket", arch, 16, 3, protocol) for protocol in range(1, 22)} == {EPROTONOSUPPORT}


@both
def test_without_families_no_socket_opens_but_unix_pairs_that_speak_to_nobody_else_do(arch: str) -> None:
    program = build_filter(arch, families=())
    assert {_ask(program, "socket", arch, family, 1) for family in range(64)} == {EAFNOSUPPORT}
    assert _ask(program, "socketpair", arch, 1, 1) == ALLOW
    program = build_filter(arch, families=(2, 10))
    allowed = {kind for kind in range(16) if _ask(program, "socketpair", arch, 1, kind | 0o2004000) == ALLOW}
    assert allowed == {1, 5}, "streams and sequences of packets; a datagram, also called raw, can be sent to any path"
    assert _ask(build_filter(arch), "socketpair", arch, 1, 2) == ALLOW


@both
def test_a_kernel_without_a_network_listens_on_unix_streams_and_connects_to_nothing(arch: str) -> None:
    program = build_filter(arch, families=(), refuse_shared_ids=True, serves_unix=True)
    assert _ask(program, "socket", arch, 1, 1) == ALLOW
    assert {_ask(program, "socket", arch, 1, kind) for kind in (2, 3, 5)} == {EPERM}
    assert _ask(program, "connect", arch, 3) == EPERM
    assert {_ask(program, "socket", arch, family, 1) for family in range(64) if family not in (1, 16)} == {EAFNOSUPPORT}
    # libzmq ends its process for any other error of these two.
    assert _ask(program, "socket", arch, 16, 3) == 95
    assert (_ask(program, "sched_setscheduler", arch, 77), _ask(program, "sched_setscheduler", arch, 0)) == (0, ALLOW)


@both
def test_pairs_are_unix_only_as_making_them_would_load_any_family(arch: str) -> None:
    answers = {family: _ask(build_filter(arch), "socketpair", arch, family, 1) for family in range(64)}
    assert answers.pop(1) == ALLOW
    assert set(answers.values()) == {EAFNOSUPPORT}


@both
@settings(deadline=None)
@given(high=st.integers(0, 2**32 - 1))
def test_input_is_pushed_into_no_terminal_and_the_high_half_of_a_request_hides_nothing(arch: str, high: int) -> None:
    program = build_filter(arch)
    for refused in (TIOCSTI, TIOCLINUX, TIOCSETD, KDSKBENT):
        assert _ask(program, "ioctl", arch, 0, high << 32 | refused) == EPERM, hex(refused)
    for other in (0x5401, 0x5413, 0x5411, 0x541B, 0x540E, 0x80045430, 0x5413 | 0x5412 << 32):
        assert _ask(program, "ioctl", arch, 0, other) == ALLOW, hex(other)


@both
def test_prctl_does_not_know_what_was_not_reviewed(arch: str) -> None:
    program = build_filter(arch)
    for option in (78, 79, 1000, 0x53564D40, 0xFFFFFFFF, 1 << 32 | 78):
        assert _ask(program, "prctl", arch, option) == EINVAL, hex(option)
    for option in (1, 4, 15, 22, 38, 77, 0x53564D41, 0x59616D61):
        assert _ask(program, "prctl", arch, option) == ALLOW, hex(option)


@both
def test_personality_may_not_weaken_address_randomisation(arch: str) -> None:
    program = build_filter(arch)
    for value in (0x0040000, 0x0400000, 0x0100000, 0x6, 0x0040000 | 0x8):
        assert _ask(program, "personality", arch, value) == EPERM, hex(value)
    for value in (0, 8, 0x20000, 0x20008, 0xFFFFFFFF, 2**64 - 1):
        assert _ask(program, "personality", arch, value) == ALLOW, hex(value)


@pytest.mark.parametrize(
    ("arch", "name", "before"),
    [("x86_64", "mknod", (0,)), ("x86_64", "mknodat", (-100, 0)), ("aarch64", "mknodat", (-100, 0))],
)
def test_device_nodes_are_not_made_but_pipes_and_files_are(arch: str, name: str, before: tuple[int, ...]) -> None:
    program = build_filter(arch)
    for mode in (0o020666, 0o060600, 0o1020666 | 1 << 33):
        assert _ask(program, name, arch, *before, mode) == EPERM, oct(mode)
    for mode in (0o010600, 0o100644, 0o140600, 0o644):
        assert _ask(program, name, arch, *before, mode) == ALLOW, oct(mode)


@both
@pytest.mark.parametrize("name", SYSV_IPC)
def test_ipc_of_the_host_is_refused_only_where_no_namespace_hides_it(arch: str, name: str) -> None:
    assert _ask(build_filter(arch), name, arch) == ALLOW
    assert _ask(build_filter(arch, refuse_shared_ids=True), name, arch) == EPERM


@both
@pytest.mark.parametrize("name", ["sched_setparam", "sched_setscheduler", "sched_setaffinity", "sched_setattr"])
def test_where_pids_are_the_hosts_only_the_caller_itself_is_tuned(arch: str, name: str) -> None:
    assert _ask(build_filter(arch), name, arch, 4321) == ALLOW
    shared = build_filter(arch, refuse_shared_ids=True)
    assert _ask(shared, name, arch, 0, 7) == ALLOW
    assert _ask(shared, name, arch, 4321, 7) == EPERM


@both
def test_limits_of_another_process_can_be_asked_for_and_not_be_set(arch: str) -> None:
    inside, shared = build_filter(arch), build_filter(arch, refuse_shared_ids=True)
    for program in (inside, shared):
        assert _ask(program, "prlimit64", arch, 0, 7, 4096, 0) == ALLOW
        for new_limit in (4096, 1 << 32):
            assert _ask(program, "prlimit64", arch, 4321, 7, new_limit, 0) == EPERM
    assert _ask(inside, "prlimit64", arch, 4321, 7, 0, 4096) == ALLOW
    assert _ask(shared, "prlimit64", arch, 4321, 7, 0, 4096) == EPERM


@both
@pytest.mark.parametrize(("name", "process"), [("setpriority", 0), ("ioprio_set", 1)])
def test_where_pids_are_the_hosts_priorities_of_users_and_groups_stay(arch: str, name: str, process: int) -> None:
    shared = build_filter(arch, refuse_shared_ids=True)
    assert _ask(shared, name, arch, process, 0, 19) == ALLOW
    assert _ask(shared, name, arch, process, 4321, 19) == EPERM
    assert {_ask(shared, name, arch, which, 0, 19) for which in range(4) if which != process} == {EPERM}


@pytest.mark.parametrize(
    ("arch", "name"), [pair for pair in itertools.product(ARCHES, FILE_METADATA) if number(*pair[::-1])]
)
def test_files_of_the_host_keep_their_metadata_only_where_no_namespace_hides_them(arch: str, name: str) -> None:
    assert _ask(build_filter(arch), name, arch, 0, 4096) == ALLOW
    assert _ask(build_filter(arch, refuse_metadata=True), name, arch, 0, 4096) == EPERM


@both
def test_times_of_an_open_file_may_be_set_but_not_by_path(arch: str) -> None:
    program = build_filter(arch, refuse_metadata=True)
    assert _ask(program, "utimensat", arch, 3, 0) == ALLOW
    for pointer in (4096, 1 << 32, 0x7F00_0000_0000, (1 << 32) | 8):
        assert _ask(program, "utimensat", arch, -100, pointer) == EPERM, hex(pointer)


@both
def test_no_spawn_refuses_every_way_to_make_a_process_and_keeps_threads_and_exec(arch: str) -> None:
    program = NO_SPAWN(arch)
    for name in ("fork", "vfork"):
        if number(name, arch) is not None:
            assert _ask(program, name, arch) == EPERM
    for flags in (SIGCHLD, CLONE_VM | CLONE_VFORK | SIGCHLD, CLONE_VM, 0, CLONE_THREAD << 32):
        assert _ask(program, "clone", arch, flags) == EPERM
    assert _ask(program, "clone3", arch) == ENOSYS
    assert _ask(program, "clone", arch, THREAD_FLAGS) == ALLOW


@both
def test_a_session_without_spawning_leaves_plain_forks_to_the_host_and_nothing_else(arch: str) -> None:
    program = build_step_filter(arch, may_spawn=False, memory_is_watched=False, host_decides=True)
    assert program is not None
    plain = 0x1200011
    assert _ask(program, "clone", arch, plain) == ASK_LISTENER
    for flags in (SIGCHLD, plain | CLONE_VM, plain | CLONE_VFORK, CLONE_VM | CLONE_VFORK | SIGCHLD, 0):
        assert _ask(program, "clone", arch, flags) == EPERM
    assert _ask(program, "clone", arch, THREAD_FLAGS) == ALLOW
    assert _ask(program, "clone3", arch) == ENOSYS
    free = build_step_filter(arch, may_spawn=True, memory_is_watched=False, host_decides=True)
    assert free is None


@both
def test_no_watch_refuses_to_watch_and_nothing_else(arch: str) -> None:
    program = build_no_watch_filter(arch)
    assert _ask(program, "inotify_add_watch", arch) == EPERM
    assert {bpf.verdict(program, value, (), arch) for value in ORDINARY[arch]} == {ALLOW}
    for name in ("clone", "socket", "ioctl", "fchmodat"):
        assert _ask(program, name, arch) == ALLOW


def test_an_architecture_without_a_table_is_a_typed_error() -> None:
    for build in (build_filter, NO_SPAWN):
        with pytest.raises(EnforcerUnavailable, match=r"riscv64.*x86_64, aarch64") as caught:
            build("riscv64")
        assert caught.value.enforcer == "seccomp"


@pytest.mark.parametrize(
    ("platform", "machine", "pointer", "message"),
    [("linux", "s390x", 8, r"'s390x'.*use a 64-bit x86 or ARM system"), ("darwin", "arm64", 8, "darwin"),
     ("linux", "x86_64", 4, "64-bit Python")],
    ids=["no table", "another system", "a 32-bit Python"],
)  # fmt: skip
def test_a_host_that_the_filter_does_not_know_is_a_typed_error(
    platform: str, machine: str, pointer: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", platform)
    monkeypatch.setattr("os.uname", lambda: SimpleNamespace(machine=machine))
    monkeypatch.setattr("struct.calcsize", lambda _: pointer)
    with pytest.raises(EnforcerUnavailable, match=message):
        host_arch()

"""The filter in the real kernel: loaded by bubblewrap into a small jail, attacked and used there.

The attacks are also made without the filter, where this kernel would let them pass: a refusal that the kernel makes
anyway proves nothing about the filter.
"""

import functools
import json
import os
import shutil
import signal
import struct
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

from sandbox_kernel.errors import EnforcerUnavailable
from sandbox_kernel.jail.rules.bubblewrap import find_bwrap
from sandbox_kernel.jail.rules.seccomp import build_filter, build_step_filter, host_arch
from sandbox_kernel.jail.rules.syscalls import NAMES, number

#: The system's, which every user may run; the package's own where there is none.
BWRAP = "/usr/bin/bwrap" if os.path.exists("/usr/bin/bwrap") else find_bwrap()
PYTHON = "/usr/bin/python3"
NOBODY = 65534

PRELUDE = """
import ctypes, errno, json, os, sys
libc = ctypes.CDLL(None, use_errno=True)
NR = json.loads({numbers!r})
def call(name, *arguments):
    wide = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    ctypes.set_errno(0)
    answer = libc.syscall(ctypes.c_long(NR.get(name, name) if isinstance(name, str) else name), *wide)
    return "ok" if answer >= 0 else errno.errorcode.get(ctypes.get_errno(), "?")
"""

ATTACKS = """
import fcntl, pty, termios
def in_child(act):
    r, w = os.pipe()
    if os.fork() == 0:
        try: answer = act()
        except OSError as error: answer = errno.errorcode[error.errno]
        os.write(w, answer.encode()); os._exit(0)
    os.close(w); answer = os.read(r, 99).decode(); os.wait(); return answer
def clone_user():
    pid = libc.syscall(ctypes.c_long(NR["clone"]), *[ctypes.c_long(v) for v in (0x10000000 | 17, 0, 0, 0, 0)])
    if pid == 0: os._exit(0)
    return "ok" if pid > 0 else errno.errorcode[ctypes.get_errno()]
def push_input(request):
    os.setsid(); main, side = pty.openpty(); fcntl.ioctl(side, termios.TIOCSCTTY, 0)
    return call("ioctl", side, request, ctypes.create_string_buffer(b"x"))
params = ctypes.create_string_buffer(4096)
iov = (ctypes.c_size_t * 2)(ctypes.addressof(params), 8); iov2 = (ctypes.c_size_t * 2)(ctypes.addressof(params) + 64, 8)
print(json.dumps({
  "unshare": in_child(lambda: call("unshare", 0x10000000)),
  "clone": in_child(clone_user),
  "clone3": call("clone3", 0, 0),
  "mount": call("mount", b"none", b"/tmp", b"tmpfs", 0, 0),
  "chroot": call("chroot", b"/usr"),
  "bpf": call("bpf", 99, params, 8),
  "keyctl": call("keyctl", 0, -3, 1),
  "io_uring_setup": call("io_uring_setup", 8, params),
  "ptrace": in_child(lambda: call("ptrace", 0, 0, 0, 0)),
  "userfaultfd": call("userfaultfd", 1),
  "process_vm_readv": call("process_vm_readv", os.getpid(), iov, 1, iov2, 1, 0),
  "kcmp": call("kcmp", os.getpid(), os.getpid(), 0, 0, 1),
  "fanotify_init": call("fanotify_init", 0x200, 0),
  "set_mempolicy": call("set_mempolicy", 0, 0, 0),
  "adjtimex": call("adjtimex", ctypes.create_string_buffer(4096)),
  "lsm_set_self_attr": call("lsm_set_self_attr", 100, params, 8, 0),
  "get_mempolicy": call("get_mempolicy", 0, 0, 0, 0, 0),
  "lsm_list_modules": call("lsm_list_modules", params, ctypes.byref(ctypes.c_uint32(8)), 0),
  "lsm_get_self_attr": call("lsm_get_self_attr", 100, params, ctypes.byref(ctypes.c_uint32(8)), 0),
  "file_getattr": call("file_getattr", -100, b"/tmp", params, 24, 0),
  "file_setattr": call("file_setattr", -100, b"/tmp", params, 24, 0),
  "personality": in_child(lambda: call("personality", 0x0040000)),
  "device node": call("mknodat", -100, b"/tmp/null", 0o020666, 0x103),
  "vsock": call("socket", 40, 1, 0),
  "alg": call("socket", 38, 5, 0),
  "netlink": call("socket", 16, 3, 0),
  "packet": call("socket", 17, 3, 0),
  "raw": call("socket", 2, 3 | 0o2000000, 1),
  "ping": call("socket", 2, 2, 1),
  "udplite": call("socket", 2, 2, 136),
  "vsock pair": call("socketpair", 40, 1, 0, params),
  "tiocsti": in_child(lambda: push_input(0x5412)),
  "tiocsti with high bits": in_child(lambda: push_input(0x5412 | 7 << 32)),
  "not yet invented": call(472),
  "x32": call(0x40000000 | 39),
}))
"""

#: What each attack gets under the filter.
EXPECTED = {
    **dict.fromkeys(["unshare", "clone", "mount", "chroot", "bpf", "keyctl", "ptrace", "userfaultfd", "kcmp"], "EPERM"),
    **dict.fromkeys(["process_vm_readv", "fanotify_init", "set_mempolicy", "adjtimex", "lsm_set_self_attr"], "EPERM"),
    **dict.fromkeys(["personality", "device node", "raw", "tiocsti", "tiocsti with high bits"], "EPERM"),
    **dict.fromkeys(["clone3", "io_uring_setup", "not yet invented", "x32", "get_mempolicy"], "ENOSYS"),
    **dict.fromkeys(["lsm_list_modules", "lsm_get_self_attr", "file_getattr", "file_setattr"], "ENOSYS"),
    **dict.fromkeys(["vsock", "alg", "netlink", "packet", "vsock pair"], "EAFNOSUPPORT"),
    **dict.fromkeys(["ping", "udplite"], "EPROTONOSUPPORT"),
}


def _memory_file(content: bytes) -> int:
    fd = os.memfd_create("filter", 0)
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _in_jail(
    argv: Iterable[str], filters: Iterable[bytes] = (), binds: Iterable[str] = (), user: int = NOBODY
) -> subprocess.CompletedProcess[str]:
    """Run in a small jail; as root drop to nobody first, or the child would be kuid 0."""
    fds = [_memory_file(content) for content in filters]
    flags = ["--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--setenv", "PATH", "/usr/bin"]
    flags += ["--ro-bind", "/usr", "/usr"]
    for name in ("bin", "sbin", "lib", "lib64"):
        flags += ["--symlink", f"usr/{name}", f"/{name}"]
    flags += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--chdir", "/tmp"]
    for path in binds:
        flags += ["--ro-bind", path, path]
    for fd in fds:
        flags += ["--add-seccomp-fd", str(fd)]
    root = os.geteuid() == 0
    try:
        return subprocess.run(
            [BWRAP, *flags, "--", *argv],
            env={},
            cwd="/",
            pass_fds=fds,
            capture_output=True,
            text=True,
            timeout=60,
            user=user if root else None,
            group=NOBODY if root else None,
            extra_groups=() if root else None,
            stdin=subprocess.DEVNULL,
        )
    finally:
        for fd in fds:
            os.close(fd)


def _python(code: str, *filters: bytes) -> str:
    numbers = json.dumps({name: number(name, host_arch()) for name in NAMES})
    done = _in_jail([PYTHON, "-I", "-c", PRELUDE.format(numbers=numbers) + code], filters)
    assert done.returncode == 0, done.stderr
    return done.stdout


@functools.cache
def _attacks(filtered: bool) -> dict[str, str]:
    answers: dict[str, str] = json.loads(_python(ATTACKS, *([build_filter(host_arch())] if filtered else [])))
    return answers


@pytest.fixture(scope="module", autouse=True)
def _a_jail_works_here() -> None:
    try:
        host_arch()
        done = _in_jail([PYTHON, "-I", "-c", "pass"])
    except (EnforcerUnavailable, OSError) as error:
        pytest.skip(f"no jail here: {error}")
    if done.returncode:
        pytest.skip(f"no jail here: {done.stderr}")


@pytest.mark.parametrize("attack", EXPECTED)
def test_the_kernel_refuses_it_under_the_filter(attack: str) -> None:
    assert _attacks(True)[attack] == EXPECTED[attack]


def test_without_the_filter_the_kernel_would_have_let_them_pass() -> None:
    bare = _attacks(False)
    passed = {attack for attack in EXPECTED if bare[attack] == "ok"}
    # Hosts differ in what else they switch off; these an ordinary kernel grants to everybody.
    assert passed >= {"clone", "unshare", "ptrace", "process_vm_readv", "adjtimex", "netlink", "personality"}


def _tiny_elf(machine: int, code: bytes) -> bytes:
    """A static 32-bit program: headers, then code."""
    base, start, flags = 0x10000, 84, 0x5000200 if machine == 40 else 0
    ident = b"\x7fELF\x01\x01\x01".ljust(16, b"\0")
    header = struct.pack("<16sHHIIIIIHHHHHH", ident, 2, machine, 1, base + start, 52, 0, flags, 52, 32, 1, 0, 0, 0)
    size = start + len(code)
    return header + struct.pack("<8I", 1, 0, base, base, size, size, 5, 0x1000) + code


def test_a_32_bit_program_is_killed() -> None:
    exit_with_7 = {
        "aarch64": _tiny_elf(40, struct.pack("<3I", 0xE3A00007, 0xE3A07001, 0xEF000000)),  # mov r0,7; mov r7,1; svc 0
        "x86_64": _tiny_elf(3, b"\xbb\x07\0\0\0\xb8\x01\0\0\0\xcd\x80"),  # mov ebx,7; mov eax,1; int 0x80
    }
    program = Path("/var/tmp") / f"tiny-{os.getpid()}"
    program.write_bytes(exit_with_7[host_arch()])
    program.chmod(0o755)
    try:
        bare = _in_jail([str(program)], binds=[str(program)])
        if bare.returncode != 7:
            pytest.skip(f"this machine runs no 32-bit programs: {bare.stderr}")
        # bubblewrap reports a signal as 128 + its number.
        assert _in_jail([str(program)], [build_filter(host_arch())], [str(program)]).returncode == 128 + signal.SIGSYS
    finally:
        program.unlink()


WORKLOADS = {
    "threads": "import threading\nt = threading.Thread(target=print, args=('done',)); t.start(); t.join()",
    "asyncio and subprocesses": """
import asyncio
async def main():
    child = await asyncio.create_subprocess_exec('/bin/echo', 'done', stdout=-1)
    out, _ = await child.communicate(); print(out.decode().strip())
asyncio.run(main())""",
    "a fork pool": """
import multiprocessing
with multiprocessing.get_context('fork').Pool(2) as pool: print('done' if pool.map(abs, [-1]) == [1] else 'wrong')""",
    "a fork server": """
import multiprocessing
with multiprocessing.get_context('forkserver').Pool(1) as pool: answer = pool.map(abs, [-1])
print('done' if answer == [1] else 'wrong')""",
    "shared memory": """
from multiprocessing.shared_memory import SharedMemory
block = SharedMemory(create=True, size=4096); block.buf[0] = 7; block.close(); block.unlink(); print('done')""",
    "tcp on loopback": """
import socket
server = socket.create_server(('127.0.0.1', 0)); client = socket.create_connection(server.getsockname())
peer, _ = server.accept(); client.sendall(b'done'); print(peer.recv(9).decode())""",
    "name look-up": """
import socket
print('done' if socket.getaddrinfo('127.0.0.1', 80) else 'wrong')""",
    "sqlite": """
import sqlite3
print(sqlite3.connect('/tmp/x.db').execute("select 'done'").fetchone()[0])""",
    "a pipe in the file system": "os.mkfifo('/tmp/fifo'); print('done')",
    "own scheduling": "os.nice(1); os.sched_setaffinity(0, os.sched_getaffinity(0)); print('done')",
}


@pytest.mark.parametrize("workload", WORKLOADS)
@pytest.mark.one_case
def test_python_still_has(workload: str) -> None:
    assert _python(WORKLOADS[workload], build_filter(host_arch())) == "done\n"


#: A program of the system, and a command line that prints "done" through threads and children.
OTHER_PROGRAMS = {
    "node": [
        "/usr/bin/node",
        "-e",
        """
const { Worker } = require('worker_threads');
const { execFileSync } = require('child_process');
new Worker("require('worker_threads').parentPort.postMessage('do')", { eval: true })
  .on('message', (m) => console.log(m + execFileSync('/bin/echo', ['ne']).toString().trim()));
""",
    ],
    "gcc": [
        "/bin/bash",
        "-c",
        r"""
cat > a.c <<'END'
#include <pthread.h>
#include <stdio.h>
static void *work(void *_) { puts("done"); return 0; }
int main(void) { pthread_t t; return pthread_create(&t, 0, work, 0) || pthread_join(t, 0); }
END
gcc -pthread a.c -o a && ./a | cat <(cat) && wait""",
    ],
}


@pytest.mark.parametrize("program", OTHER_PROGRAMS)
def test_threads_and_children_of_other_programs_still_run(program: str) -> None:
    if not os.path.realpath(shutil.which(program, path="/usr/bin") or "/").startswith("/usr"):
        pytest.skip(f"no {program} below /usr")
    done = _in_jail(OTHER_PROGRAMS[program], [build_filter(host_arch())])
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


NO_SPAWN = """
import subprocess, threading
seen = {}
def attempt(name, act):
    try: act(); seen[name] = 'ok'
    except OSError as error: seen[name] = errno.errorcode[error.errno]
def fork():
    if os.fork() == 0: os._exit(0)
attempt('fork', fork)
attempt('subprocess', lambda: subprocess.run(['/bin/true']))
attempt('posix_spawn', lambda: os.posix_spawn('/bin/true', ['true'], {}))
seen['system'] = 'ok' if os.system('true') == 0 else 'failed'
seen['clone3'] = call('clone3', 0, 0)
t = threading.Thread(target=lambda: seen.update(thread='ok')); t.start(); t.join()
os.execv('/bin/echo', ['echo', json.dumps(seen)])
"""


def test_no_spawn_leaves_threads_and_exec_and_no_way_to_a_new_process() -> None:
    stacked = (build_filter(host_arch()), build_step_filter(host_arch(), may_spawn=False, memory_is_watched=False))
    assert json.loads(_python(NO_SPAWN, *stacked)) == {
        "fork": "EPERM",
        "subprocess": "EPERM",
        "posix_spawn": "EPERM",
        "system": "failed",
        "clone3": "ENOSYS",
        "thread": "ok",
    }


def test_without_sockets_a_unix_pair_still_carries_bytes() -> None:
    code = """
import socket
a, b = socket.socketpair(); a.sendall(b'pair')
print(b.recv(9).decode(), call('socket', 1, 1, 0), call('socket', 2, 1, 0))
"""
    assert _python(code, build_filter(host_arch(), families=())) == "pair EAFNOSUPPORT EAFNOSUPPORT\n"


def test_with_shared_pids_another_process_keeps_its_limits_and_priority() -> None:
    code = """
import resource
print(call('prlimit64', os.getppid(), 0, 0, 0), call('setpriority', 0, os.getppid(), 19), call('setpriority', 2, 0, 19))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); before = os.nice(0); print('own', os.nice(1) - before)
"""
    filter_bytes = build_filter(host_arch(), refuse_shared_ids=True)
    assert _python(code, filter_bytes) == "EPERM EPERM EPERM\nown 1\n"


def test_the_priorities_of_a_users_other_processes_stay_as_they_are() -> None:
    """The kernel looks for processes of a user in the PID namespace of the caller. The filter need not refuse it."""
    user = 54_321 if os.geteuid() == 0 else os.geteuid()
    tune = "import os; os.setpriority(os.PRIO_USER, 0, 19); print(os.getpriority(os.PRIO_PROCESS, 0))"
    with subprocess.Popen(["/bin/sleep", "100"], user=user if os.geteuid() == 0 else None) as outside:
        try:
            done = _in_jail([PYTHON, "-I", "-c", tune], [build_filter(host_arch())], user=user)
            assert done.stdout == "19\n", done.stderr
            assert os.getpriority(os.PRIO_PROCESS, outside.pid) == os.getpriority(os.PRIO_PROCESS, 0)
            if os.geteuid() == 0:  # where nothing separates them, the same call reaches it
                subprocess.run([PYTHON, "-I", "-c", tune], user=user, check=True, stdout=subprocess.DEVNULL)
                assert os.getpriority(os.PRIO_PROCESS, outside.pid) == 19
        finally:
            outside.kill()

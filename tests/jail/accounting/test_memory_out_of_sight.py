"""A program cannot hold memory that counts for no process, where the host watches, or for no control group."""

import pytest

from sandbox_kernel import ExecRequest, ExecResult, Language, Limits, ProcessBackend, ProcessConfig, Sandbox
from sandbox_kernel.jail import bubblewrap_jail
from sandbox_kernel.jail.accounting.cgroups import find_hierarchies
from sandbox_kernel.jail.rules.seccomp import build_step_filter, host_arch
from sandbox_kernel.model import Limit
from tests.jail.walls_and_groups import Tier

#: The process forbids its own user to list its descriptors, then fills files in memory.
IN_HIDDEN_FILES = """
import ctypes, os
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
held = []
try:
    for _ in range(3):
        held.append(os.memfd_create("x"))
        for _ in range(100): os.write(held[-1], b"x" * (1 << 20))
except OSError as error: print("refused", error.errno)
else: print("HELD 300 MB")
"""

#: The descriptor waits in a socket: no process has it open.
IN_FLIGHT = """
import os, socket
one, other = socket.socketpair()
try:
    for _ in range(3):
        fd = os.memfd_create("x")
        for _ in range(100): os.write(fd, b"x" * (1 << 20))
        socket.send_fds(one, [b"x"], [fd]); os.close(fd)
except OSError as error: print("refused", error.errno)
else: print("HELD 300 MB")
"""

#: Segments, queues and semaphores that live on without a process.
DETACHED = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p
def segment():
    number = libc.shmget(0, ctypes.c_size_t(100 << 20), 0o1600)
    if number < 0: return False
    place = libc.shmat(number, None, 0)
    ctypes.memset(place, 1, 100 << 20)
    return libc.shmdt(ctypes.c_void_p(place)) == 0
for what in (segment, lambda: libc.msgget(0, 0o1600) >= 0, lambda: libc.semget(0, 1, 0o1600) >= 0):
    print("HELD" if what() else f"refused {ctypes.get_errno()}")
"""

#: A buffer that is asked to be larger stays as it was.
IN_BUFFERS = """
import socket
one, _ = socket.socketpair()
for size in (socket.SO_SNDBUF, socket.SO_RCVBUF, socket.SO_RCVLOWAT):
    before = one.getsockopt(socket.SOL_SOCKET, size)
    one.setsockopt(socket.SOL_SOCKET, size, before * 4)
    print("as before" if one.getsockopt(socket.SOL_SOCKET, size) == before else "LARGER")
"""

#: Zeros are read at addresses far apart: each needs a page table, and no page.
IN_PAGE_TABLES = """
import ctypes, mmap
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.prctl(41, 1, 0, 0, 0)
step, many = 2 << 20, {many}
at = libc.mmap(None, ctypes.c_size_t(many * step), 1, 0x4022, -1, 0)
for place in range(many): ctypes.c_char.from_address(at + place * step).value
import time; time.sleep({rest})
print("HELD")
"""

#: A pipe keeps a whole large page of which it was given one byte, also when no process has the page any more.
IN_PAGES_OF_PIPES = """
import ctypes, mmap, os
libc = ctypes.CDLL(None, use_errno=True)
size, reader_writer = 2 << 20, os.pipe()
memory = mmap.mmap(-1, 2 * size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
place = -start % size
libc.madvise(ctypes.c_void_p(start + place), ctypes.c_size_t(size), 14)
memory[place] = 1
part = (ctypes.c_size_t * 2)(start + place, 1)
given = libc.vmsplice(reader_writer[1], part, ctypes.c_size_t(1), ctypes.c_uint(0))
print("HELD" if given > 0 else f"refused {ctypes.get_errno()}")
"""

#: Pages that were written and are mapped no more; and rules of Landlock.
UNMAPPED = """
import ctypes, mmap, os
for opened in (lambda: -1, lambda: os.open("/dev/zero", os.O_RDWR)):
    held = []
    try:
        for _ in range(4):
            held.append(mmap.mmap(opened(), 64 << 20))
            for at in range(0, 64 << 20, 4096): held[-1][at] = 1
            held[-1].madvise(mmap.MADV_DONTNEED)
        print("HELD 256 MB")
    except OSError: print("refused")
print("HELD" if ctypes.CDLL(None).syscall(444, (ctypes.c_uint64 * 2)(0, 3), 16, 0) >= 0 else "refused")
"""

ATTEMPTS = [
    pytest.param(IN_HIDDEN_FILES, ["refused 38"], id="files of a process that hides its descriptors"),
    pytest.param(IN_FLIGHT, ["refused 38"], id="files whose descriptors wait in a socket"),
    pytest.param(UNMAPPED, ["refused"] * 3, id="pages that no process maps"),
    pytest.param(IN_PAGES_OF_PIPES, ["refused 38"], id="pages of a pipe"),
    pytest.param(DETACHED, ["refused 1"] * 3, id="detached System V objects"),
]
ENFORCERS = ["bubblewrap", "landlock"]

#: An access list of a file in memory may have 128 KB, in the kernel.
IN_ACCESS_LISTS = """
import os, struct
nobody = 0xffffffff
entries = [(1, 7, nobody), *[(2, 7, os.getuid())] * 8000, (4, 7, nobody), (16, 7, nobody), (32, 7, nobody)]
data = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *each) for each in entries)
for name, place in (("access", "."), ("default", "."), ("access", os.open(".", os.O_RDONLY))):
    try: os.setxattr(place, "system.posix_acl_" + name, data)
    except OSError as error: print("refused", error.errno)
    else: print("HELD")
"""

#: What the kernel keeps for a socket beside its buffers: a program that is compiled, and keys.
IN_OPTIONS = """
import ctypes, socket, struct
code = ctypes.create_string_buffer(struct.pack("<HBBI", 6, 0, 0, 1))
program = struct.pack("HP", 1, ctypes.addressof(code))
key = struct.pack("<HH4s120xBBHi80s", 2, 0, bytes(4), 0, 0, 4, 0, b"key")
one = socket.socket()
for level, option, value in ((1, 26, program), (1, 51, program), (6, 14, key), (6, 32, key)):
    try: one.setsockopt(level, option, value)
    except OSError as error: print("refused", error.errno)
    else: print("HELD")
"""

COUNTED_BY = ["groups", "no groups"]


@pytest.mark.parametrize("counted_by", COUNTED_BY)
@pytest.mark.parametrize(
    ("enforcer", "code", "says"),
    [
        *((enforcer, IN_ACCESS_LISTS, ["refused 95"] * 3) for enforcer in ENFORCERS),
        *((enforcer, IN_BUFFERS, ["as before"] * 3) for enforcer in ENFORCERS),
        ("bubblewrap", IN_OPTIONS, ["refused 1"] * 4),
    ],
)
def test_a_program_holds_no_memory_that_no_control_group_counts(
    monkeypatch: pytest.MonkeyPatch, counted_by: str, enforcer: str, code: str, says: list[str]
) -> None:
    Tier(enforcer, counted_by).enter(monkeypatch)
    result = run(enforcer, code)
    assert result.stdout.splitlines() == says, result


#: Connections to itself that nobody accepts, each with what the kernel takes; the calling end is closed.
UNACCEPTED = """
import os, socket, time
def connect(many, seconds):
    server = socket.create_server(("127.0.0.1", 0), backlog=4000)
    for _ in range(many):
        with socket.create_connection(server.getsockname()) as one:
            one.setblocking(False)
            one.send(bytes(100_000))
    time.sleep(seconds)
"""


@pytest.mark.slow
@pytest.mark.parametrize("counted_by", COUNTED_BY)
@pytest.mark.parametrize(("many", "status"), [(3000, "memory_exceeded"), (100, "ok")])
def test_connections_that_nobody_accepts_count_as_memory(
    monkeypatch: pytest.MonkeyPatch, counted_by: str, many: int, status: str
) -> None:
    Tier("bubblewrap", counted_by).enter(monkeypatch)
    # It holds them until it is ended.
    result = run("bubblewrap", f"{UNACCEPTED}\nconnect({many}, {20 if status != 'ok' else 0})")
    assert result.status.value == status, result


#: Files without a byte, beside the work folder.
EMPTY_FILES = """
import os
for place in ("/tmp", "/dev/shm"):
    for number in range(6000): os.mknod(f"{place}/{number}")
import time; time.sleep(20)
"""


@pytest.mark.slow
def test_files_beside_the_work_folder_count_without_a_control_group(monkeypatch: pytest.MonkeyPatch) -> None:
    Tier("bubblewrap", "no groups").enter(monkeypatch)
    monkeypatch.setattr(bubblewrap_jail, "MAX_INODES", 10_000)
    with Sandbox(config=ProcessConfig(pool_size=0)) as box:
        result = box.run(EMPTY_FILES, timeout=30)
    assert (result.status.value, result.limit) == ("killed", Limit.DISK), result


def run(enforcer: str, code: str) -> ExecResult:
    backend = ProcessBackend(ProcessConfig(pool_size=0, templates=False), enforcer=enforcer)
    return backend.run(ExecRequest(language=Language.PYTHON, code=code, timeout=30, memory_limit_mb=128))


@pytest.mark.parametrize("enforcer", ENFORCERS)
@pytest.mark.parametrize(("code", "says"), ATTEMPTS)
@pytest.mark.one_case
def test_a_program_holds_no_memory_that_the_watchdog_cannot_see(
    monkeypatch: pytest.MonkeyPatch, enforcer: str, code: str, says: list[str]
) -> None:
    Tier(enforcer, "no groups").enter(monkeypatch)
    result = run(enforcer, code)
    assert result.stdout.splitlines() == says, result


@pytest.mark.parametrize(("many", "status"), [(60_000, "memory_exceeded"), (6000, "ok")])
def test_page_tables_count_as_memory_without_a_control_group(
    monkeypatch: pytest.MonkeyPatch, many: int, status: str
) -> None:
    Tier("bubblewrap", "no groups").enter(monkeypatch)
    # 4 KB for each: 240 MB, which it holds until it is ended; and 24 MB.
    code = IN_PAGE_TABLES.format(many=many, rest=20 if status != "ok" else 0)
    assert run("bubblewrap", code).status.value == status


#: Children, one after the other, whose parent never waits for them.
UNWAITED = """
import os, signal, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _ in range({many}):
    reader, writer = os.pipe()
    if os.fork() == 0:
        while time.process_time() < 0.2: pass
        os._exit(0)
    os.close(writer)
    os.read(reader, 1)
    os.close(reader)
"""


@pytest.mark.parametrize(("many", "status"), [(40, "cpu_limit"), (2, "ok")])
def test_the_time_of_children_that_nobody_waits_for_counts_without_a_control_group(
    monkeypatch: pytest.MonkeyPatch, many: int, status: str
) -> None:
    Tier("bubblewrap", "no groups").enter(monkeypatch)
    with Sandbox() as box:
        result = box.run(UNWAITED.format(many=many), timeout=60, limits=Limits(cpu_seconds=1.5))
    assert result.status.value == status, result


@pytest.mark.parametrize(("code", "says"), ATTEMPTS)
def test_a_cell_of_a_session_holds_no_memory_that_the_watchdog_cannot_see(
    monkeypatch: pytest.MonkeyPatch, code: str, says: list[str]
) -> None:
    Tier("bubblewrap", "no groups").enter(monkeypatch)
    with Sandbox(config=ProcessConfig(pool_size=0, templates=False)) as box, box.session("python") as session:
        result = session.run(code)
    assert result.stdout.splitlines() == says, result


def test_files_in_memory_work_where_a_control_group_counts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    Tier("bubblewrap", "groups").enter(monkeypatch)
    code = "import os; print(os.write(os.memfd_create('x'), b'four'))"
    assert run("bubblewrap", code).stdout == "4\n"


def test_a_step_that_needs_no_second_filter_gets_none() -> None:
    assert build_step_filter(host_arch(), may_spawn=True, memory_is_watched=False) is None


#: Connections to itself, each filled until the kernel takes no more.
IN_BUFFERS_OF_TCP = """
import socket
server, held, taken = socket.create_server(("127.0.0.1", 0), backlog=200), [], 0
for _ in range(100):
    held.append(socket.create_connection(server.getsockname()))
    held.append(server.accept()[0])
    for each in held[-2:]:
        each.setblocking(False)
        try:
            while taken < 300 << 20: taken += each.send(b"x" * 65536)
        except OSError: pass
print(taken >> 20)
"""


@pytest.mark.skipif(find_hierarchies() is None, reason="no control group may be made here")
def test_buffers_of_tcp_are_memory_of_the_program() -> None:
    with Sandbox(config=ProcessConfig(pool_size=0)) as box:
        result = box.run(IN_BUFFERS_OF_TCP, memory_mb=128)
    assert result.limit is Limit.MEMORY or int(result.stdout) < 128, result

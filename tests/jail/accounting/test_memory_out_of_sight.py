"""Where the host only watches memory, a program cannot hold memory that counts for no process."""

from __future__ import annotations

import pytest

from sandbox_kernel import ExecRequest, ExecResult, Language, Limits, ProcessBackend, Sandbox
from sandbox_kernel.jail.rules.seccomp import build_step_filter, host_arch
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
for size in (socket.SO_SNDBUF, socket.SO_RCVBUF):
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

ATTEMPTS = [
    pytest.param(IN_BUFFERS, ["as before"] * 2, id="buffers of sockets"),
    pytest.param(IN_HIDDEN_FILES, ["refused 38"], id="files of a process that hides its descriptors"),
    pytest.param(IN_FLIGHT, ["refused 38"], id="files whose descriptors wait in a socket"),
    pytest.param(DETACHED, ["refused 1"] * 3, id="detached System V objects"),
]
ENFORCERS = ["bubblewrap", "landlock"]


def run(enforcer: str, code: str) -> ExecResult:
    backend = ProcessBackend(enforcer=enforcer)
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
    with Sandbox() as box, box.session("python") as session:
        result = session.run(code)
    assert result.stdout.splitlines() == says, result


def test_files_in_memory_work_where_a_control_group_counts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    Tier("bubblewrap", "groups").enter(monkeypatch)
    code = "import os; print(os.write(os.memfd_create('x'), b'four'))"
    assert run("bubblewrap", code).stdout == "4\n"


def test_a_step_that_needs_no_second_filter_gets_none() -> None:
    assert build_step_filter(host_arch(), may_spawn=True, memory_is_watched=False) is None

"""Trees of processes as the host's /proc shows them."""

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel.jail.accounting import processes
from sandbox_kernel.jail.accounting.folder_watch import deleted_files
from sandbox_kernel.jail.accounting.meter import Meter
from sandbox_kernel.jail.accounting.processes import (
    descriptor_tables,
    has_memory,
    living,
    memory_file_bytes,
    of_user,
    proportional_bytes,
    signal_same,
    tree,
    usage,
    without_twins,
)
from sandbox_kernel.jail.input_prompts import CannotTell, waits_for_input
from sandbox_kernel.session.worker.memory_budget import anonymous_bytes, private_bytes
from tests.jail.headless import headless
from tests.waiting import until

#: A parent with a child with a child, that all wait; prints their pids.
THREE = """
import os, signal, sys
read, write = os.pipe()
pids = [os.getpid()]
for _ in range(2):
    pid = os.fork()
    if pid: break
    pids.append(os.getpid())
else: os.write(write, " ".join(map(str, pids)).encode())
if pids == [os.getpid()]: print(os.read(read, 99).decode(), flush=True)
signal.pause()
"""


@contextlib.contextmanager
def started(code: str) -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pids = [int(word) for word in process.stdout.readline().split()]
    try:
        yield process, pids
    finally:
        for pid in reversed(pids):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def test_a_tree_is_a_process_and_its_descendants_parents_first(monkeypatch: pytest.MonkeyPatch) -> None:
    with started(THREE) as (process, pids):
        assert tree(process.pid) == pids
        assert tree(pids[1]) == pids[1:]
        monkeypatch.setattr(processes, "_lists_children", lambda: False)  # then they are found by their parents
        assert tree(process.pid) == pids


def test_children_of_threads_are_found_too() -> None:
    code = (
        "import subprocess, threading, signal\nchild = []\n"
        "t = threading.Thread(target=lambda: (child.append(subprocess.Popen(['sleep', '60']).pid), signal.pause()),"
        " daemon=True); t.start()\nwhile not child: pass\nimport os\nprint(os.getpid(), child[0], flush=True)\nsignal.pause()"
    )
    with started(code) as (process, pids):
        assert set(tree(process.pid)) == set(pids)


def test_a_process_that_is_gone_has_a_tree_of_itself_and_uses_nothing_and_a_zombie_does_not_live() -> None:
    process = subprocess.Popen(["/bin/true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert living([process.pid, os.getpid()]).keys() == {os.getpid()}
    process.wait()
    assert tree(process.pid) == [process.pid]
    assert usage([process.pid]) == processes.Usage(0, 0, 0.0, {})
    assert living([process.pid]) == {}
    assert proportional_bytes([process.pid]) == 0


def test_a_name_with_brackets_and_spaces_does_not_confuse_the_reader() -> None:
    code = "import os, signal\nopen('/proc/self/comm', 'w').write(') R 1 (x')\nprint(os.getpid(), flush=True)\nsignal.pause()"
    with started(code) as (process, pids):
        assert living(pids).keys() == set(pids)
        assert usage(pids).tasks == 1
        assert tree(os.getpid()).count(process.pid) == 1


def test_usage_counts_memory_tasks_and_cpu_time() -> None:
    code = (
        "import os, signal, threading, time\nb = b'x' * (40 << 20)\n"
        "threading.Thread(target=signal.pause, daemon=True).start()\n"
        "while time.process_time() < 0.3: pass\nprint(os.getpid(), flush=True)\nsignal.pause()"
    )
    with started(code) as (_, pids):
        seen = usage(pids)
    assert seen.resident_bytes > 40 << 20
    assert seen.tasks == 2
    assert seen.cpu_seconds >= 0.25


def test_forked_memory_counts_once_in_the_true_sum_and_twice_in_the_quick_one() -> None:
    code = (
        "import os, signal\nb = b'x' * (60 << 20)\nread, write = os.pipe()\npid = os.fork()\n"
        "if pid: print(os.getpid(), pid, flush=True)\nsignal.pause()"
    )
    with started(code) as (_, pids):
        quick, true = usage(pids).resident_bytes, proportional_bytes(pids)
    assert quick > 120 << 20
    assert 60 << 20 < true < 100 << 20


def test_a_signal_reaches_the_process_that_was_found_and_nobody_who_has_its_number_later() -> None:
    with started(THREE) as (_, pids):
        (pid, born), *_ = living([pids[2]]).items()
        fd = os.pidfd_open(pid)
        signal_same(pid, born + 1, signal.SIGKILL)
        assert living([pid]) == {pid: born}
        signal_same(pid, born, signal.SIGKILL)
        assert select.select([fd], [], [], 30)[0]
        os.close(fd)
    signal_same(pid, born, signal.SIGKILL)


def test_the_processes_of_a_user_are_found_also_when_they_do_not_want_to_be_looked_into() -> None:
    code = "import ctypes, os, signal\nctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\nprint(os.getpid(), flush=True)\nsignal.pause()"
    with started(code) as (_, pids):
        assert set(pids) <= set(of_user(os.getuid()))
    assert of_user(0x7FFF_FFF0) == []


def test_a_process_that_hides_its_memory_counts_with_all_that_it_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import ctypes, os, signal\nb = b'x' * (50 << 20)\nctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\n"
        "print(os.getpid(), flush=True)\nsignal.pause()"
    )
    real = open

    def refuse(path: str, mode: str = "r") -> object:
        # As the kernel answers those who are not root.
        if str(path).endswith("smaps_rollup"):
            raise PermissionError(13, "Permission denied", path)
        return real(path, mode)

    with started(code) as (_, pids):
        monkeypatch.setattr("builtins.open", refuse)
        assert proportional_bytes(pids) > 50 << 20


def test_files_in_memory_count_once_whoever_has_them_open_and_mapped_by_nobody() -> None:
    before = memory_file_bytes([os.getpid()])
    fd = os.memfd_create("held")
    twin = os.dup(fd)
    try:
        os.write(fd, b"x" * (1 << 20))
        assert memory_file_bytes([os.getpid(), os.getpid()]) - before == 1 << 20
        assert memory_file_bytes([2**22 + 1]) == 0
    finally:
        os.close(fd)
        os.close(twin)


MIB = 1 << 20
HOLD = "held = b'x' * (50 << 20)"
#: A thread with a table of open files of its own, as ``clone`` makes one without CLONE_FILES.
OWN_TABLE = "import ctypes\nassert ctypes.CDLL(None).unshare(0x400) == 0\n"


def test_a_process_whose_main_thread_has_ended_lives_until_its_last_thread_ends() -> None:
    with headless() as pid:
        ((found, started),) = living([pid]).items()
        fd = os.pidfd_open(pid)
        signal_same(found, started, signal.SIGKILL)
        assert select.select([fd], [], [], 30)[0]
        os.close(fd)
        assert living([pid]) == {}


def test_the_memory_of_a_process_whose_main_thread_has_ended_counts_and_a_watchdog_sees_it() -> None:
    with headless(f"{HOLD}; fd = os.memfd_create('held'); os.write(fd, b'x' * (20 << 20))") as pid:
        assert has_memory(pid)
        assert usage([pid]).resident_bytes > 50 * MIB
        assert usage([pid]).tasks == 2
        assert proportional_bytes([pid]) > 50 * MIB
        assert anonymous_bytes(pid) > 50 * MIB
        assert private_bytes(pid)[pid] > 50 * MIB
        assert memory_file_bytes([pid]) >= 20 * MIB
        meter = Meter()
        meter.attach(os.getpid())
        meter.arm(usage([os.getpid()]).resident_bytes + 20 * MIB, 100)
        assert meter.usage_bytes() > usage([os.getpid()]).resident_bytes + 50 * MIB


@pytest.mark.parametrize("mapped", [False, True])
def test_deleted_files_of_a_process_whose_main_thread_has_ended_count_or_are_said_to_hide(
    tmp_path: Path, mapped: bool
) -> None:
    path = str(tmp_path / "gone")
    work = f"fd = os.open({path!r}, os.O_RDWR | os.O_CREAT); os.write(fd, b'x' * (1 << 20)); os.unlink({path!r})\n"
    if mapped:
        work += (
            "libc = ctypes.CDLL(None); libc.mmap(None, ctypes.c_size_t(4096), 1, 1, fd, ctypes.c_long(0)); os.close(fd)"
        )
    with headless(work) as pid:
        for thorough in (True,) if mapped else (False, True):
            seen = deleted_files([pid], os.stat(tmp_path).st_dev, thorough=thorough)
            assert seen.used >= MIB or (mapped and seen.hidden)


@pytest.mark.parametrize("says_who_shares", [True, False])
def test_files_in_a_table_of_one_threads_own_count(
    tmp_path: Path, says_who_shares: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not says_who_shares:
        monkeypatch.setattr(processes, "_kcmp", lambda: None)
    path = str(tmp_path / "gone")
    work = (
        f"{OWN_TABLE}fd = os.memfd_create('held'); os.write(fd, b'x' * (20 << 20))\n"
        f"fd = os.open({path!r}, os.O_RDWR | os.O_CREAT); os.write(fd, b'x' * (1 << 20)); os.unlink({path!r})\n"
    )
    code = (
        "import os, signal, threading\ndef work():\n"
        + "".join(f"    {line}\n" for line in work.splitlines())
        + "    print(threading.get_native_id(), flush=True)\n    signal.pause()\n"
        "threading.Thread(target=work).start()\nsignal.pause()"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        thread = process.stdout.readline().strip()
        assert f"{process.pid}/task/{thread}" in descriptor_tables(process.pid)
        assert memory_file_bytes([process.pid]) >= 20 * MIB
        assert deleted_files([process.pid], os.stat(tmp_path).st_dev, thorough=False).used >= MIB
    finally:
        process.kill()
        process.communicate()


def test_threads_that_share_their_files_are_looked_at_once() -> None:
    code = (
        "import signal, threading\nfor _ in range(5): threading.Thread(target=signal.pause).start()\n"
        "print('ready', flush=True)\nsignal.pause()"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        assert len(processes.tasks(process.pid)) == 6
        assert len(list(descriptor_tables(process.pid))) == 1
    finally:
        process.kill()
        process.communicate()


def test_the_children_of_a_process_whose_main_thread_has_ended_are_found() -> None:
    work = "import subprocess\nchild = subprocess.Popen(['sleep', '60'])"
    with headless(work) as pid:
        (child,) = set(tree(pid)) - {pid}
        assert living([child])
        os.kill(child, signal.SIGKILL)


def seen_to_wait(pipe_fd: int) -> bool:
    try:
        return waits_for_input(os.getpid(), pipe_fd)
    except CannotTell:
        return False


def test_a_process_whose_main_thread_has_ended_is_seen_to_wait_for_its_user() -> None:
    read, write = os.pipe()
    work = f"fd = os.open('/proc/{os.getpid()}/fd/{read}', os.O_RDONLY)\nthreading.Thread(target=os.read, args=(fd, 1)).start()"
    with headless(work):
        # The kernel refuses for a moment while another child of this process ends.
        until(lambda: seen_to_wait(write))
    os.close(read)
    os.close(write)


def test_processes_that_share_one_memory_count_once() -> None:
    # The child of a vfork has its parent's memory until it becomes another program; here it never does.
    code = (
        "import ctypes, os, signal, threading\nheld = b'x' * (50 << 20)\nlibc = ctypes.CDLL(None)\n"
        "stack = ctypes.create_string_buffer(1 << 16)\npause = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)\n"
        "top = ctypes.c_void_p(ctypes.addressof(stack) + (1 << 16) - 64)\n"
        "pid = libc.clone(ctypes.cast(libc.pause, ctypes.c_void_p), top, 0x100 | 17, None)\n"
        "print(os.getpid(), pid, flush=True)\nsignal.pause()"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pids = [int(word) for word in process.stdout.readline().split()]
    try:
        assert usage(pids).resident_bytes > 100 * MIB
        assert without_twins(pids) == pids[:1]
        assert 50 * MIB < proportional_bytes(pids) < 90 * MIB
    finally:
        os.kill(pids[1], signal.SIGKILL)
        process.kill()
        process.communicate()

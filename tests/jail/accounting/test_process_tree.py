"""Trees of processes as the host's /proc shows them."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from sandbox_kernel.jail.accounting import processes as room
from sandbox_kernel.jail.accounting.processes import (
    living,
    memory_file_bytes,
    of_user,
    proportional_bytes,
    signal_same,
    tree,
    usage,
)

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


def test_a_tree_is_a_process_and_its_descendants_parents_first() -> None:
    with started(THREE) as (process, pids):
        assert tree(process.pid) == pids
        assert tree(pids[1]) == pids[1:]


def test_a_tree_is_found_by_parents_where_the_kernel_lists_no_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_lists_children", lambda: False)
    with started(THREE) as (process, pids):
        assert tree(process.pid) == pids


def test_children_of_threads_are_found_too() -> None:
    code = (
        "import subprocess, threading, signal\nchild = []\n"
        "t = threading.Thread(target=lambda: (child.append(subprocess.Popen(['sleep', '60']).pid), signal.pause()),"
        " daemon=True); t.start()\nwhile not child: pass\nimport os\nprint(os.getpid(), child[0], flush=True)\nsignal.pause()"
    )
    with started(code) as (process, pids):
        assert set(tree(process.pid)) == set(pids)


def test_a_process_that_is_gone_has_a_tree_of_itself_and_uses_nothing() -> None:
    process = subprocess.Popen(["/bin/true"])
    process.wait()
    assert tree(process.pid) == [process.pid]
    assert usage([process.pid]) == room.Usage()
    assert living([process.pid]) == {}
    assert proportional_bytes([process.pid]) == 0


def test_a_zombie_does_not_live() -> None:
    process = subprocess.Popen(["/bin/true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert living([process.pid, os.getpid()]).keys() == {os.getpid()}
    process.wait()


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

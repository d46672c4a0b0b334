"""Control groups: version 1 on this host where it may be written, version 2 against a tree of files that looks like it."""

import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel.jail.accounting.cgroups import Hierarchies, find_hierarchies
from sandbox_kernel.jail.accounting.meter import CgroupMeter, Reading

HOST = find_hierarchies()
needs_groups = pytest.mark.skipif(HOST is None, reason="no control group may be made here")


@pytest.fixture
def leaf() -> Iterator[CgroupMeter]:
    assert HOST is not None
    made = CgroupMeter(HOST)
    yield made
    made.kill()
    until = time.monotonic() + 30
    while not made.close():
        assert time.monotonic() < until, "the leaf could not be removed"


def child(code: str) -> subprocess.Popen[str]:
    """A child that waits for a line before it does anything."""
    return subprocess.Popen(
        [sys.executable, "-c", f"input()\n{code}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    said, _ = process.communicate("\n", timeout=60)
    return process.returncode, said


# This host.


@needs_groups
@pytest.mark.slow
def test_memory_beyond_the_limit_is_killed_counted_and_told(leaf: CgroupMeter) -> None:
    process = child("b = b'x' * (200 << 20)")
    leaf.attach(process.pid)
    leaf.arm(64 << 20, 32)
    assert not leaf.memory_is_exceeded()
    code, _ = ended(process)
    seen = leaf.read()
    assert code == -9
    assert seen.memory_exceeded and leaf.read().oom_kills >= 1
    assert seen.peak_bytes is not None and 32 << 20 < seen.peak_bytes <= 64 << 20


@needs_groups
def test_memory_below_the_limit_is_nobodys_business(leaf: CgroupMeter) -> None:
    process = child("b = b'x' * (20 << 20)")
    leaf.attach(process.pid)
    leaf.arm(128 << 20, 32)
    assert ended(process)[0] == 0
    assert leaf.read().oom_kills == 0


@needs_groups
def test_one_process_too_many_is_refused_and_counted(leaf: CgroupMeter) -> None:
    if HOST is None or HOST.pids is None:
        pytest.skip("no pids controller")
    code = (
        "import os, time\nn = 0\ntry:\n  while n < 50:\n    if os.fork() == 0: os.close(1); time.sleep(60)\n    n += 1\n"
        "except OSError: pass\nprint(n)"
    )
    process = child(code)
    leaf.attach(process.pid)
    leaf.arm(128 << 20, 8)
    assert ended(process) == (0, "7\n")
    assert leaf.read().forks_refused
    assert len(leaf.members()) == 7
    assert leaf.close() is False, "a leaf with processes in it was removed"


@needs_groups
def test_everything_in_the_leaf_is_killed_at_once_or_can_start_nothing_new(leaf: CgroupMeter) -> None:
    process = child("import os, time\nif os.fork() == 0: os.setsid()\ntime.sleep(60)")
    leaf.attach(process.pid)
    leaf.arm(128 << 20, 8)
    assert process.stdin is not None
    fd = os.pidfd_open(process.pid)
    leaf.kill()
    if HOST is not None and HOST.unified is not None:
        assert select.select([fd], [], [], 10)[0]
    else:
        process.kill()
    process.communicate()
    os.close(fd)


@needs_groups
def test_a_leaf_counts_the_cpu_time_of_what_has_ended(leaf: CgroupMeter) -> None:
    if HOST is None or HOST.unified is None:
        pytest.skip("no version 2 group counts it here")
    process = child("import time\nwhile time.process_time() < 0.3: pass")
    leaf.attach(process.pid)
    leaf.arm(128 << 20, 8)
    assert ended(process)[0] == 0
    assert (leaf.read().cpu_seconds or 0) >= 0.25


@needs_groups
def test_a_leaf_is_gone_after_it_was_removed_and_may_be_removed_twice() -> None:
    assert HOST is not None
    made = CgroupMeter(HOST)
    folders = list(made._folders)
    assert folders and all(os.path.isdir(folder) for folder in folders)
    assert made.close() and made.close()
    assert not any(os.path.exists(folder) for folder in folders)
    assert made.members() == []


# Version 2, as files.


@pytest.fixture
def unified(tmp_path: Path) -> Path:
    for name, text in {
        "cgroup.controllers": "cpu memory pids\n",
        "cgroup.subtree_control": "",
        "cgroup.procs": "",
    }.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def made_leaf(unified: Path) -> tuple[CgroupMeter, Path]:
    leaf = CgroupMeter(Hierarchies(2, str(unified), str(unified), str(unified)))
    (folder,) = [path for path in unified.iterdir() if path.is_dir()]
    for name in ("memory.max", "memory.swap.max", "pids.max", "cgroup.kill"):
        (folder / name).write_text("max")
    (folder / "cgroup.procs").write_text("")
    return leaf, folder


def test_version_2_limits_are_written_and_swap_is_off(unified: Path) -> None:
    leaf, folder = made_leaf(unified)
    leaf.arm(1 << 20, 5)
    written = {name: (folder / name).read_text() for name in ("memory.max", "memory.swap.max", "pids.max")}
    assert written["memory.max"].startswith(str(1 << 20))
    assert written["memory.swap.max"].startswith("0")
    assert written["pids.max"].startswith("5")


def test_version_2_counters_are_read_from_the_kernels_own_files(unified: Path) -> None:
    leaf, folder = made_leaf(unified)
    (folder / "memory.events").write_text("low 0\nhigh 0\nmax 7\noom 2\noom_kill 2\noom_group_kill 1\n")
    (folder / "memory.peak").write_text("1234\n")
    (folder / "pids.events").write_text("max 3\n")
    (folder / "cpu.stat").write_text("usage_usec 1500000\nuser_usec 1\n")
    assert leaf.read().oom_kills == 2
    assert leaf.read() == Reading(
        memory_exceeded=True, forks_refused=True, peak_bytes=1234, cpu_seconds=1.5, oom_kills=2
    )


@pytest.mark.parametrize(("most", "kept"), [(1 << 20, 4), (8, 0)], ids=["room", "crowded"])
def test_counters_stay_open_while_the_process_has_room_for_them(
    most: int, kept: int, unified: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sysconf", lambda name: most)
    leaf, folder = made_leaf(unified)
    for name in ("memory.events", "memory.peak", "pids.events", "cpu.stat"):
        (folder / name).write_text("0\n")
    before = len(os.listdir("/proc/self/fd"))
    assert [leaf.read(), leaf.read()] == [Reading(peak_bytes=0)] * 2
    assert len(os.listdir("/proc/self/fd")) == before + kept
    leaf.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_version_2_counters_that_are_not_there_are_nothing(unified: Path) -> None:
    leaf, folder = made_leaf(unified)
    (folder / "memory.peak").write_text("max\n")
    assert leaf.read() == Reading()


def test_version_2_processes_are_moved_in_and_killed_by_one_word(unified: Path) -> None:
    leaf, folder = made_leaf(unified)
    leaf.attach(4711)
    assert (folder / "cgroup.procs").read_text() == "4711"
    assert leaf.members() == [4711]
    leaf.kill()
    assert (folder / "cgroup.kill").read_text().startswith("1")


def test_version_1_without_a_killer_lets_nothing_new_start(tmp_path: Path) -> None:
    memory, pids = tmp_path / "memory", tmp_path / "pids"
    memory.mkdir()
    pids.mkdir()
    leaf = CgroupMeter(Hierarchies(1, str(memory), str(pids), None))
    (folder,) = pids.iterdir()
    (folder / "pids.max").write_text("9")
    leaf.kill()
    assert (folder / "pids.max").read_text() == "0"


def test_the_peak_is_read_through_the_descriptor_that_asked_for_a_new_one(unified: Path) -> None:
    leaf, folder = made_leaf(unified)
    (folder / "memory.peak").write_text("5")
    assert leaf.read().peak_bytes == 5
    leaf.reset_peak()
    (folder / "other").write_text("7")
    (folder / "other").replace(folder / "memory.peak")
    assert leaf.read().peak_bytes == 0


@needs_groups
def test_a_group_that_somebody_removed_is_noticed() -> None:
    assert HOST is not None
    leaf = CgroupMeter(HOST)
    leaf.reset_peak()
    assert leaf.intact()
    for folder in leaf._folders:
        os.rmdir(folder)
    assert not leaf.intact()
    assert leaf.read() == Reading()
    assert leaf.close()

"""Control groups: version 1 on this host where it may be written, version 2 against a tree of files that looks like it."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel.jail.cgroups.cgroup import Hierarchies, find_hierarchies
from sandbox_kernel.jail.cgroups.cgroup_leaf import Leaf

HOST = find_hierarchies()
needs_groups = pytest.mark.skipif(HOST is None, reason="no control group may be made here")


@pytest.fixture
def leaf() -> Iterator[Leaf]:
    assert HOST is not None
    made = Leaf(HOST)
    yield made
    made.kill()
    until = time.monotonic() + 30
    while not made.remove():
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
def test_memory_beyond_the_limit_is_killed_counted_and_told(leaf: Leaf) -> None:
    process = child("b = b'x' * (200 << 20)")
    leaf.attach(process.pid)
    leaf.limit(64 << 20, 32)
    event = leaf.oom_event()
    assert leaf.counters().oom_kills == 0
    code, _ = ended(process)
    seen = leaf.counters()
    assert code == -9
    assert seen.oom_kills >= 1
    assert seen.peak_bytes is not None and 32 << 20 < seen.peak_bytes <= 64 << 20
    if event is not None:
        assert select.select([event], [], [], 10)[0]
        os.close(event)


@needs_groups
def test_memory_below_the_limit_is_nobodys_business(leaf: Leaf) -> None:
    process = child("b = b'x' * (20 << 20)")
    leaf.attach(process.pid)
    leaf.limit(128 << 20, 32)
    assert ended(process)[0] == 0
    assert leaf.counters().oom_kills == 0


@needs_groups
def test_one_process_too_many_is_refused_and_counted(leaf: Leaf) -> None:
    if not leaf.limits_processes:
        pytest.skip("no pids controller")
    code = (
        "import os, time\nn = 0\ntry:\n  while n < 50:\n    if os.fork() == 0: os.close(1); time.sleep(60)\n    n += 1\n"
        "except OSError: pass\nprint(n)"
    )
    process = child(code)
    leaf.attach(process.pid)
    leaf.limit(128 << 20, 8)
    assert ended(process) == (0, "7\n")
    assert leaf.counters().refused_forks >= 1
    assert len(leaf.members()) == 7
    assert leaf.remove() is False, "a leaf with processes in it was removed"


@needs_groups
def test_everything_in_the_leaf_is_killed_at_once_or_can_start_nothing_new(leaf: Leaf) -> None:
    process = child("import os, time\nif os.fork() == 0: os.setsid()\ntime.sleep(60)")
    leaf.attach(process.pid)
    leaf.limit(128 << 20, 8)
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
def test_a_leaf_counts_the_cpu_time_of_what_has_ended(leaf: Leaf) -> None:
    if leaf.cpu_seconds() is None:
        pytest.skip("no version 2 group counts it here")
    process = child("import time\nwhile time.process_time() < 0.3: pass")
    leaf.attach(process.pid)
    leaf.limit(128 << 20, 8)
    assert ended(process)[0] == 0
    assert (leaf.cpu_seconds() or 0) >= 0.25


@needs_groups
def test_a_leaf_is_gone_after_it_was_removed_and_may_be_removed_twice() -> None:
    assert HOST is not None
    made = Leaf(HOST)
    folders = list(made._folders.values())
    assert folders and all(os.path.isdir(folder) for folder in folders)
    assert made.remove() and made.remove()
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


def made_leaf(unified: Path) -> tuple[Leaf, Path]:
    leaf = Leaf(Hierarchies(2, str(unified), str(unified), str(unified)))
    (folder,) = [path for path in unified.iterdir() if path.is_dir()]
    for name in ("memory.max", "memory.swap.max", "pids.max", "cgroup.kill"):
        (folder / name).write_text("max")
    (folder / "cgroup.procs").write_text("")
    return leaf, folder


def test_version_2_limits_are_written_and_swap_is_off(unified: Path) -> None:
    leaf, folder = made_leaf(unified)
    leaf.limit(1 << 20, 5)
    written = {name: (folder / name).read_text() for name in ("memory.max", "memory.swap.max", "pids.max")}
    assert written["memory.max"].startswith(str(1 << 20))
    assert written["memory.swap.max"].startswith("0")
    assert written["pids.max"].startswith("5")
    assert leaf.oom_event() is None


def test_version_2_counters_are_read_from_the_kernels_own_files(unified: Path) -> None:
    leaf, folder = made_leaf(unified)
    (folder / "memory.events").write_text("low 0\nhigh 0\nmax 7\noom 2\noom_kill 2\noom_group_kill 1\n")
    (folder / "memory.peak").write_text("1234\n")
    (folder / "pids.events").write_text("max 3\n")
    (folder / "cpu.stat").write_text("usage_usec 1500000\nuser_usec 1\n")
    seen = leaf.counters()
    assert (seen.oom_kills, seen.refused_forks, seen.peak_bytes, seen.cpu_seconds) == (2, 3, 1234, 1.5)


def test_version_2_counters_that_are_not_there_are_nothing(unified: Path) -> None:
    leaf, folder = made_leaf(unified)
    (folder / "memory.peak").write_text("max\n")
    seen = leaf.counters()
    assert (seen.oom_kills, seen.refused_forks, seen.peak_bytes, seen.cpu_seconds) == (0, 0, None, None)


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
    leaf = Leaf(Hierarchies(1, str(memory), str(pids), None))
    (folder,) = pids.iterdir()
    (folder / "pids.max").write_text("9")
    leaf.kill()
    assert (folder / "pids.max").read_text() == "0"

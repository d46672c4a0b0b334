"""Files of the kernel that stay open between readings: fewer calls, the same answers, and no descriptor too many."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox_kernel.jail.cgroups.cgroup import find_hierarchies
from sandbox_kernel.jail.cgroups.cgroup_leaf import Leaf
from sandbox_kernel.jail.cgroups.kept_files import KeptFiles

HOST = find_hierarchies()
needs_groups = pytest.mark.skipif(HOST is None, reason="no control group may be made here")

#: Keeps more files than its share of descriptors allows, then forks.
CROWDED = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
from sandbox_kernel.jail.cgroups.kept_files import KeptFiles

def held():
    return sum(os.path.realpath(f"/proc/self/fd/{fd}").startswith(sys.argv[1]) for fd in os.listdir("/proc/self/fd"))

owners = [KeptFiles() for _ in range(3)]
for owner in owners:
    for name in range(5):
        path = f"{sys.argv[1]}/{name}"
        assert (owner.number(path), owner.number(path)) == (name, name)
most = held()
pid = os.fork()
if pid == 0:
    os._exit(held())
left_to_child = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
for owner in owners:
    owner.close()
print(most, left_to_child, held(), owners[0].number(f"{sys.argv[1]}/4"), held())
"""


def open_below(folder: Path) -> int:
    found = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    return sum(os.path.realpath(path).startswith(str(folder)) for path in found)


def test_a_file_is_opened_once_and_closed_with_its_owner(tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("1\n")
    files = KeptFiles()
    assert files.number(str(counter)) == 1
    counter.write_text("23\n")
    assert files.number(str(counter)) == 23
    assert open_below(tmp_path) == 1
    files.close()
    assert open_below(tmp_path) == 0
    assert files.number(str(counter)) == 23
    assert open_below(tmp_path) == 0


def test_what_was_written_is_read_through_the_same_descriptor(tmp_path: Path) -> None:
    peak, other = tmp_path / "peak", tmp_path / "other"
    peak.write_text("5")
    other.write_text("7")
    files = KeptFiles()
    assert files.number(str(peak)) == 5
    files.write(str(peak), "0")
    other.replace(peak)
    assert files.number(str(peak)) == 0
    assert open_below(tmp_path) == 1
    files.close()


def test_many_owners_keep_only_a_part_of_the_descriptors_and_a_forked_child_keeps_none(tmp_path: Path) -> None:
    for name in range(5):
        (tmp_path / str(name)).write_text(f"{name}\n")
    done = subprocess.run([sys.executable, "-c", CROWDED, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert (done.stdout.split(), done.stderr) == (["8", "0", "0", "4", "0"], "")


@needs_groups
def test_counters_are_right_when_no_descriptor_is_left() -> None:
    assert HOST is not None
    leaf = Leaf(HOST)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        leaf.limit(64 << 20, 32)
        before, used = leaf.counters(), leaf.usage_bytes()
        assert before.peak_bytes is not None
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        assert leaf.counters() == before
        assert leaf.usage_bytes() == used
        assert leaf.exists()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        leaf.remove()


@needs_groups
def test_a_group_that_somebody_removed_is_noticed_through_open_files() -> None:
    assert HOST is not None
    leaf = Leaf(HOST)
    leaf.counters()
    leaf.usage_bytes()
    assert leaf.exists()
    for folder in set(leaf._folders.values()):
        os.rmdir(folder)
    assert not leaf.exists()
    assert leaf.remove()

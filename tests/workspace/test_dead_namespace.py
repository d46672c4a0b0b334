"""A sandbox's tmpfs, reached through a descriptor when every process and the mount namespace are gone."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel.errors import ExecutionFailed, InvalidRequest, PathTraversal
from sandbox_kernel.workspace.changes import compare, snapshot
from sandbox_kernel.workspace.overlay.kept_changes import KeptChanges, Room
from sandbox_kernel.workspace.transfer import PackedFiles
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import DIRECTORY, Entry

NOBODY = 65534
PROGRAM = """
mount -t tmpfs -o size=4m,mode=755 tmpfs /mnt && cd /mnt &&
mkdir -p a/b && echo hello > a/b/f.txt && ln -s /etc/shadow s && mkfifo p && ln -s /root d &&
mkdir closed && touch closed/x && chmod 0 closed && echo ready && read forever
"""

pytestmark = [
    pytest.mark.usefixtures("both_ways"),
    pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare(1)"),
]


@pytest.fixture
def dead(request: pytest.FixtureRequest) -> Iterator[Rooted]:
    """As root the namespace belongs to another user: the file system does not know root as an owner."""
    who = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
    child = subprocess.Popen(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd="/",
        **who,  # type: ignore[call-overload]
    )
    with child:
        assert child.stdout is not None and child.stderr is not None
        if child.stdout.readline() != b"ready\n":
            child.kill()
            pytest.skip(f"no user namespaces here: {child.stderr.read().decode()}")
        fd = os.open(f"/proc/{child.pid}/root/mnt", os.O_RDONLY | os.O_DIRECTORY)
        child.kill()
    with Rooted(fd) as root:
        os.close(fd)
        yield root


def test_files_of_a_dead_sandbox_are_read_and_its_links_are_not_followed(dead: Rooted) -> None:
    assert dead.read("a/b/f.txt") == b"hello\n"
    assert [(entry.name, entry.type) for entry in dead.list_dir()] == [
        ("a", "directory"),
        ("closed", "directory"),
        ("d", "symlink"),
        ("p", "fifo"),
        ("s", "symlink"),
    ]
    for path in ("s", "d/x"):
        with pytest.raises(PathTraversal):
            dead.read(path)


def test_files_are_written_as_an_owner_that_the_file_system_knows(dead: Rooted) -> None:
    dead.write("in/put.txt", b"input")
    assert dead.read("in/put.txt") == b"input"
    owner = os.fstat(dead.fileno()).st_uid
    assert owner == (NOBODY if os.geteuid() == 0 else os.geteuid())
    with Rooted.at(f"/proc/self/fd/{dead.fileno()}") as again:
        assert again.read("in/put.txt") == b"input"


def test_its_quota_still_holds(dead: Rooted) -> None:
    with pytest.raises(ExecutionFailed, match="full"):
        dead.write("big", b"x" * (5 << 20))
    assert "big" not in [entry.name for entry in dead.list_dir()]


def test_changes_and_artefacts_work_on_it(dead: Rooted, rooted: Rooted, folder: Path, tmp_path: Path) -> None:
    before = snapshot(dead)
    dead.write("out/result.csv", b"1,2\n")
    changes = compare(before, snapshot(dead, since=before))
    assert [(change.kind, change.path) for change in changes] == [("created", "out"), ("created", "out/result.csv")]
    assert KeptChanges(rooted, None).put(dead, "out/result.csv", Room(1 << 20, 10)) is None
    assert (folder / "out" / "result.csv").read_bytes() == b"1,2\n"
    dead.remove("closed", tree=True)
    assert PackedFiles(dead)["a/b/f.txt"] == b"hello\n"
    dead.clear()
    assert dead.put_tree(rooted.walk(), rooted) == {}
    assert dead.read("out/result.csv") == b"1,2\n"


def test_it_is_cleared_modes_notwithstanding(dead: Rooted) -> None:
    dead.clear()
    assert dead.list_dir() == ()


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every folder")
def test_a_folder_that_may_not_be_read_makes_a_look_partial_and_is_never_packed_in_part(dead: Rooted) -> None:
    assert snapshot(dead).unseen == {"closed": "unreadable"}
    with pytest.raises(InvalidRequest, match="closed"):
        PackedFiles(dead)


def test_a_folder_that_is_mounted_where_one_is_put_keeps_its_mode() -> None:
    program = (
        "mount -t tmpfs -o mode=755 tmpfs /mnt && cd /mnt && mkdir sub own && chmod 700 own &&"
        "mount -t tmpfs -o mode=700 tmpfs sub && echo ready && read forever"
    )
    words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", program]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/") as child:
        assert child.stdout is not None
        if child.stdout.readline() != b"ready\n":
            pytest.skip("no user namespaces here")
        with Rooted.at(f"/proc/{child.pid}/root/mnt") as root:
            for name in ("sub", "own"):
                root.put(Entry(name, DIRECTORY, mode=0o755))
            assert [oct(root.stat(name).bits) for name in ("sub", "own")] == ["0o700", "0o755"]
        child.kill()

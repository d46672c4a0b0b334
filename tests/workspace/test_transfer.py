from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel.errors import InvalidRequest, PathTraversal
from sandbox_kernel.model import FsChange
from sandbox_kernel.workspace.changes import Snapshot, compare, snapshot
from sandbox_kernel.workspace.transfer import Skipped, collect, pack_files
from sandbox_kernel.workspace.tree.rooted import Rooted

MANY = 10**9
pytestmark = pytest.mark.usefixtures("both_ways")


@pytest.fixture
def artefacts(tmp_path: Path) -> Path:
    path = tmp_path / "artefacts"
    path.mkdir()
    return path


@pytest.fixture
def destination(artefacts: Path) -> Iterator[Rooted]:
    with Rooted.at(artefacts) as root:
        yield root


def bring(source: Rooted, destination: Rooted, **limits: int) -> tuple[Skipped, ...]:
    changes = compare(Snapshot(), snapshot(source))
    return collect(source, destination, changes, limits.get("max_bytes", MANY), limits.get("max_files", MANY))


def test_files_folders_and_modes_come_over(rooted: Rooted, folder: Path, destination: Rooted, artefacts: Path) -> None:
    (folder / "d" / "empty").mkdir(parents=True)
    (folder / "d" / "run.sh").write_bytes(b"\x00\xff" * 700_000)
    (folder / "d" / "run.sh").chmod(0o755)
    assert bring(rooted, destination) == ()
    assert (artefacts / "d" / "run.sh").read_bytes() == b"\x00\xff" * 700_000
    assert stat.S_IMODE((artefacts / "d" / "run.sh").stat().st_mode) == 0o755
    assert (artefacts / "d" / "empty").is_dir()


@pytest.mark.attack("F04", "host")
def test_links_fifos_and_devices_are_left_behind_and_listed(
    rooted: Rooted, folder: Path, destination: Rooted, artefacts: Path, outside: Path
) -> None:
    (folder / "result.csv").symlink_to(outside / "secret.txt")
    (folder / "plot.png").symlink_to("/proc/self/environ")
    (folder / "dir").symlink_to(outside)
    os.mkfifo(folder / "pipe")
    types = {"result.csv": "symlink", "plot.png": "symlink", "dir": "symlink", "pipe": "fifo"}
    if os.geteuid() == 0:
        os.mknod(folder / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        types["null"] = "device"
    skipped = bring(rooted, destination)
    assert {item.path: item.type for item in skipped} == types
    assert all(item.type in item.reason for item in skipped)
    assert os.listdir(artefacts) == []


def test_special_bits_do_not_cross_and_the_owner_can_use_the_copy(
    rooted: Rooted, folder: Path, destination: Rooted, artefacts: Path
) -> None:
    (folder / "su").write_text("x")
    (folder / "su").chmod(0o6711)
    (folder / "read-only").write_text("x")
    (folder / "read-only").chmod(0o400)
    (folder / "locked").mkdir()
    (folder / "locked").chmod(0o1500)
    bring(rooted, destination)
    assert stat.S_IMODE((artefacts / "read-only").stat().st_mode) == 0o600
    assert stat.S_IMODE((artefacts / "su").stat().st_mode) == 0o711
    assert stat.S_IMODE((artefacts / "locked").stat().st_mode) == 0o700


@pytest.mark.attack("R12", "host")
def test_what_is_beyond_the_limits_is_left_holes_included_and_smaller_files_still_come(
    rooted: Rooted, folder: Path, destination: Rooted, artefacts: Path
) -> None:
    for name, size in (("a", 60), ("b", 60), ("c", 40)):
        (folder / name).write_bytes(b"x" * size)
    skipped = bring(rooted, destination, max_bytes=100)
    assert [item.path for item in skipped] == ["b"]
    assert "60 bytes" in skipped[0].reason
    assert sorted(os.listdir(artefacts)) == ["a", "c"]
    assert [item.path for item in bring(rooted, destination, max_files=2)] == ["c"]
    os.truncate(folder / "a", 1 << 40)
    assert [item.path for item in bring(rooted, destination, max_bytes=1 << 30)] == ["a"]


@pytest.mark.one_case
def test_holes_within_the_limit_stay_holes(rooted: Rooted, folder: Path, destination: Rooted, artefacts: Path) -> None:
    with open(folder / "s", "wb") as file:
        file.seek(64 << 20)
        file.write(b"end")
        file.truncate(96 << 20)
    assert bring(rooted, destination) == ()
    copied = (artefacts / "s").stat()
    assert copied.st_size == 96 << 20
    assert copied.st_blocks * 512 < 8 << 20
    with open(artefacts / "s", "rb") as file:
        assert file.read(4) == b"\0\0\0\0"
        file.seek(64 << 20)
        assert file.read(4) == b"end\0"


@pytest.mark.attack("F06", "host")
def test_a_planted_link_at_the_destination_is_not_followed(
    rooted: Rooted, folder: Path, destination: Rooted, artefacts: Path, outside: Path
) -> None:
    (folder / "d").mkdir()
    (folder / "d" / "secret.txt").write_text("escaped")
    (folder / "f").write_text("new")
    (artefacts / "d").symlink_to(outside)
    (artefacts / "f").symlink_to(outside / "secret.txt")
    skipped = bring(rooted, destination)
    assert [item.path for item in skipped] == ["d", "d/secret.txt"]
    assert all("link" in item.reason for item in skipped)
    assert (artefacts / "f").read_text() == "new"


@pytest.mark.parametrize("path", ["../up", "/etc/passwd", "", "a/../../x", "missing"])
def test_a_forged_or_stale_change_is_left_and_told(rooted: Rooted, destination: Rooted, path: str) -> None:
    (skipped,) = collect(rooted, destination, [FsChange(path=path, kind="created")], MANY, MANY)
    assert skipped.path == path
    assert skipped.reason


def test_deletions_are_followed_only_when_asked(
    rooted: Rooted, folder: Path, destination: Rooted, artefacts: Path
) -> None:
    for name in ("gone/a", "gone/b", "old", "kept"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(name)
    assert bring(rooted, destination) == ()
    before = snapshot(rooted)
    (folder / "gone" / "a").unlink()
    (folder / "gone" / "b").unlink()
    (folder / "gone").rmdir()
    (folder / "old").rename(folder / "new")
    changes = compare(before, snapshot(rooted, since=before))
    assert collect(rooted, destination, changes, MANY, MANY) == ()
    assert sorted(os.listdir(artefacts)) == ["gone", "kept", "new", "old"]
    assert collect(rooted, destination, changes, MANY, MANY, delete=True) == ()
    assert sorted(os.listdir(artefacts)) == ["kept", "new"]


def test_a_file_that_became_a_folder_and_the_other_way_round_follow_when_asked(
    rooted: Rooted, folder: Path, destination: Rooted, artefacts: Path
) -> None:
    (folder / "a").write_text("file")
    (folder / "b").mkdir()
    (folder / "b" / "x").touch()
    bring(rooted, destination)
    before = snapshot(rooted)
    (folder / "a").unlink()
    (folder / "a").mkdir()
    (folder / "a" / "y").touch()
    (folder / "b" / "x").unlink()
    (folder / "b").rmdir()
    (folder / "b").write_text("file")
    changes = compare(before, snapshot(rooted, since=before))
    assert {item.path for item in collect(rooted, destination, changes, MANY, MANY)} == {"a", "a/y", "b"}
    assert collect(rooted, destination, changes, MANY, MANY, delete=True) == ()
    assert (artefacts / "a" / "y").is_file()
    assert (artefacts / "b").read_text() == "file"


def test_a_folder_that_holds_what_the_sandbox_did_not_know_of_is_not_deleted(
    rooted: Rooted, folder: Path, destination: Rooted, artefacts: Path
) -> None:
    (folder / "d").mkdir()
    (folder / "d" / "a").touch()
    bring(rooted, destination)
    (artefacts / "d" / "users own").write_text("precious")
    before = snapshot(rooted)
    (folder / "d" / "a").unlink()
    (folder / "d").rmdir()
    changes = compare(before, snapshot(rooted, since=before))
    (skipped,) = collect(rooted, destination, changes, MANY, MANY, delete=True)
    assert (skipped.path, "not empty" in skipped.reason) == ("d", True)
    assert os.listdir(artefacts / "d") == ["users own"]


def test_deleting_through_a_planted_link_is_refused_and_told(
    rooted: Rooted, destination: Rooted, artefacts: Path, outside: Path
) -> None:
    (artefacts / "d").symlink_to(outside)
    changes = [FsChange(path="d/secret.txt", kind="deleted")]
    (skipped,) = collect(rooted, destination, changes, MANY, MANY, delete=True)
    assert "link" in skipped.reason


def test_a_work_folder_is_packed_as_a_mapping_that_reads_one_file_at_a_time(rooted: Rooted, folder: Path) -> None:
    (folder / "d" / "empty").mkdir(parents=True)
    (folder / "d" / "a").write_bytes(b"\xff\x00")
    (folder / "run").write_text("x")
    (folder / "run").chmod(0o755)
    (folder / "link").symlink_to("run")
    packed = pack_files(rooted)
    assert dict(packed) == {"run": b"x", "d/a": b"\xff\x00"}
    assert packed.folders == ("d", "d/empty")
    assert packed.total_bytes == 3
    assert [(item.path, item.type) for item in packed.skipped] == [("link", "symlink")]
    with pytest.raises(KeyError):
        packed["link"]


@pytest.mark.attack("F04", "host")
def test_a_packed_file_that_became_a_link_or_grew_is_not_read(rooted: Rooted, folder: Path, outside: Path) -> None:
    (folder / "a").write_text("x")
    (folder / "b").write_text("x")
    packed = pack_files(rooted)
    (folder / "a").unlink()
    (folder / "a").symlink_to(outside / "secret.txt")
    (folder / "b").write_text("xx")
    with pytest.raises(PathTraversal):
        packed["a"]
    with pytest.raises(InvalidRequest):
        packed["b"]


@pytest.mark.parametrize(("limits", "says"), [({"max_bytes": 19}, "19 bytes"), ({"max_files": 2}, "2 files")])
def test_a_work_folder_that_is_too_large_is_refused_and_never_cut(
    rooted: Rooted, folder: Path, limits: dict[str, int], says: str
) -> None:
    for name in ("a", "b"):
        (folder / name).write_bytes(b"x" * 10)
    assert len(pack_files(rooted, max_bytes=20, max_files=2)) == 2
    (folder / "c").touch()
    with pytest.raises(InvalidRequest, match=says):
        pack_files(rooted, **limits)


def test_a_work_folder_that_is_too_deep_is_refused(rooted: Rooted) -> None:
    rooted.make_folder("/".join("d" * 300))
    with pytest.raises(InvalidRequest, match="deep"):
        pack_files(rooted)

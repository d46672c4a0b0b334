import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sandbox_kernel.errors import InvalidRequest, PathTraversal
from sandbox_kernel.workspace import transfer
from sandbox_kernel.workspace.box_folder import BoxFolder
from sandbox_kernel.workspace.changes import Snapshot, compare, snapshot, standing
from sandbox_kernel.workspace.overlay.kept_changes import Room
from sandbox_kernel.workspace.transfer import PackedFiles, Skipped
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import FILE, GONE, Entry, WalkLimits

MANY = Room(1 << 60, 10**9)
pytestmark = pytest.mark.usefixtures("both_ways")


@pytest.fixture
def artefacts(tmp_path: Path) -> Path:
    path = tmp_path / "artefacts"
    path.mkdir()
    return path


@pytest.fixture
def kept(artefacts: Path) -> Iterator[BoxFolder]:
    with closing(BoxFolder(str(artefacts))) as folder:
        yield folder


def bring(source: Rooted, kept: BoxFolder, room: Room = MANY, before: Snapshot | None = None) -> list[Skipped]:
    before = before or Snapshot()
    return kept.take(source, standing(compare(before, snapshot(source, since=before))), room)


def test_files_folders_and_modes_come_over_without_special_bits(
    rooted: Rooted, folder: Path, kept: BoxFolder, artefacts: Path
) -> None:
    (folder / "d" / "empty").mkdir(parents=True)
    (folder / "d" / "run.sh").write_bytes(b"\x00\xff" * 700_000)
    for name, mode in (("d/run.sh", 0o755), ("su", 0o6711), ("read-only", 0o400), ("locked/", 0o1500)):
        (folder / name).mkdir() if name.endswith("/") else (folder / name).open("a").close()
        (folder / name).chmod(mode)
    assert bring(rooted, kept) == []
    assert (artefacts / "d" / "run.sh").read_bytes() == b"\x00\xff" * 700_000
    assert (artefacts / "d" / "empty").is_dir()
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in artefacts.rglob("*")}
    assert modes == {"d": 0o700, "empty": 0o700, "run.sh": 0o755, "su": 0o711, "read-only": 0o600, "locked": 0o700}


@pytest.mark.attack("F04", "host")
def test_links_fifos_and_devices_are_left_behind_and_listed(
    rooted: Rooted, folder: Path, kept: BoxFolder, artefacts: Path, outside: Path
) -> None:
    (folder / "result.csv").symlink_to(outside / "secret.txt")
    (folder / "plot.png").symlink_to("/proc/self/environ")
    (folder / "dir").symlink_to(outside)
    os.mkfifo(folder / "pipe")
    types = {"result.csv": "symlink", "plot.png": "symlink", "dir": "symlink", "pipe": "fifo"}
    if os.geteuid() == 0:
        os.mknod(folder / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        types["null"] = "device"
    skipped = bring(rooted, kept)
    assert {item.path: item.type for item in skipped} == types
    assert all(item.type in item.reason for item in skipped)
    assert os.listdir(artefacts) == []


@pytest.mark.attack("R12", "host")
def test_what_is_beyond_the_limits_is_left_holes_included_and_smaller_files_still_come(
    rooted: Rooted, folder: Path, kept: BoxFolder, artefacts: Path
) -> None:
    for name, size in (("a", 60), ("b", 60), ("c", 40)):
        (folder / name).write_bytes(b"x" * size)
    (skipped,) = bring(rooted, kept, Room(100, 10))
    assert (skipped.path, "60 bytes" in skipped.reason) == ("b", True)
    assert sorted(os.listdir(artefacts)) == ["a", "c"]
    assert [item.path for item in bring(rooted, kept, Room(1000, 2))] == ["b"]
    os.truncate(folder / "a", 1 << 40)
    assert [item.path for item in bring(rooted, kept, Room(1 << 30, 10))] == ["a"]


@pytest.mark.one_case
def test_holes_within_the_limit_stay_holes(rooted: Rooted, folder: Path, kept: BoxFolder, artefacts: Path) -> None:
    with open(folder / "s", "wb") as file:
        file.seek(64 << 20)
        file.write(b"end")
        file.truncate(96 << 20)
    assert bring(rooted, kept) == []
    copied = (artefacts / "s").stat()
    assert copied.st_size == 96 << 20
    assert copied.st_blocks * 512 < 8 << 20
    with open(artefacts / "s", "rb") as file:
        assert file.read(4) == b"\0\0\0\0"
        file.seek(64 << 20)
        assert file.read(4) == b"end\0"


@pytest.mark.attack("F06", "host")
def test_a_planted_link_at_the_destination_is_not_followed(
    rooted: Rooted, folder: Path, kept: BoxFolder, artefacts: Path, outside: Path
) -> None:
    (folder / "d").mkdir()
    (folder / "d" / "secret.txt").write_text("escaped")
    (folder / "f").write_text("new")
    (artefacts / "d").symlink_to(outside)
    (artefacts / "f").symlink_to(outside / "secret.txt")
    assert [item.path for item in bring(rooted, kept)] == ["d", "d/secret.txt", "f"]
    kept.take(rooted, {"d/secret.txt": Entry("d/secret.txt", GONE)}, MANY)
    with pytest.raises(InvalidRequest):
        kept.remove("d/secret.txt")
    assert (outside / "secret.txt").exists()


@pytest.mark.parametrize("path", ["../up", "/etc/passwd", "", "a/../../x", "missing"])
def test_a_forged_or_stale_change_is_left_and_told(rooted: Rooted, kept: BoxFolder, path: str) -> None:
    (skipped,) = kept.take(rooted, {path: Entry(path, FILE)}, MANY)
    assert skipped.path == path
    assert skipped.reason


def test_deletions_and_what_became_a_folder_or_a_file_follow_and_unknown_files_stay(
    rooted: Rooted, folder: Path, kept: BoxFolder, artefacts: Path
) -> None:
    for name in ("gone/a", "gone/b", "old", "kept", "a", "b/x", "d/a"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(name)
    assert bring(rooted, kept) == []
    (artefacts / "d" / "users own").write_text("precious")
    before = snapshot(rooted)
    for name in ("gone", "b", "d"):
        shutil.rmtree(folder / name)
    (folder / "old").rename(folder / "new")
    (folder / "a").unlink()
    (folder / "a").mkdir()
    (folder / "a" / "y").touch()
    (folder / "b").write_text("file")
    assert bring(rooted, kept, before=before) == []
    assert sorted(os.listdir(artefacts)) == ["a", "b", "d", "kept", "new"]
    assert (artefacts / "a" / "y").is_file()
    assert (artefacts / "b").read_text() == "file"
    assert os.listdir(artefacts / "d") == ["users own"]


def test_a_work_folder_is_packed_as_a_mapping_that_reads_one_file_at_a_time(rooted: Rooted, folder: Path) -> None:
    (folder / "d" / "empty").mkdir(parents=True)
    (folder / "d" / "a").write_bytes(b"\xff\x00")
    (folder / "run").write_text("x")
    (folder / "run").chmod(0o755)
    (folder / "link").symlink_to("run")
    packed = PackedFiles(rooted)
    assert dict(packed) == {"run": b"x", "d/a": b"\xff\x00"}
    assert packed.total_bytes == 3
    with pytest.raises(KeyError):
        packed["link"]


@pytest.mark.attack("F04", "host")
def test_a_packed_file_that_became_a_link_or_grew_is_not_read(rooted: Rooted, folder: Path, outside: Path) -> None:
    (folder / "a").write_text("x")
    (folder / "b").write_text("x")
    packed = PackedFiles(rooted)
    (folder / "a").unlink()
    (folder / "a").symlink_to(outside / "secret.txt")
    (folder / "b").write_text("xx")
    with pytest.raises(PathTraversal):
        packed["a"]
    with pytest.raises(InvalidRequest):
        packed["b"]


@pytest.mark.parametrize(("data", "says"), [(b"x", "20 bytes"), (b"", "2 files")])
def test_a_work_folder_that_is_too_large_is_refused_and_never_cut(
    rooted: Rooted, folder: Path, monkeypatch: pytest.MonkeyPatch, data: bytes, says: str
) -> None:
    monkeypatch.setattr(transfer, "MAX_PACKED_BYTES", 20)
    monkeypatch.setattr(transfer, "MAX_PACKED_FILES", 2)
    monkeypatch.setattr(transfer, "PACKED", WalkLimits(entries=2, file_bytes=20))
    for name in ("a", "b"):
        (folder / name).write_bytes(b"x" * 10)
    assert len(PackedFiles(rooted)) == 2
    (folder / ("b" if data else "c")).write_bytes(b"x" * 10 + data if data else b"")
    with pytest.raises(InvalidRequest, match=says):
        PackedFiles(rooted)


def test_a_work_folder_that_is_too_deep_is_refused(rooted: Rooted) -> None:
    rooted.make_folder("/".join("d" * 300))
    with pytest.raises(InvalidRequest, match="deep"):
        PackedFiles(rooted)

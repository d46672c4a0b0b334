"""Copies of a work folder, taken and restored as for checkpoints."""

import os
import stat
from pathlib import Path

import pytest

from sandbox_kernel.workspace import changes, folder_copies
from sandbox_kernel.workspace.folder_copies import FolderCopies
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import Entry, WalkLimits


class Folder(FolderCopies):
    """The copies of a folder whose path the tests know; a copy says what its problem is."""

    def __init__(self, root: Path) -> None:
        super().__init__(Rooted.at(root))
        self.root = str(root)

    def copy(self, cell: int) -> str:
        self.take(cell, list(self._copies))
        return self.copy_of(cell).problem


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    (tmp_path / "a").write_text("a")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "b").write_text("b")
    return Folder(tmp_path)


def contents(root: str) -> dict[str, str]:
    return {
        os.path.relpath(os.path.join(where, name), root): Path(where, name).read_text()
        for where, _, names in os.walk(root)
        for name in names
        if stat.S_ISREG(os.lstat(os.path.join(where, name)).st_mode)
    }


def test_a_copy_restores_names_contents_modes_and_times(folder: Folder) -> None:
    root = Path(folder.root)
    os.utime(root / "a", ns=(5, 7))
    os.chmod(root / "d", 0o750)
    assert folder.copy(1) == ""
    (root / "a").write_text("changed")
    (root / "d" / "b").unlink()
    (root / "new").mkdir()
    os.chmod(root / "d", 0o700)
    assert folder.restore(1) == ""
    assert contents(folder.root) == {"a": "a", "d/b": "b"}
    assert (root / "a").stat().st_mtime_ns == 7
    assert stat.S_IMODE((root / "d").stat().st_mode) == 0o750
    assert not (root / "new").exists()


def test_a_file_that_still_exists_is_rewritten_in_place(folder: Folder) -> None:
    folder.copy(1)
    before = os.stat(f"{folder.root}/a").st_ino
    with open(f"{folder.root}/a") as held:
        Path(folder.root, "a").write_text("other and longer")
        folder.restore(1)
        assert held.read() == "a"
    assert os.stat(f"{folder.root}/a").st_ino == before


def test_a_file_becomes_a_folder_and_back_and_a_link_too(folder: Folder) -> None:
    os.symlink("d", f"{folder.root}/l")
    folder.copy(1)
    for name in ("a", "l"):
        os.unlink(f"{folder.root}/{name}")
        os.makedirs(f"{folder.root}/{name}/deep/er")
    os.rename(f"{folder.root}/d", f"{folder.root}/x")
    Path(folder.root, "d").write_text("now a file")
    assert folder.restore(1) == ""
    assert contents(folder.root) == {"a": "a", "d/b": "b"}
    assert os.readlink(f"{folder.root}/l") == "d"


def test_links_that_lead_outside_are_never_followed(folder: Folder, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "secret").write_text("secret")
    os.symlink(outside, f"{folder.root}/out")
    folder.copy(1)
    entries = folder.copy_of(1).entries
    assert entries["out"].target == str(outside)
    assert not any(path.startswith("out/") for path in entries)
    os.unlink(f"{folder.root}/d/b")
    os.rmdir(f"{folder.root}/d")
    os.symlink(outside, f"{folder.root}/d")
    assert folder.restore(1) == ""
    assert (outside / "secret").read_text() == "secret"
    assert not (outside / "b").exists()


def test_hard_links_are_one_file_again(folder: Folder) -> None:
    os.link(f"{folder.root}/a", f"{folder.root}/d/same")
    folder.copy(1)
    os.unlink(f"{folder.root}/a")
    os.unlink(f"{folder.root}/d/same")
    folder.restore(1)
    assert os.path.samefile(f"{folder.root}/a", f"{folder.root}/d/same")
    os.unlink(f"{folder.root}/d/same")
    Path(folder.root, "d/same").write_text("another")
    os.unlink(f"{folder.root}/d/b")
    os.link(f"{folder.root}/a", f"{folder.root}/d/b")
    content = {name: folder.copy_of(1).entries[name].data for name in ("a", "d/b")}
    assert folder.restore(1) == ""
    assert os.path.samefile(f"{folder.root}/a", f"{folder.root}/d/same")
    assert {name: Path(folder.root, name).read_bytes() for name in content} == content


def test_a_file_that_did_not_change_is_not_read_again(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "TICK_NS", -(10**18))
    folder.copy(1)
    read: list[int] = []
    real = folder_copies.chunks
    monkeypatch.setattr(folder_copies, "chunks", lambda fd, most: read.append(fd) or real(fd, most))
    Path(folder.root, "a").write_text("z")
    folder.copy(2)
    assert len(read) == 1
    assert folder.copy_of(1).entries["d/b"].data is folder.copy_of(2).entries["d/b"].data


def test_a_file_as_young_as_the_clock_is_coarse_is_read_again(folder: Folder) -> None:
    folder.copy(1)
    with open(f"{folder.root}/a", "r+") as file:
        file.write("q")
    os.utime(f"{folder.root}/a")
    folder.copy(2)
    assert folder.copy_of(2).entries["a"].data == b"q"


def test_beyond_a_bound_nothing_is_kept_and_restoring_says_so(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Folder, "most_copy_bytes", 1 << 20)
    Path(folder.root, "large").write_bytes(bytes((1 << 20) + 1))
    assert folder.copy(1) == "they are larger than 1 MB"
    assert folder.restore(1) == "they are larger than 1 MB"
    os.unlink(f"{folder.root}/large")
    monkeypatch.setattr(Folder, "limits", WalkLimits(entries=2))
    assert folder.copy(2) == "they are more than 2"
    monkeypatch.undo()
    os.makedirs(f"{folder.root}/" + "/".join("x" * 40))
    assert folder.copy(3) == "they are nested more than 32 folders deep"
    assert contents(folder.root) == {"a": "a", "d/b": "b"}


def test_a_sparse_file_as_large_as_the_disk_is_not_read(folder: Folder) -> None:
    with open(f"{folder.root}/sparse", "wb") as file:
        file.truncate(1 << 40)
    assert folder.copy(1) == "they are larger than 32 MB"


def test_older_copies_give_up_their_files_first(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Folder, "most_bytes", 3000)
    for cell in range(3):
        Path(folder.root, "a").write_bytes(bytes([cell]) * 1400)
        folder.copy(cell)
    assert folder.restore(0).startswith("older copies of them were deleted")
    assert folder.restore(2) == ""


def test_special_files_are_left_out_and_removed_with_the_rest(folder: Folder) -> None:
    folder.copy(1)
    os.mkfifo(f"{folder.root}/fifo")
    os.mkdir(f"{folder.root}/locked")
    Path(folder.root, "locked", "f").write_text("x")
    os.chmod(f"{folder.root}/locked", 0)
    assert folder.restore(1) == ""
    assert sorted(os.listdir(folder.root)) == ["a", "d"]
    os.mkfifo(f"{folder.root}/fifo")
    assert folder.copy(2) == ""


def test_a_cell_that_nobody_copied_says_so(folder: Folder) -> None:
    assert folder.restore(9) == "no copy of them was kept"
    folder.copy(1)
    folder.take(2, [])
    assert folder.restore(1) == "no copy of them was kept"


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_what_its_mode_forbids_to_read_is_copied_and_restored(folder: Folder) -> None:
    os.chmod(f"{folder.root}/a", 0)
    os.chmod(f"{folder.root}/d", 0)
    assert folder.copy(1) == ""
    assert stat.S_IMODE(os.stat(f"{folder.root}/a").st_mode) == 0
    os.chmod(f"{folder.root}/a", 0o600)
    Path(folder.root, "a").write_text("other")
    assert folder.restore(1) == ""
    os.chmod(f"{folder.root}/a", 0o600)
    assert contents(folder.root) == {"a": "a", "d/b": "b"}


def test_going_back_forgets_nothing_so_that_one_can_go_forward_again(folder: Folder) -> None:
    file = Path(folder.root) / "a"
    for cell in (1, 2, 3):
        file.write_text(f"after {cell}")
        folder.copy(cell)
    for cell in (1, 3, 2):
        assert folder.restore(cell) == ""
        assert file.read_text() == f"after {cell}"


def test_what_copies_share_is_counted_once_also_after_going_back(folder: Folder) -> None:
    def held(cell: int, others: tuple[int, ...]) -> int:
        folder.take(cell, others)
        return folder.held() // 1_000_000

    file = Path(folder.root) / "new"
    file.write_bytes(bytes(2_000_000))
    assert held(1, ()) == 2
    assert held(2, (1,)) == 2
    folder.restore(1)
    assert held(3, (1, 2)) == 2, "read again, and found to be the same"
    file.write_bytes(bytes(1_000_000))
    assert held(4, (1, 2, 3)) == 3
    assert held(5, (4,)) == 1


def test_two_copies_differ_by_files_and_lines(folder: Folder) -> None:
    folder.copy(1)
    Path(folder.root, "a").write_text("c")
    os.unlink(f"{folder.root}/d/b")
    folder.copy(2)
    found, problem = folder.compare(1, 2)
    assert [(each.path, each.kind) for each in found] == [("a", "modified"), ("d/b", "deleted")]
    assert "-a\n+c" in found[0].patch and problem == ""


def test_a_link_that_takes_the_place_of_a_file_while_it_is_restored_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("the user's")
    root = tmp_path / "box"
    root.mkdir()
    (root / "a").write_text("a")
    os.link(root / "a", root / "zz")
    folder = Folder(root)
    assert folder.copy(1) == ""
    (root / "zz").unlink()
    finish = FolderCopies._finish

    def exchange(self: FolderCopies, entry: Entry) -> None:
        finish(self, entry)
        if entry.path == "a":
            (root / "a").unlink()
            (root / "a").symlink_to(outside)

    monkeypatch.setattr(FolderCopies, "_finish", exchange)
    folder.restore(1)
    assert outside.stat().st_nlink == 1 and (root / "zz").is_symlink()


def test_what_was_written_without_a_new_time_is_restored(folder: Folder) -> None:
    path = Path(folder.root, "a")
    before = path.stat()
    assert folder.copy(1) == ""
    path.write_text("b")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert folder.restore(1) == "" and path.read_text() == "a"


def test_a_file_that_grows_while_it_is_read_counts_as_it_was_read(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FolderCopies, "_content", lambda self, entry, copy: b"x" * (20 << 20))
    assert "larger than 32 MB" in folder.copy(1)
    assert folder.held() < 1 << 20


def test_names_count_and_copies_share_what_did_not_change(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    assert folder.copy(1) == ""
    once = folder.held()
    assert folder.copy(2) == "" and folder.held() == once
    monkeypatch.setattr(FolderCopies, "most_bytes", once + 1000)
    for number in range(9):
        Path(folder.root, "n" * 200 + str(number)).write_text("")
    assert folder.copy(3) == "" and folder.copy_of(1).problem


def test_a_restore_that_cannot_be_done_in_time_says_so(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    assert folder.copy(1) == ""
    monkeypatch.setattr(folder_copies, "RESTORE_S", -1.0)
    assert "took more than" in folder.restore(1)

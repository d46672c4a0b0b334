"""The sandbox's own folder: on a host without room, and when programs fill it."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from sandbox_kernel import FsChange, Sandbox
from sandbox_kernel.errors import BackendUnavailable, PathTraversal
from sandbox_kernel.workspace import box_folder, folder_link
from sandbox_kernel.workspace.box_folder import BoxFolder
from sandbox_kernel.workspace.tree.rooted import Rooted


def refuse(prefix: str) -> str:
    raise OSError(28, "No space left on device")


def test_a_folder_that_cannot_be_made_is_an_error_with_a_type(monkeypatch: pytest.MonkeyPatch) -> None:
    with Sandbox() as box:
        with monkeypatch.context() as patch:
            patch.setattr(tempfile, "mkdtemp", refuse)
            with pytest.raises(BackendUnavailable, match="No space left on device"):
                box.write_file("a", b"")
            with pytest.raises(BackendUnavailable, match="TMPDIR"):
                box.list_dir()
        box.write_file("a", b"x")
        assert box.read_file("a") == b"x"


def test_a_run_whose_files_have_no_place_keeps_its_result(monkeypatch: pytest.MonkeyPatch) -> None:
    with Sandbox() as box:
        with monkeypatch.context() as patch:
            patch.setattr(tempfile, "mkdtemp", refuse)
            result = box.run("open('f', 'w').close(); print('ran')", "python", timeout=30)
        assert (result.ok, result.stdout) == (True, "ran\n")
        assert "were not kept" in result.notes[-1]
        assert "No space left on device" in result.notes[-1]


def test_a_folder_that_was_made_and_not_opened_is_not_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def cannot(path: str) -> object:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr("sandbox_kernel.workspace.box_folder.Rooted.at", cannot)
    with Sandbox() as box, pytest.raises(BackendUnavailable, match="Too many open files"):
        box.list_dir()
    assert list(tmp_path.iterdir()) == []


def made(*paths: str) -> tuple[FsChange, ...]:
    return tuple(FsChange(path=path, kind="created") for path in paths)


@pytest.fixture
def left_behind(tmp_path: Path) -> Iterator[tuple[Path, Rooted]]:
    """What a run has left in its folder."""
    with Rooted.at(tmp_path) as box:
        yield tmp_path, box


def test_what_runs_and_cells_leave_ends_no_later_run(left_behind, monkeypatch: pytest.MonkeyPatch):
    path, box = left_behind
    monkeypatch.setattr(box_folder, "MAX_PACKED_BYTES", 100)
    monkeypatch.setattr(box_folder, "MAX_PACKED_FILES", 3)
    monkeypatch.setattr(folder_link, "MAX_SHARED_FILES", 3)
    for name in ("a", "b"):
        with open(path / name, "wb") as file:
            file.truncate(60)
    for number in range(5):
        (path / f"f{number}").touch()
    with closing(BoxFolder()) as folder:
        assert folder.keep(box, made("a")) == []
        (note,) = folder.keep(box, made("b"))
        assert "b (file) was not kept" in note
        assert folder.keep(box, made("a")) == [], "a file that is replaced makes room for itself"
        assert [len(folder.keep(box, made(f"f{number}"))) for number in range(4)] == [0, 0, 1, 1]
        assert set(folder.files()) == {"a", "f0", "f1"}
    with closing(BoxFolder()) as folder:
        link = folder_link.FolderLink(folder)
        told = link.begin_over(None, box)
        assert len(told) == 4 and len(folder.files()) == 3, told


def test_part_of_a_file_is_read_without_the_rest(left_behind):
    path, box = left_behind
    with open(path / "large", "wb") as file:
        file.truncate(1 << 40)
        file.write(b"start")
    assert box.read_part("large", 3, 4) == (b"rt\0\0", 1 << 40)
    assert box.read_part("large", 1 << 41, 4) == (b"", 1 << 40)
    os.symlink("/etc/passwd", path / "link")
    with pytest.raises(PathTraversal):
        box.read_part("link", 0, 10)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(folder_link, "MAX_SHARED_FILE", 100)
    monkeypatch.setattr(folder_link, "MOST_LARGE_BYTES", 1000)
    (tmp_path / "state").mkdir(mode=0o700)
    return tmp_path / "state" / "large"


def test_large_files_outlive_their_session(place: Path) -> None:
    with Sandbox() as box, box.session() as session:
        session.keep_large_files(str(place))
        assert session.run(
            "import os; os.mkdir('d'); open('d/a', 'w').write('a' * 300); open('b', 'w').write('b' * 300)"
        ).ok
        assert session.run("open('d/a', 'a').write('c'); os.rename('b', 'e'); open('small', 'w').write('s')").ok
    assert {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()} == {"d/a", "e"}
    with Sandbox() as box, box.session() as session:
        session.keep_large_files(str(place))
        seen = session.run("import os; print(len(open('d/a').read()), len(open('e').read()), os.path.exists('b'))")
        assert (seen.stdout, seen.changes) == ("301 300 False\n", ())
        session.run("os.remove('e'); open('d/a', 'w').write('small now')")
    assert not [path for path in place.rglob("*") if path.is_file()]


def test_an_old_version_does_not_pass_for_the_present_one(place: Path) -> None:
    with Sandbox() as box, box.session() as session:
        session.keep_large_files(str(place))
        assert session.run("open('a', 'w').write('a' * 300)").ok
        told = session.run("open('a', 'w').write('a' * 2000)")
        assert any("a (file) is lost when the kernel ends" in note for note in told.notes), told.notes
    assert list(place.iterdir()) == []


def test_undo_takes_a_kept_file_back_too(place: Path) -> None:
    with Sandbox() as box, box.session() as session:
        session.keep_large_files(str(place))
        session.run("open('a', 'w').write('a' * 300)")
        session.run("open('a', 'w').write('b' * 300)")
        session.undo()
        assert (place / "a").read_text() == "a" * 300

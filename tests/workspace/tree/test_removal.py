import os
from pathlib import Path

import pytest

from sandbox_kernel.errors import ExecutionFailed
from sandbox_kernel.workspace.tree import removal
from sandbox_kernel.workspace.tree.rooted import Rooted

pytestmark = pytest.mark.usefixtures("both_ways")


def test_everything_goes_links_and_fifos_included_and_nothing_outside(
    rooted: Rooted, folder: Path, outside: Path
) -> None:
    (folder / "a/b/c").mkdir(parents=True)
    (folder / "a/b/file").write_text("x")
    (folder / "a/b/out").symlink_to(outside)
    (folder / "a/secret").symlink_to(outside / "secret.txt")
    (folder / "loop").symlink_to(".")
    os.mkfifo(folder / "a/pipe")
    (folder / "\x1b\udcff").mkdir()
    other = folder.with_name("other")
    other.write_text("x")
    os.link(other, folder / "hard")
    rooted.clear()
    assert os.listdir(folder) == [] and other.read_text() == "x"


def test_more_full_folders_than_are_noted_at_once_go(
    rooted: Rooted, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(removal, "_MAX_NOTED", 3)
    for number in range(20):
        (folder / "d" / str(number) / "x" / "y").mkdir(parents=True)
    rooted.clear()
    assert os.listdir(folder) == []


@pytest.mark.parametrize("mode", [0o000, 0o100, 0o200, 0o400, 0o500, 0o555])
def test_a_folder_that_its_owner_locked_goes_too(rooted: Rooted, folder: Path, mode: int) -> None:
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "f").touch()
    (folder / "a" / "b").chmod(mode)
    (folder / "a").chmod(mode)
    folder.chmod(0o555)
    rooted.clear()
    assert os.listdir(folder) == []


def test_what_cannot_be_removed_is_named_and_the_rest_goes(
    rooted: Rooted, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a/stuck", "a/other", "b/c/d", "e"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    real = os.unlink

    def unlink(path: str, *, dir_fd: int) -> None:
        if path == "stuck":
            raise PermissionError(1, "Operation not permitted")
        real(path, dir_fd=dir_fd)

    monkeypatch.setattr(removal.os, "unlink", unlink)
    with pytest.raises(ExecutionFailed, match=r"'stuck'.*not permitted"):
        rooted.clear()
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) == ["a", "a/stuck"]


def test_a_program_that_keeps_making_files_does_not_hold_the_host_for_ever(
    rooted: Rooted, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "a").touch()
    real = os.unlink

    def unlink(path: str, *, dir_fd: int) -> None:
        real(path, dir_fd=dir_fd)
        (folder / "a").touch()

    monkeypatch.setattr(removal.os, "unlink", unlink)
    with pytest.raises(ExecutionFailed, match="not empty after"):
        rooted.clear(seconds=0.05)


def test_a_folder_that_is_moved_away_while_it_is_emptied_leads_nowhere(
    rooted: Rooted, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("x")
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "f").touch()
    (folder / "a" / "z").touch()
    real = os.unlink

    def unlink(path: str, *, dir_fd: int) -> None:
        real(path, dir_fd=dir_fd)
        if path == "f":
            (folder / "a" / "b").rename(elsewhere / "b")

    monkeypatch.setattr(removal.os, "unlink", unlink)
    with pytest.raises(ExecutionFailed, match="moved"):
        rooted.clear()
    assert sorted(os.listdir(elsewhere)) == ["b", "precious"]


def test_a_folder_swapped_for_a_link_in_the_last_moment_leads_nowhere(
    rooted: Rooted, folder: Path, outside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "d" / "e").mkdir(parents=True)
    real = os.rmdir

    def rmdir(path: str, *, dir_fd: int) -> None:
        try:
            real(path, dir_fd=dir_fd)
        finally:
            if path == "d" and not (folder / "d").is_symlink():
                (folder / "d").rename(tmp_path / "hidden")
                (folder / "d").symlink_to(outside)

    monkeypatch.setattr(removal.os, "rmdir", rmdir)
    rooted.clear()
    assert os.listdir(folder) == []
    assert os.listdir(tmp_path / "hidden") == ["e"]


def test_a_mount_is_left_alone(rooted: Rooted) -> None:
    fd = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
    try:
        with pytest.raises(OSError, match="cross-device"):
            removal.remove_tree(fd, "proc", 5.0)
    finally:
        os.close(fd)

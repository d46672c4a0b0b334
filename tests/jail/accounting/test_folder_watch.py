"""How much is in a folder, looked at in small steps while a hostile program changes it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel.jail.accounting import folder_watch
from sandbox_kernel.jail.accounting.folder_watch import FolderWatch
from sandbox_kernel.jail.accounting.meter import Disk

MIB = 1 << 20
FINE, FULL, OVER = Disk(False, False), Disk(True, False), Disk(True, True)


opened: list[FolderWatch] = []


def watch(folder: Path, limit: int = 8 * MIB, members: list[int] | None = None) -> FolderWatch:
    opened.append(FolderWatch(str(folder), limit, lambda: members or []))
    return opened[-1]


@pytest.fixture(autouse=True)
def close_all(nothing_left: None) -> Iterator[None]:
    yield
    while opened:
        opened.pop().close()


def fill(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)


def test_an_empty_folder_is_fine(tmp_path: Path) -> None:
    found = watch(tmp_path)
    assert (found.look(), found.look(last=True)) == (FINE, FINE)


def test_files_in_all_folders_are_added_up(tmp_path: Path) -> None:
    for name in ("a", "b/c", "b/d/e/f"):
        fill(tmp_path / name, 3 * MIB)
    assert watch(tmp_path, 12 * MIB).look(last=True) == FINE
    assert watch(tmp_path, 9 * MIB).look(last=True) == FULL
    assert watch(tmp_path, 4 * MIB).look(last=True) == OVER


def test_a_file_that_stops_at_the_limit_is_told_and_not_punished(tmp_path: Path) -> None:
    fill(tmp_path / "a", 8 * MIB)
    fill(tmp_path / "small", 4096)
    assert watch(tmp_path).look(last=True) == FULL


def test_holes_take_no_room(tmp_path: Path) -> None:
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(1 << 40)
    assert watch(tmp_path).look(last=True) == FINE


def test_a_second_name_of_a_file_takes_no_room(tmp_path: Path) -> None:
    fill(tmp_path / "a", 5 * MIB)
    for number in range(5):
        os.link(tmp_path / "a", tmp_path / f"link{number}")
    assert watch(tmp_path).look(last=True) == FINE


def test_links_are_not_followed(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    fill(outside / "big", 20 * MIB)
    (tmp_path / "folder").symlink_to(outside)
    (tmp_path / "file").symlink_to(outside / "big")
    assert watch(tmp_path).look(last=True) == FINE


def test_too_many_files_are_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_watch, "MAX_INODES", 50)
    for number in range(40):
        (tmp_path / f"f{number}").touch()
    assert watch(tmp_path).look(last=True) == FINE
    for number in range(20):
        (tmp_path / f"d{number}").mkdir()
    assert watch(tmp_path).look(last=True) == OVER


def test_looks_go_on_where_the_last_one_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(300):
        fill(tmp_path / f"d{number % 7}" / f"f{number}", 65536)
    monkeypatch.setattr(folder_watch, "_LOOK_S", 0.0)
    monkeypatch.setattr(folder_watch, "_URGENT_S", 0.0)
    found = watch(tmp_path)
    assert found.look() == FINE, "it had no time at all"
    monkeypatch.setattr(folder_watch, "_LOOK_S", 0.0002)
    looks = 1
    while found.look() != OVER:
        looks += 1
        assert looks < 100_000
    found.close()


def test_a_tree_deeper_than_any_path_is_seen_to_its_end(tmp_path: Path) -> None:
    here = os.getcwd()
    try:
        os.chdir(tmp_path)
        for _ in range(3000):
            os.mkdir("d")
            os.chdir("d")
        Path("big").write_bytes(b"x" * (9 * MIB + 300_000))
    finally:
        os.chdir(here)
    assert watch(tmp_path).look(last=True) == OVER
    # pytest's own removal would recurse.
    subprocess.run(["rm", "-rf", str(tmp_path / "d")], check=True)


def test_a_folder_that_moves_away_during_a_look_does_not_lead_it_astray(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner, elsewhere = tmp_path / "box" / "a" / "b", tmp_path / "elsewhere"
    inner.mkdir(parents=True)
    elsewhere.mkdir()
    fill(elsewhere / "big", 20 * MIB)
    found = watch(tmp_path / "box")
    steps = found._walk(found._now)
    monkeypatch.setattr(found, "_steps", steps)
    for step, _ in enumerate(steps):
        if step == 1 and inner.exists():
            inner.rename(elsewhere / "b")
    assert found._judge() == FINE
    assert found.look(last=True) == FINE


def test_what_vanishes_during_a_look_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    found = watch(tmp_path)
    found._begin()
    next(found._steps)
    (tmp_path / "a").rmdir()
    assert found.look() == FINE
    tmp_path.rmdir()
    found.close()
    tmp_path.mkdir()


@pytest.mark.skipif(os.geteuid() == 0, reason="root looks into every folder")
def test_a_folder_that_is_closed_to_us_could_hold_anything(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(mode=0)
    assert watch(tmp_path).look(last=True) == OVER
    (tmp_path / "a").chmod(0o700)


def test_deleted_files_that_somebody_holds_open_count(tmp_path: Path) -> None:
    with open(tmp_path / "gone", "wb") as file:
        file.write(b"x" * (20 * MIB))
        file.flush()
        os.unlink(tmp_path / "gone")
        assert watch(tmp_path).look() == FINE, "who holds it is nobody of the jail's"
        assert watch(tmp_path, members=[os.getpid(), 1 << 22]).look() == OVER


def test_room_that_vanishes_from_the_file_system_makes_looks_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = watch(tmp_path)
    assert not found._room_vanishes()
    monkeypatch.setattr(folder_watch, "_taken", lambda path: (1 << 60, 0))
    assert found._room_vanishes()
    assert found.look() == FINE, "others may have taken it"


def test_a_folder_that_was_over_and_was_put_back_is_fine_again(tmp_path: Path) -> None:
    fill(tmp_path / "large", 20 * MIB)
    seen = watch(tmp_path)
    assert seen.look(last=True) == OVER  # takes the time that the folder needs on a busy machine
    (tmp_path / "large").unlink()
    assert seen.look() == FINE

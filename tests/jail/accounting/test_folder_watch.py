"""How much is in a folder, looked at in small steps while a hostile program changes it."""

import ctypes
import mmap
import os
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel.jail.accounting import folder_watch
from sandbox_kernel.jail.accounting.folder_watch import Deleted, FolderWatch, deleted_files
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
    assert (found.measure(), found.measure(last=True)) == (FINE, FINE)


def test_files_in_all_folders_are_added_up(tmp_path: Path) -> None:
    for name in ("a", "b/c", "b/d/e/f"):
        fill(tmp_path / name, 3 * MIB)
    assert watch(tmp_path, 12 * MIB).measure(last=True) == FINE
    assert watch(tmp_path, 9 * MIB).measure(last=True) == FULL
    assert watch(tmp_path, 4 * MIB).measure(last=True) == OVER


def test_a_file_that_stops_at_the_limit_is_told_and_not_punished(tmp_path: Path) -> None:
    fill(tmp_path / "a", 8 * MIB)
    fill(tmp_path / "small", 4096)
    assert watch(tmp_path).measure(last=True) == FULL


def test_holes_take_no_room(tmp_path: Path) -> None:
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(1 << 40)
    assert watch(tmp_path).measure(last=True) == FINE


def test_a_second_name_of_a_file_takes_no_room(tmp_path: Path) -> None:
    fill(tmp_path / "a", 5 * MIB)
    for number in range(5):
        os.link(tmp_path / "a", tmp_path / f"link{number}")
    assert watch(tmp_path).measure(last=True) == FINE


def test_links_are_not_followed(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    fill(outside / "big", 20 * MIB)
    (tmp_path / "folder").symlink_to(outside)
    (tmp_path / "file").symlink_to(outside / "big")
    assert watch(tmp_path).measure(last=True) == FINE


def test_too_many_files_are_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_watch, "MAX_INODES", 50)
    for number in range(40):
        (tmp_path / f"f{number}").touch()
    assert watch(tmp_path).measure(last=True) == FINE
    for number in range(20):
        (tmp_path / f"d{number}").mkdir()
    assert watch(tmp_path).measure(last=True) == OVER


def test_looks_go_on_where_the_last_one_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(300):
        fill(tmp_path / f"d{number % 7}" / f"f{number}", 65536)
    monkeypatch.setattr(folder_watch, "_LOOK_S", 0.0)
    monkeypatch.setattr(folder_watch, "_URGENT_S", 0.0)
    found = watch(tmp_path)
    assert found.measure() == FINE, "it had no time at all"
    monkeypatch.setattr(folder_watch, "_LOOK_S", 0.0002)
    looks = 1
    while found.measure() != OVER:
        looks += 1
        assert looks < 100_000
    found.close()


@pytest.mark.slow
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
    assert watch(tmp_path).measure(last=True) == OVER
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
    assert found.measure(last=True) == FINE


def test_what_vanishes_during_a_look_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    found = watch(tmp_path)
    found._begin()
    next(found._steps)
    (tmp_path / "a").rmdir()
    assert found.measure() == FINE
    tmp_path.rmdir()
    found.close()
    tmp_path.mkdir()


@pytest.mark.skipif(os.geteuid() == 0, reason="root looks into every folder")
def test_a_folder_that_is_closed_to_us_could_hold_anything(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir(mode=0)
    assert watch(tmp_path).measure(last=True) == OVER
    (tmp_path / "a").chmod(0o700)


def test_deleted_files_that_somebody_holds_open_count(tmp_path: Path) -> None:
    with open(tmp_path / "gone", "wb") as file:
        file.write(b"x" * (20 * MIB))
        file.flush()
        os.unlink(tmp_path / "gone")
        assert watch(tmp_path).measure() == FINE, "who holds it is nobody of the jail's"
        assert watch(tmp_path, members=[os.getpid(), 1 << 22]).measure() == OVER


def test_room_that_vanishes_from_the_file_system_makes_looks_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = watch(tmp_path)
    assert not found._room_vanishes()
    monkeypatch.setattr(folder_watch, "_taken", lambda path: (1 << 60, 0))
    assert found._room_vanishes()
    assert found.measure() == FINE, "others may have taken it"


def test_a_folder_that_was_over_and_was_put_back_is_fine_again(tmp_path: Path) -> None:
    fill(tmp_path / "large", 20 * MIB)
    seen = watch(tmp_path)
    assert seen.measure(last=True) == OVER  # takes the time that the folder needs on a busy machine
    (tmp_path / "large").unlink()
    assert seen.measure() == FINE


SIZE = 1 << 20


@pytest.fixture
def gone(tmp_path: Path) -> Iterator[int]:
    """An open file of a megabyte that was deleted."""
    fd = os.open(tmp_path / "gone", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"x" * SIZE)
    os.unlink(tmp_path / "gone")
    yield fd
    try:
        os.close(fd)
    except OSError:
        return


def found(tmp_path: Path, *, thorough: bool, pid: int | None = None) -> Deleted:
    return deleted_files([pid or os.getpid(), 1 << 22], os.stat(tmp_path).st_dev, thorough=thorough)


@pytest.mark.parametrize("thorough", [False, True])
def test_an_open_file_is_counted_once(tmp_path: Path, gone: int, thorough: bool) -> None:
    again = os.dup(gone)
    seen = found(tmp_path, thorough=thorough)
    os.close(again)
    assert seen.sizes[os.fstat(gone).st_ino] >= SIZE
    assert seen.used >= SIZE


def test_files_of_another_disk_do_not_count(tmp_path: Path, gone: int) -> None:
    assert deleted_files([os.getpid()], os.stat("/proc").st_dev, thorough=True).sizes == {}


def test_a_mapped_file_is_counted_or_said_to_be_hidden(tmp_path: Path, gone: int) -> None:
    inode = os.fstat(gone).st_ino
    libc = ctypes.CDLL(None)
    # Python's own keeps a descriptor beside the mapping.
    libc.mmap.restype = ctypes.c_void_p
    place = libc.mmap(None, ctypes.c_size_t(4096), mmap.PROT_READ, mmap.MAP_SHARED, gone, ctypes.c_long(0))
    os.close(gone)
    seen, at_first_glance = found(tmp_path, thorough=True), found(tmp_path, thorough=False)
    libc.munmap(ctypes.c_void_p(place), ctypes.c_size_t(4096))
    assert inode not in at_first_glance.sizes
    assert seen.hidden or seen.sizes.get(inode, 0) >= SIZE


def test_a_file_in_a_message_is_hidden(tmp_path: Path, gone: int) -> None:
    one, other = socket.socketpair()
    with one, other:
        assert not found(tmp_path, thorough=True).hidden
        socket.send_fds(one, [b"x"], [gone])
        assert found(tmp_path, thorough=True).hidden
        assert not found(tmp_path, thorough=False).hidden


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody may look into any process."""

    real = os.listdir

    def refuse(path: str) -> list[str]:
        if re.match(r"/proc/[0-9]", path):
            raise PermissionError(path)
        return real(path)

    monkeypatch.setattr(os, "listdir", refuse)


@pytest.mark.usefixtures("closed")
def test_a_process_that_nobody_may_look_into_is_said_to_hide(tmp_path: Path) -> None:
    assert found(tmp_path, thorough=False).hidden


@pytest.mark.usefixtures("closed")
def test_a_process_that_has_ended_hides_nothing_although_nobody_may_look_into_it(tmp_path: Path) -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    try:
        assert not found(tmp_path, thorough=False, pid=child).hidden
    finally:
        os.waitpid(child, 0)

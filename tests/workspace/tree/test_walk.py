import contextlib
import gc
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import WalkLimits

pytestmark = pytest.mark.usefixtures("both_ways")


def paths(rooted: Rooted, **limits: float) -> tuple[list[str], dict[str, str]]:
    walk = rooted.walk(WalkLimits(**limits))  # type: ignore[arg-type]
    return [entry.path for entry in walk], walk.unseen


@pytest.fixture
def tree(folder: Path) -> None:
    for name in ("a/1", "a/2", "b/c/3", "d"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x" * 10)


@pytest.mark.usefixtures("tree")
def test_everything_is_seen_in_a_fixed_order_and_each_folder_before_what_is_in_it(rooted: Rooted) -> None:
    walk = rooted.walk()
    assert [entry.path for entry in walk] == ["a", "b", "d", "a/1", "a/2", "b/c", "b/c/3"]
    assert not walk.unseen


@pytest.mark.parametrize(
    ("limits", "count", "unseen"),
    [
        ({"entries": 4}, 4, {"a": "entries", "b": "entries"}),
        ({"entries": 2}, 2, {"": "entries", "a": "entries", "b": "entries"}),
        ({"entries": 7}, 7, {}),
        ({"file_bytes": 15}, 4, {"a": "file_bytes", "b": "file_bytes"}),
        ({"depth": 1}, 3, {"a": "depth", "b": "depth"}),
        ({"depth": 2}, 6, {"b/c": "depth"}),
        ({"depth": 3}, 7, {}),
        ({"path_bytes": 3}, 3, {"a": "path_bytes", "b": "path_bytes"}),
        ({"seconds": -1.0}, 0, {"": "seconds"}),
    ],
)
@pytest.mark.usefixtures("tree")
def test_a_limit_ends_the_walk_and_names_the_folders_it_did_not_see(
    rooted: Rooted, limits: dict[str, float], count: int, unseen: dict[str, str]
) -> None:
    found, missed = paths(rooted, **limits)
    assert len(found) == count
    assert missed == unseen


def test_links_to_the_folder_itself_are_entries_and_not_ways(rooted: Rooted, folder: Path, outside: Path) -> None:
    (folder / "file").write_text("x")
    (folder / "loop").symlink_to(".")
    (folder / "loop2").symlink_to(".")
    (folder / "out").symlink_to(outside)
    entries = list(rooted.walk())
    assert [(entry.path, entry.type, entry.target) for entry in entries] == [
        ("file", "file", None),
        ("loop", "symlink", "."),
        ("loop2", "symlink", "."),
        ("out", "symlink", str(outside)),
    ]


def test_a_folder_that_vanishes_or_becomes_a_link_meanwhile_is_not_followed(
    rooted: Rooted, folder: Path, outside: Path
) -> None:
    (folder / "a").mkdir()
    (folder / "b").mkdir()
    walk = rooted.walk()
    entries = iter(walk)
    assert next(entries).path == "a"
    (folder / "a").rmdir()
    (folder / "b").rmdir()
    (folder / "b").symlink_to(outside)
    assert [(entry.path, entry.type) for entry in entries] == [("b", "symlink")]
    assert walk.unseen == {"a": "unreadable"}


def test_a_mount_is_an_entry_and_not_entered() -> None:
    with Rooted.at("/") as top:
        walk = top.walk(WalkLimits(depth=2, entries=20_000))
        found = [entry.path for entry in walk]
    assert "proc" in found
    assert "proc/self" not in found
    assert walk.unseen["proc"] == "mount"


@pytest.mark.one_case
def test_a_tree_of_twenty_thousand_levels_is_walked_and_removed_without_danger(
    quick_folder: Path, dig: Callable[[Path, int], None], both_ways: str
) -> None:
    dig(quick_folder, 20_000 if both_ways == "openat2" else 5_000)
    with Rooted.at(quick_folder) as root:
        found, unseen = paths(root)
        assert len(found) == 256
        assert set(unseen.values()) == {"depth"}
        if both_ways == "openat2":
            deepest, unseen = paths(root, depth=10**9, seconds=60)
            assert len(deepest) < 4096, "a path longer than the kernel takes was built"
            assert set(unseen.values()) == {"depth"}
        root.clear()
        assert os.listdir(quick_folder) == []


def test_folders_whose_path_would_be_too_long_are_not_entered(rooted: Rooted, folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    for _ in range(20):
        os.mkdir("n" * 250, dir_fd=fd)
        fd, above = os.open("n" * 250, os.O_RDONLY, dir_fd=fd), fd
        os.close(above)
    os.close(fd)
    found, unseen = paths(rooted)
    assert max(map(len, found)) < 4300
    assert list(unseen.values()) == ["depth"]
    rooted.clear()


@pytest.mark.one_case
def test_ten_thousand_files_are_seen_with_one_descriptor_at_a_time(rooted: Rooted, folder: Path) -> None:
    for number in range(10_000):
        os.close(os.open(folder / f"f{number}", os.O_CREAT))
    before = len(os.listdir("/proc/self/fd"))
    entries = iter(rooted.walk())
    next(entries)
    assert len(os.listdir("/proc/self/fd")) == before + 1
    assert len(list(entries)) == 9_999
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_loop_that_fails_leaves_no_folder_open(rooted: Rooted, folder: Path) -> None:
    (folder / "a").touch()
    gc.disable()
    try:
        before = len(os.listdir("/proc/self/fd"))
        walk = rooted.walk()
        with contextlib.suppress(KeyError):
            for entry in walk:
                raise KeyError(entry)
        assert len(os.listdir("/proc/self/fd")) == before
    finally:
        gc.enable()


@pytest.mark.usefixtures("tree")
def test_a_folder_that_can_be_opened_and_not_listed_is_unseen(rooted: Rooted, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int) -> object:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "scandir", refuse)
    assert paths(rooted) == ([], {"": "unreadable"})

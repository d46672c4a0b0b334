import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox_kernel.model import FsChange
from sandbox_kernel.workspace import changes
from sandbox_kernel.workspace import changes as outcome
from sandbox_kernel.workspace.changes import RENAMES_READ_BYTES, compare, displayed, files_left, snapshot
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import WalkLimits


def short(found: tuple[FsChange, ...]) -> list[tuple[str, str, str]]:
    return [(change.kind, change.type, change.path) for change in found]


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every file counts as old, as it does a moment later: nothing is hashed."""
    monkeypatch.setattr(changes, "TICK_NS", -(1 << 62))


def difference(rooted: Rooted, act: Callable[[], object]) -> tuple[FsChange, ...]:
    before = snapshot(rooted)
    act()
    return compare(before, snapshot(rooted, since=before))


def test_what_was_created_modified_renamed_and_deleted_is_told_sorted_by_path(rooted: Rooted, folder: Path) -> None:
    for name in ("m", "n", "old", "script"):
        (folder / name).write_text(f"content of {name}")
    (folder / "link").symlink_to("a")
    (folder / "empty").mkdir()

    def act() -> None:
        (folder / "z").write_text("hello")
        (folder / "a").mkdir(mode=0o700)
        (folder / "a" / "b").touch()
        (folder / "m").unlink()
        (folder / "n").write_text("three")
        os.mkfifo(folder / "pipe")
        (folder / "script").chmod(0o755)
        (folder / "old").rename(folder / "renamed")
        (folder / "link").unlink()
        (folder / "link").symlink_to("b")
        (folder / "empty").rmdir()

    found = difference(rooted, act)
    assert short(found) == [
        ("created", "directory", "a"),
        ("created", "file", "a/b"),
        ("deleted", "directory", "empty"),
        ("modified", "symlink", "link"),
        ("deleted", "file", "m"),
        ("modified", "file", "n"),
        ("created", "fifo", "pipe"),
        ("renamed", "file", "renamed"),
        ("modified", "file", "script"),
        ("created", "file", "z"),
    ]
    assert found[-1] == FsChange(path="z", kind="created", type="file", size=5)
    assert found[7].renamed_from == "old"


def test_nothing_is_told_when_nothing_changed(rooted: Rooted, folder: Path) -> None:
    (folder / "d").mkdir()
    (folder / "d" / "a").write_text("one")
    (folder / "link").symlink_to("d")
    os.mkfifo(folder / "pipe")
    assert difference(rooted, lambda: (folder / "d" / "a").read_text()) == ()


@pytest.mark.usefixtures("settled")
def test_a_file_that_grows_large_or_is_large_and_changes_is_modified(rooted: Rooted, folder: Path) -> None:
    (folder / "a").write_text("small")

    def grow() -> None:
        with open(folder / "a", "r+b") as file:
            file.truncate(60 << 20)

    assert difference(rooted, grow) == (FsChange(path="a", kind="modified", type="file", size=60 << 20),)

    def change() -> None:
        with open(folder / "a", "r+b") as file:
            file.write(b"x")

    assert short(difference(rooted, change)) == [("modified", "file", "a")]


def test_a_folder_is_modified_by_its_mode_and_not_by_what_happens_in_it(rooted: Rooted, folder: Path) -> None:
    (folder / "d").mkdir(mode=0o755)
    assert short(difference(rooted, (folder / "d" / "x").touch)) == [("created", "file", "d/x")]
    assert short(difference(rooted, lambda: (folder / "d").chmod(0o700))) == [("modified", "directory", "d")]


def test_what_is_in_a_renamed_folder_is_renamed_with_it(rooted: Rooted, folder: Path) -> None:
    (folder / "d").mkdir()
    (folder / "d" / "x").write_text("1")
    found = difference(rooted, lambda: (folder / "d").rename(folder / "e"))
    assert [(change.kind, change.path, change.renamed_from) for change in found] == [
        ("renamed", "e", "d"),
        ("renamed", "e/x", "d/x"),
    ]


def test_a_new_file_that_got_a_used_inode_is_not_taken_for_a_renamed_one(rooted: Rooted, folder: Path) -> None:
    (folder / "old").write_text("same size")
    before = snapshot(rooted)
    (folder / "old").unlink()
    (folder / "new").write_text("SAME SIZE")
    after = snapshot(rooted, since=before)
    reused = after.entries["new"]._replace(inode=before.entries["old"].inode)
    if reused.mtime_ns == before.entries["old"].mtime_ns:
        reused = reused._replace(mtime_ns=reused.mtime_ns + 1)
    after = replace(after, entries={"new": reused})
    assert short(compare(before, after)) == [("created", "file", "new"), ("deleted", "file", "old")]


def test_a_second_name_for_a_file_is_created_and_moving_one_of_two_is_a_rename(rooted: Rooted, folder: Path) -> None:
    (folder / "a").write_text("x")
    assert ("created", "file", "b") in short(difference(rooted, lambda: os.link(folder / "a", folder / "b")))
    found = difference(rooted, lambda: (folder / "b").rename(folder / "c"))
    assert [(change.kind, change.renamed_from) for change in found if change.path == "c"] == [("renamed", "b")]


def test_a_thing_that_became_another_type_is_modified(rooted: Rooted, folder: Path, outside: Path) -> None:
    (folder / "a").write_text("x")
    (folder / "b").mkdir()

    def act() -> None:
        (folder / "a").unlink()
        (folder / "a").symlink_to(outside / "secret.txt")
        (folder / "b").rmdir()
        os.mkfifo(folder / "b")

    assert short(difference(rooted, act)) == [("modified", "symlink", "a"), ("modified", "fifo", "b")]


@pytest.mark.usefixtures("settled")
def test_a_modification_cannot_be_hidden_by_putting_the_time_back(rooted: Rooted, folder: Path) -> None:
    (folder / "a").write_text("one")
    status = (folder / "a").stat()

    def act() -> None:
        deadline = time.monotonic() + 5
        while (folder / "a").stat().st_ctime_ns == status.st_ctime_ns and time.monotonic() < deadline:
            (folder / "a").write_text("two")
            os.utime(folder / "a", ns=(status.st_atime_ns, status.st_mtime_ns))

    assert short(difference(rooted, act)) == [("modified", "file", "a")]


def test_a_modification_within_one_tick_of_the_clock_is_seen(rooted: Rooted, folder: Path) -> None:
    for _ in range(100):  # a busy machine may take longer than a tick between the two
        (folder / "a").write_text("one")
        before = snapshot(rooted)
        if before.is_young(before.entries["a"]):
            break
    (folder / "a").write_text("two")
    after = snapshot(rooted, since=before)
    same_times = {"a": before.entries["a"]}
    assert short(compare(before, replace(after, entries=same_times))) == [("modified", "file", "a")]


def test_a_file_that_was_only_touched_is_not_modified_where_its_content_is_known(rooted: Rooted, folder: Path) -> None:
    (folder / "a").write_text("one")
    assert difference(rooted, lambda: os.utime(folder / "a", ns=(1, 1))) == ()


def name_of(fd: int) -> str:
    return os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))


def test_only_young_files_are_read_and_each_only_until_it_has_settled(
    rooted: Rooted, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    real = changes.chunks
    monkeypatch.setattr(changes, "chunks", lambda fd, most: (read.append(name_of(fd)), real(fd, most))[1])
    (folder / "young").write_text("x")
    first = snapshot(rooted)
    assert read == ["young"]
    later = replace(first, taken_ns=first.taken_ns + 10 * changes.TICK_NS)
    monkeypatch.setattr(changes, "TICK_NS", -(1 << 62))
    read.clear()
    assert snapshot(rooted, since=later).digests == first.digests
    assert read == []


def test_a_file_that_was_young_at_the_last_look_is_read_again_although_its_times_are_the_same(
    rooted: Rooted, folder: Path
) -> None:
    (folder / "a").write_text("one")
    first = snapshot(rooted)
    (folder / "a").write_text("two")
    within_a_tick = replace(first, entries={entry.path: entry for entry in rooted.walk()})
    assert short(compare(within_a_tick, snapshot(rooted, since=within_a_tick))) == [("modified", "file", "a")]


def test_a_large_or_unreadable_young_file_is_compared_by_what_lstat_says(rooted: Rooted, folder: Path) -> None:
    with open(folder / "sparse", "wb") as file:
        file.truncate(1 << 40)
    look = snapshot(rooted)
    assert look.entries["sparse"].size == 1 << 40
    assert look.digests == {}


@pytest.mark.attack("F04", "host")
def test_links_are_told_as_links_and_never_followed(rooted: Rooted, folder: Path, outside: Path) -> None:
    def act() -> None:
        (folder / "result.csv").symlink_to(outside / "secret.txt")
        (folder / "plot.png").symlink_to("/proc/self/environ")
        (folder / "dir").symlink_to(outside)

    found = difference(rooted, act)
    assert short(found) == [("created", "symlink", name) for name in ("dir", "plot.png", "result.csv")]
    assert snapshot(rooted).digests == {}


def test_a_look_that_was_cut_short_says_so_and_nothing_is_claimed_about_what_it_did_not_see(
    rooted: Rooted, folder: Path
) -> None:
    for name in ("a/1", "b/1", "c"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    whole = snapshot(rooted)
    part = snapshot(rooted, WalkLimits(entries=4))
    assert part.truncated and not whole.truncated
    assert part.unseen == {"b": "entries"}
    assert compare(whole, part) == ()
    assert compare(part, whole) == ()
    nothing = snapshot(rooted, WalkLimits(entries=0))
    assert nothing.unseen == {"": "entries"}
    assert compare(whole, nothing) == compare(nothing, whole) == ()


def test_what_a_partial_look_did_see_is_still_compared(rooted: Rooted, folder: Path) -> None:
    for name in ("a/1", "b/1", "b/2", "c"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    before = snapshot(rooted)
    (folder / "a" / "1").unlink()
    (folder / "b" / "1").unlink()
    (folder / "a" / "2").write_text("x")
    after = snapshot(rooted, WalkLimits(entries=4), since=before)
    assert after.unseen == {"b": "entries"}
    assert short(compare(before, after)) == [("deleted", "file", "a/1"), ("created", "file", "a/2")]


@pytest.mark.attack("F17", "host")
def test_hostile_names_are_told_as_they_are_and_shown_harmlessly(rooted: Rooted, folder: Path) -> None:
    names = ["-rf", "a\nb", "\x1b[2J", "<img src=x onerror=alert(1)>", "\udcff", "a" * 255]
    found = difference(rooted, lambda: [(folder / name).touch() for name in names])
    assert sorted(change.path for change in found) == sorted(names)
    for change in displayed(found):
        assert change.path.isprintable()
        json.dumps(change.path, ensure_ascii=False).encode()
    moved = difference(rooted, lambda: (folder / "a\nb").rename(folder / "c\nd"))
    assert [(change.path, change.renamed_from) for change in displayed(moved)] == [("c\\nd", "a\\nb")]


def read_so_far() -> int:
    """Bytes that this process has read through system calls."""
    rows = Path("/proc/self/io").read_text().splitlines()
    return int(next(row for row in rows if row.startswith("rchar")).split()[1])


def told(tmp_path: Path, given: dict[str, bytes]) -> set[tuple[str, str, str | None]]:
    with Rooted.at(tmp_path) as box:
        left = files_left(box.fileno(), given, None, kept=True)
    assert left.notes == ()
    return {(change.path, change.kind, change.renamed_from) for change in left.changes}


@pytest.mark.attack("R12", "host")
def test_the_host_reads_little_of_files_of_holes_as_large_as_a_deleted_one(tmp_path: Path):
    size = 4 << 20
    for number in range(100):
        with open(tmp_path / f"f{number:03}", "wb") as file:
            file.truncate(size)
    before = read_so_far()
    changes = told(tmp_path, {"in.bin": b"x" * size})
    assert read_so_far() - before < RENAMES_READ_BYTES + (2 << 20)
    assert ("in.bin", "deleted", None) in changes
    assert len(changes) == 101


def test_a_rename_is_told_while_there_are_bytes_left_to_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(outcome, "RENAMES_READ_BYTES", 5)
    (tmp_path / "one").write_bytes(b"1111")
    (tmp_path / "two").write_bytes(b"2222")
    assert told(tmp_path, {"a": b"1111", "b": b"2222"}) == {
        ("one", "renamed", "a"), ("two", "created", None), ("b", "deleted", None),
    }  # fmt: skip


def test_of_two_deleted_files_with_the_same_content_both_are_told(tmp_path: Path):
    assert told(tmp_path, {"a/__init__.py": b"", "b/__init__.py": b""}) == {
        ("a/__init__.py", "deleted", None), ("b/__init__.py", "deleted", None),
    }  # fmt: skip


def test_two_files_with_the_same_content_may_both_be_renamed(tmp_path: Path):
    for name in ("x", "y"):
        (tmp_path / name).write_bytes(b"same")
    kinds = {(path, kind) for path, kind, _ in told(tmp_path, {"a": b"same", "b": b"same"})}
    assert kinds == {("x", "renamed"), ("y", "renamed")}


def test_a_file_in_the_place_of_a_folder_is_told(tmp_path: Path):
    (tmp_path / "src").write_bytes(b"a file")
    assert told(tmp_path, {"src/tool.py": b"x = 1"}) == {("src", "created", None), ("src/tool.py", "deleted", None)}

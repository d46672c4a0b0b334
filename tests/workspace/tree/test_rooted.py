import os
import socket
import stat
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import pytest

from sandbox_kernel.errors import ExecutionFailed, InvalidRequest, PathTraversal, SandboxDestroyed, SandboxError
from sandbox_kernel.workspace.tree import rooted as rooted_module
from sandbox_kernel.workspace.tree.rooted import Rooted
from sandbox_kernel.workspace.tree.walk import Entry

pytestmark = pytest.mark.usefixtures("both_ways")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may do this")
as_user = pytest.mark.skipif(os.geteuid() == 0, reason="root ignores modes")


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


# Life cycle


def test_closing_twice_is_fine_and_use_after_close_says_so(folder: Path) -> None:
    root = Rooted.at(folder)
    root.close()
    root.close()
    for use in (lambda: root.read("a"), lambda: root.write("a", b""), root.list_dir, root.clear, root.fileno):
        with pytest.raises(SandboxDestroyed):
            use()
    with pytest.raises(SandboxDestroyed):
        list(root.walk())


def test_the_given_descriptor_stays_the_callers(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    with Rooted(fd) as root:
        root.write("a", b"1")
    os.fstat(fd)
    os.close(fd)


def test_it_means_the_folder_and_not_its_name(folder: Path) -> None:
    with Rooted.at(folder) as root:
        folder.rename(folder.with_name("moved"))
        root.write("a", b"1")
    assert folder.with_name("moved").joinpath("a").read_bytes() == b"1"
    assert not folder.exists()


@pytest.mark.parametrize("path", ["missing", "a-file", "nul\0", 7, None])
def test_a_root_that_is_no_folder_is_refused(tmp_path: Path, path: object) -> None:
    (tmp_path / "a-file").touch()
    with pytest.raises(InvalidRequest):
        Rooted.at(os.path.join(tmp_path, path) if isinstance(path, str) else path)  # type: ignore[arg-type]


def test_a_descriptor_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    with open(tmp_path / "f") as file:
        for fd in (file.fileno(), -1, 10**6, 1 << 70, "x", None):
            with pytest.raises(InvalidRequest):
                Rooted(fd)  # type: ignore[arg-type]


def test_nothing_leaks_descriptors(rooted: Rooted, folder: Path) -> None:
    (folder / "link").symlink_to("/etc")
    os.mkfifo(folder / "pipe")
    before = open_descriptors()
    rooted.write("d/a", b"1")
    rooted.read("d/a")
    rooted.list_dir("d")
    list(rooted.walk())
    for path in ("link/x", "pipe", "missing", "d"):
        for use in (rooted.read, rooted.list_dir, lambda p: rooted.write(p + "/x/y", b"")):
            with suppress(SandboxError):
                use(path)
    rooted.clear()
    assert open_descriptors() == before


# Reading


def test_a_file_is_written_overwritten_and_read_by_every_spelling_of_its_path(rooted: Rooted, folder: Path) -> None:
    data = bytes(range(256)) * 5000 + b"\xff\xfe\x00"
    rooted.write("a/b/c.bin", b"one")
    rooted.write("/box/a/b/c.bin", data, mode=0o640)
    for path in ("a/b/c.bin", "a/../a/b/./c.bin", "/box/a/b/c.bin"):
        assert rooted.read(path) == data
    entry = rooted.stat("/box/a/b/c.bin")
    assert (entry.path, entry.type, entry.size, entry.mode) == ("a/b/c.bin", "file", len(data), 0o640)
    assert entry.inode == (folder / "a/b/c.bin").stat().st_ino and rooted.stat(".").type == "directory"
    assert [entry.name for entry in rooted.list_dir("/box/a/b/")] == ["c.bin"], "a temporary file was left behind"
    rooted.remove("/box/a/b/c.bin")
    assert rooted.list_dir("a/b") == ()


@pytest.mark.parametrize("path", ["../outside/secret.txt", "/etc/passwd", "a/../../outside/secret.txt", "..", ""])
def test_read_write_and_list_refuse_path_traversal(rooted: Rooted, outside: Path, path: str) -> None:
    for use in (rooted.read, rooted.list_dir, rooted.stat, rooted.remove, lambda p: rooted.write(p, b"x")):
        with pytest.raises(PathTraversal):
            use(path)


def test_a_file_larger_than_the_limit_is_refused_and_one_of_exactly_the_limit_is_read(rooted: Rooted) -> None:
    rooted.write("a", b"x" * 100)
    assert len(rooted.read("a", max_bytes=100)) == 100
    with pytest.raises(InvalidRequest, match="100 bytes"):
        rooted.read("a", max_bytes=99)
    with rooted.replacing("holes") as fd:
        os.truncate(fd, 1 << 40)
    with pytest.raises(InvalidRequest, match=str(1 << 40)):
        rooted.read("holes")


def test_what_is_missing_or_no_regular_file_is_refused_and_never_waited_for(
    rooted: Rooted, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)  # socket addresses are short
    (folder / "d").mkdir()
    os.mkfifo("pipe")
    rooted.write("f", b"")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("sock")
        for path, says in {"missing": "not found", "d": "directory", "pipe": "fifo", "sock": "socket"}.items():
            with pytest.raises(InvalidRequest, match=says):
                rooted.read(path)
    for path in ("missing", "f"):
        with pytest.raises(InvalidRequest):
            rooted.list_dir(path)
    with pytest.raises(InvalidRequest, match="directory"):
        rooted.write("d", b"")
    assert sorted(os.listdir()) == ["d", "f", "pipe", "sock"]


@pytest.mark.parametrize(("becomes", "error"), [("fifo", InvalidRequest), ("link", PathTraversal)])
def test_a_file_swapped_after_the_look_is_neither_waited_for_nor_followed(
    rooted: Rooted, folder: Path, outside: Path, monkeypatch: pytest.MonkeyPatch, becomes: str, error: type[Exception]
) -> None:
    if becomes == "fifo":
        os.mkfifo(folder / "trap")
    else:
        (folder / "trap").symlink_to(outside / "secret.txt")
    (folder / "file").touch()
    regular = (folder / "file").stat()
    real = os.stat
    monkeypatch.setattr(rooted_module.os, "stat", lambda path, **how: regular if path == "trap" else real(path, **how))
    with pytest.raises(error, match=r"fifo|link"):
        rooted.read("trap")


@as_root
def test_a_device_is_refused_before_it_is_opened(rooted: Rooted, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mknod(folder / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    opened = []
    real = os.open
    monkeypatch.setattr(rooted_module.os, "open", lambda path, *a, **k: (opened.append(path), real(path, *a, **k))[1])
    with pytest.raises(InvalidRequest, match="device"):
        rooted.read("null")
    assert "null" not in opened
    assert rooted.list_dir(".")[0].type == "device"


@as_user
def test_a_file_that_may_not_be_read_is_an_error_that_says_so(rooted: Rooted, folder: Path) -> None:
    (folder / "a").touch(mode=0)
    with pytest.raises(ExecutionFailed, match="Permission denied"):
        rooted.read("a")


# Links


@pytest.mark.attack("F04", "host")
@pytest.mark.parametrize("target", ["absolute", "relative", "inside", "dangling", "loop", "magic"])
def test_a_link_as_the_last_name_is_never_followed(rooted: Rooted, folder: Path, outside: Path, target: str) -> None:
    (folder / "own.txt").write_text("own")
    to = {
        "absolute": str(outside / "secret.txt"),
        "relative": "../outside/secret.txt",
        "inside": "own.txt",
        "dangling": str(outside / "new.txt"),
        "loop": "result.csv",
        "magic": "/proc/self/environ",
    }[target]
    (folder / "result.csv").symlink_to(to)
    with pytest.raises(PathTraversal, match="link"):
        rooted.read("result.csv")
    assert rooted.stat("result.csv").type == "symlink"
    assert rooted.stat("result.csv").target == to
    assert ("result.csv", "symlink") in [(entry.name, entry.type) for entry in rooted.list_dir()]


@pytest.mark.attack("F06", "host")
def test_nothing_below_a_link_is_written_read_listed_or_removed(rooted: Rooted, folder: Path, outside: Path) -> None:
    (folder / "a").mkdir()
    (folder / "a" / "link").symlink_to(outside)
    for path in ("a/link/new", "a/link/deeper/new", "a/./link/secret.txt", "a/x/../link/secret.txt", "/box/a/link/new"):
        for use in (rooted.read, rooted.remove, rooted.make_folder, lambda path: rooted.write(path, b"escaped")):
            with pytest.raises(PathTraversal, match="link"):
                use(path)
    with pytest.raises(PathTraversal, match="link"):
        rooted.list_dir("a/link")


@pytest.mark.attack("F06", "host")
def test_input_is_not_written_through_a_planted_link_hard_link_or_fifo(
    rooted: Rooted, folder: Path, outside: Path, tmp_path: Path
) -> None:
    other = tmp_path / "victim"
    other.write_text("untouched")
    (folder / "input.txt").symlink_to(outside / "secret.txt")
    (folder / "dangling").symlink_to(outside / "new.txt")
    os.link(other, folder / "hard.txt")
    os.mkfifo(folder / "code.py")
    for name in ("input.txt", "dangling", "hard.txt", "code.py"):
        rooted.write(name, b"new")
        assert stat.S_ISREG((folder / name).lstat().st_mode)
        assert rooted.read(name) == b"new"
    assert other.read_text() == "untouched"
    assert other.stat().st_nlink == 1


@pytest.mark.attack("F16", "host")
def test_modules_planted_in_the_work_folder_are_not_on_the_hosts_import_path(rooted: Rooted, folder: Path) -> None:
    before = (os.getcwd(), list(sys.path))
    for name in ("json.py", "sitecustomize.py", "conftest.py", "x.pth"):
        rooted.write(name, b"raise SystemExit('escaped')")
    list(rooted.walk())
    assert (os.getcwd(), sys.path) == before
    assert str(folder) not in sys.path


@pytest.mark.one_case
def test_a_folder_swapped_for_a_link_while_writing_leads_nowhere(
    rooted: Rooted,
    folder: Path,
    outside: Path,
    swapping: Callable[[Path, Path], AbstractContextManager[Callable[[], int]]],
) -> None:
    (folder / "d").mkdir()
    (folder / "trap").symlink_to(outside)
    written = refused = 0
    with swapping(folder / "d", folder / "trap") as swaps:
        for number in range(20_000):
            try:
                rooted.write("d/secret.txt" if number % 2 else "d/deeper/file", b"escaped")
                written += 1
            except PathTraversal:
                refused += 1
            with suppress(PathTraversal, InvalidRequest):
                assert rooted.read("d/secret.txt") == b"escaped"
            if written > 200 and refused > 200 and swaps() > 1000:
                break
    assert written and refused, "the race was not run"


@pytest.mark.attack("F04", "host")
def test_a_leaf_swapped_for_a_link_while_reading_gives_no_secret(
    rooted: Rooted,
    folder: Path,
    outside: Path,
    swapping: Callable[[Path, Path], AbstractContextManager[Callable[[], int]]],
) -> None:
    (folder / "a").write_text("own")
    (folder / "trap").symlink_to(outside / "secret.txt")
    read = refused = 0
    with swapping(folder / "a", folder / "trap"):
        for _ in range(20_000):
            try:
                assert rooted.read("a") == b"own"
                read += 1
            except PathTraversal:
                refused += 1
            if read > 200 and refused > 200:
                break
    assert read and refused, "the race was not run"


# Writing


def test_an_entry_takes_the_place_of_whatever_is_there(rooted: Rooted, folder: Path, outside: Path) -> None:
    (folder / "a").symlink_to(outside)
    rooted.write("b/c/d", b"old")
    rooted.write("file", b"longer than the new one")
    held = os.open(folder / "file", os.O_RDONLY)
    wanted = [
        Entry("a", "file", mode=0o640, data=b"new"),
        Entry("b", "symlink", target="elsewhere"),
        Entry("file", "file", mode=0o600, data=b"short"),
        Entry("x/y", "directory", mode=0o750),
        Entry("gone", "gone"),
    ]
    for entry in wanted:
        rooted.put(entry, in_place=True)
    assert os.read(held, 100) == b"short", "an open file was replaced and not written to"
    os.close(held)
    assert (folder / "a").read_bytes() == b"new" and os.readlink(folder / "b") == "elsewhere"
    assert {entry.path: entry.mode for entry in rooted.walk() if entry.type != "symlink"} == {
        "a": 0o640, "file": 0o600, "x": 0o755, "x/y": 0o750,
    }  # fmt: skip
    rooted.put(Entry("a", "gone"))
    assert not (folder / "a").exists()


def test_a_tree_is_put_with_modes_that_close_its_folders_and_what_fails_is_told(
    rooted: Rooted, folder: Path, outside: Path
) -> None:
    (folder / "link").symlink_to(outside)
    entries = [
        Entry("closed", "directory", mode=0o500),
        Entry("closed/f", "file", mode=0o400, data=b"1"),
        Entry("link/secret.txt", "file", mode=0o600, data=b"escaped"),
        Entry("pipe", "fifo"),
    ]
    assert set(rooted.put_tree(entries)) == {"link/secret.txt"}
    assert rooted.stat("closed").mode == 0o500 and rooted.read("closed/f") == b"1"
    assert sorted(os.listdir(folder)) == ["closed", "link"]


def test_modes_are_as_asked_whatever_the_umask_and_without_special_bits(rooted: Rooted, folder: Path) -> None:
    previous = os.umask(0o077)
    try:
        rooted.write("a", b"")
        rooted.write("b", b"", mode=0o6755)
    finally:
        os.umask(previous)
    assert stat.S_IMODE((folder / "a").stat().st_mode) == 0o644
    assert stat.S_IMODE((folder / "b").stat().st_mode) == 0o755


def test_a_file_in_the_way_of_a_folder_is_an_error(rooted: Rooted) -> None:
    rooted.write("f", b"")
    for use in (lambda: rooted.write("f/x", b""), lambda: rooted.make_folder("f/d"), lambda: rooted.make_folder("f")):
        with pytest.raises(InvalidRequest):
            use()


def test_a_block_that_fails_leaves_the_old_file_and_nothing_else(rooted: Rooted, folder: Path) -> None:
    rooted.write("a", b"old")
    with pytest.raises(RuntimeError), rooted.replacing("a") as fd:
        os.write(fd, b"half of the n")
        raise RuntimeError
    assert os.listdir(folder) == ["a"]
    assert rooted.read("a") == b"old"


def test_a_full_disk_is_told_as_such_and_leaves_nothing(
    rooted: Rooted, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, data: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(rooted_module.os, "write", full)
    with pytest.raises(ExecutionFailed, match="full"):
        rooted.write("a", b"x")
    assert os.listdir(folder) == []


@pytest.mark.parametrize("data", ["text", None, 7])
def test_content_that_is_not_bytes_is_refused(rooted: Rooted, folder: Path, data: object) -> None:
    with pytest.raises(InvalidRequest):
        rooted.write("a", data)  # type: ignore[arg-type]
    assert os.listdir(folder) == []


def test_threads_may_write_the_same_file_at_once(rooted: Rooted, folder: Path) -> None:
    contents = [bytes([65 + number]) * 50_000 for number in range(4)]
    threads = [
        threading.Thread(target=lambda data=data: [rooted.write("a/b", data) for _ in range(25)]) for data in contents
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rooted.read("a/b") in contents
    assert os.listdir(folder / "a") == ["b"]


@as_root
def test_what_root_makes_belongs_to_the_owner_of_the_folder(rooted: Rooted, folder: Path) -> None:
    os.chown(folder, 65534, 65533)
    rooted.write("d/a", b"1")
    for name in ("d", "d/a"):
        status = (folder / name).stat()
        assert (status.st_uid, status.st_gid) == (65534, 65533)
    (folder.parent / "later").touch()
    assert (folder.parent / "later").stat().st_uid == 0, "the thread did not become root again"


@as_root
def test_root_does_not_use_its_power_to_write_where_the_owner_may_not(rooted: Rooted, folder: Path) -> None:
    os.chown(folder, 65534, 65534)
    (folder / "locked").mkdir()
    os.chown(folder / "locked", 65534, 65534)
    (folder / "locked").chmod(0o555)
    with pytest.raises(ExecutionFailed, match="Permission denied"):
        rooted.write("locked/a", b"")


# Listing, looking, removing


def test_the_root_and_folders_below_are_listed_with_types(rooted: Rooted, folder: Path) -> None:
    (folder / "b.txt").write_text("123")
    (folder / "a").mkdir()
    (folder / "c").symlink_to("b.txt")
    os.mkfifo(folder / "d")
    entries = rooted.list_dir(".")
    assert [(entry.name, entry.type) for entry in entries] == [
        ("a", "directory"),
        ("b.txt", "file"),
        ("c", "symlink"),
        ("d", "fifo"),
    ]
    assert entries[1].size == 3
    assert [entry.is_dir for entry in entries] == [True, False, False, False]
    assert [entry.is_file for entry in entries] == [False, True, False, False]
    assert rooted.list_dir("a") == ()


def test_a_folder_with_too_many_entries_is_refused_rather_than_held_in_memory(
    rooted: Rooted, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rooted_module, "MAX_LISTED", 3)
    for number in range(4):
        (folder / str(number)).touch()
    with pytest.raises(InvalidRequest, match="more than 3"):
        rooted.list_dir(".")


HOSTILE = [
    "-rf",
    "a\nb",
    "\x1b[2J",
    "<img src=x onerror=alert(1)>",
    "..\\up",
    "\udcff",
    "a" * 255,
    "CON",
    "C:x",
    "a'; touch pwned; '",
    "$(touch pwned)",
]


@pytest.mark.attack("F17", "host")
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_listed_read_written_and_removed_as_the_file_it_is(
    rooted: Rooted, folder: Path, name: str
) -> None:
    rooted.write((name,), b"x")
    assert [entry.name for entry in rooted.list_dir()] == [name]
    assert os.listdir(folder) == [name]
    assert rooted.read((name,)) == b"x"
    assert [entry.names for entry in rooted.walk()] == [(name,)]
    rooted.remove((name,))
    assert os.listdir(folder) == []


def test_an_error_shows_a_hostile_name_harmlessly(rooted: Rooted) -> None:
    with pytest.raises(InvalidRequest) as caught:
        rooted.read("\x1b[2J\u202e")
    assert str(caught.value).isprintable()


def test_remove_takes_the_link_and_not_what_it_names(rooted: Rooted, folder: Path, outside: Path) -> None:
    (folder / "file").symlink_to(outside / "secret.txt")
    (folder / "dir").symlink_to(outside)
    rooted.remove("file")
    rooted.remove("dir", tree=True)
    assert os.listdir(folder) == []


def test_remove_takes_a_full_folder_only_when_asked(rooted: Rooted, folder: Path) -> None:
    rooted.write("d/e/f", b"")
    with pytest.raises(InvalidRequest, match="not empty"):
        rooted.remove("d")
    rooted.remove("d", tree=True)
    assert os.listdir(folder) == []
    for path in (".", "/box"):
        with pytest.raises(InvalidRequest, match="itself"):
            rooted.remove(path, tree=True)

import errno
import os
import tracemalloc
from pathlib import Path

import pytest

from sandbox_kernel.guest.wasm.guest_files import Folders
from sandbox_kernel.guest.wasm.plan import Preopen


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    for name in ("box", "data", "inner"):
        (tmp_path / name).mkdir()
    (tmp_path / "secret").write_text("host")
    (tmp_path / "data" / "given").write_text("given")
    return Folders(
        [
            Preopen(host=str(tmp_path / "box"), guest="/box", writable=True),
            Preopen(host=str(tmp_path / "data"), guest="/data", writable=False),
            Preopen(host=str(tmp_path / "inner"), guest="/box/inner", writable=True),
        ]
    )


def code_of(call: object, *arguments: object, **options: object) -> str:
    with pytest.raises(OSError) as found:
        call(*arguments, **options)  # type: ignore[operator]
    return errno.errorcode[found.value.errno or 0]


def test_files_are_written_read_added_to_and_removed(folders: Folders, tmp_path: Path) -> None:
    folders.write("a.txt", b"one")
    folders.write("/box/a.txt", b" two", append=True)
    assert folders.read("a.txt") == b"one two"
    assert (tmp_path / "box" / "a.txt").read_bytes() == b"one two"
    folders.rename("a.txt", "b.txt")
    assert folders.names(".") == ["b.txt"]
    folders.remove("b.txt")
    assert folders.names("/box") == []


def test_folders_are_made_and_removed_with_all_that_is_in_them(folders: Folders) -> None:
    folders.make_folder("x/y/z", parents=True)
    folders.make_folder("x/y/z", parents=True)
    folders.write("x/y/f", b"")
    assert code_of(folders.make_folder, "x") == "EEXIST"
    assert code_of(folders.remove, "x") == "EISDIR"
    assert code_of(folders.remove_folder, "x") == "ENOTEMPTY"
    folders.remove("x", recursive=True)
    assert folders.names(".") == []


@pytest.mark.parametrize(
    "path", ["/secret", "../secret", "/box/../secret", "/data/../secret", "/etc/passwd", "/", "/proc/1"]
)
def test_what_is_outside_does_not_exist(folders: Folders, path: str) -> None:
    assert code_of(folders.read, path) == "ENOENT"
    assert code_of(folders.write, path, b"x") == "ENOENT"
    assert code_of(folders.stat, path) == "ENOENT"
    assert code_of(folders.host_path, path) == "ENOENT"


@pytest.mark.parametrize("target", ["../secret", "/etc/passwd", "..", "/"])
def test_links_that_lead_out_lead_nowhere(folders: Folders, tmp_path: Path, target: str) -> None:
    (tmp_path / "box" / "link").symlink_to(target)
    assert code_of(folders.read, "link") == "ENOENT"
    assert code_of(folders.write, "link", b"x") == "ENOENT"
    assert code_of(folders.read, "link/passwd") == "ENOENT"
    assert code_of(folders.names, "link") == "ENOENT"
    assert code_of(folders.host_path, "link") == "ENOENT"
    assert folders.link("link") == target
    assert (tmp_path / "secret").read_text() == "host"
    folders.remove("link", recursive=True)
    assert (tmp_path / "secret").exists()


def test_links_within_a_folder_work(folders: Folders) -> None:
    folders.write("real", b"content")
    folders.make_link("real", "link")
    assert folders.read("link") == b"content"
    assert folders.host_path("link").endswith("/box/real")
    assert code_of(folders.make_link, "/etc/passwd", "other") == "EPERM"


def test_a_folder_that_is_read_only_stays_so(folders: Folders, tmp_path: Path) -> None:
    assert folders.read("/data/given") == b"given"
    for call, *arguments in (
        (folders.write, "/data/given", b"x"),
        (folders.write, "/data/new", b"x"),
        (folders.make_folder, "/data/d"),
        (folders.remove, "/data/given"),
        (folders.rename, "/data/given", "/box/taken"),
        (folders.set_mode, "/data/given", 0o777),
        (folders.set_time, "/data/given", 0.0),
        (folders.make_link, "x", "/data/link"),
    ):
        assert code_of(call, *arguments) == "EROFS"
    assert os.listdir(tmp_path / "data") == ["given"]


def test_a_mount_below_another_folder_is_its_own(folders: Folders, tmp_path: Path) -> None:
    folders.write("/box/inner/x", b"1")
    assert (tmp_path / "inner" / "x").exists()
    assert not (tmp_path / "box" / "inner").exists()
    assert folders.places() == ["/box", "/data", "/box/inner"]


def test_the_folders_themselves_cannot_be_removed_or_renamed(folders: Folders) -> None:
    assert code_of(folders.remove, "/box", recursive=True) == "EBUSY"
    assert code_of(folders.rename, "/box/inner", "/box/x") == "EBUSY"


def test_names_that_no_file_can_have_are_refused(folders: Folders) -> None:
    assert code_of(folders.read, "a\0b") == "EINVAL"
    assert code_of(folders.read, "x" * 300) == "ENAMETOOLONG"


def test_errors_name_the_guests_path_and_not_the_hosts(folders: Folders, tmp_path: Path) -> None:
    with pytest.raises(OSError) as found:
        folders.read("/box/missing")
    assert found.value.filename == "/box/missing"
    assert str(tmp_path) not in str(found.value)


def test_a_folder_is_not_read_as_a_file(folders: Folders) -> None:
    assert code_of(folders.read, "/box") == "EISDIR"


def test_a_small_file_is_read_without_memory_for_the_largest(folders: Folders) -> None:
    """Where memory is limited by address space, that ended the cell with no error to show."""
    folders.write("a.txt", b"one")
    tracemalloc.start()
    try:
        assert folders.read("a.txt") == b"one"
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()

import errno
import os
from pathlib import Path

import pytest

from sandbox_kernel.workspace.tree import beneath
from sandbox_kernel.workspace.tree.beneath import PASS, SCAN, open_folder

pytestmark = pytest.mark.usefixtures("both_ways")


@pytest.fixture
def root(folder: Path) -> int:
    fd = os.open(folder, PASS)
    yield fd
    os.close(fd)


def errno_of(root: int, *names: str, cross_mounts: bool = True) -> int | None:
    try:
        os.close(open_folder(root, names, cross_mounts=cross_mounts))
    except OSError as error:
        return error.errno
    return None


def test_a_folder_below_folders_is_opened(folder: Path, root: int) -> None:
    (folder / "a" / "b").mkdir(parents=True)
    fd = open_folder(root, ("a", "b"))
    assert os.path.samestat(os.fstat(fd), (folder / "a" / "b").stat())
    assert not os.get_inheritable(fd)
    os.close(fd)
    fd = open_folder(root, (), SCAN)
    assert os.listdir(fd) == ["a"]
    os.close(fd)


def test_a_link_on_the_way_is_told_as_a_link(folder: Path, root: int, outside: Path) -> None:
    (folder / "link").symlink_to(outside)
    (folder / "in").mkdir()
    (folder / "inner").symlink_to("in")
    (folder / "loop").symlink_to("loop")
    (folder / "dangling").symlink_to("nothing")
    for name in ("link", "inner", "loop", "dangling"):
        assert errno_of(root, name) == errno.ELOOP
        assert errno_of(root, name, "deeper") == errno.ELOOP


def test_a_file_on_the_way_and_a_missing_name_are_told_apart(folder: Path, root: int) -> None:
    (folder / "file").touch()
    assert errno_of(root, "file") == errno.ENOTDIR
    assert errno_of(root, "file", "x") == errno.ENOTDIR
    assert errno_of(root, "missing") == errno.ENOENT


@pytest.mark.skipif(not os.path.ismount("/proc"), reason="needs a mount point that every Linux has")
def test_a_mount_is_crossed_only_where_that_is_allowed() -> None:
    top = os.open("/", PASS)
    try:
        assert errno_of(top, "proc") is None
        assert errno_of(top, "proc", cross_mounts=False) == errno.EXDEV
    finally:
        os.close(top)


def test_no_descriptor_is_lost_whatever_happens(folder: Path, root: int) -> None:
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "link").symlink_to("a")
    before = len(os.listdir("/proc/self/fd"))
    for names in (("a", "b"), ("a", "missing", "x"), ("link", "b"), ("a", "b", "c")):
        errno_of(root, *names)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("answer", [errno.ENOSYS, errno.EPERM])
def test_a_kernel_or_filter_without_openat2_is_recognised(answer: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()

    def refuse(*arguments: object) -> int:
        raise OSError(answer, os.strerror(answer))

    beneath.openat2_works.cache_clear()
    monkeypatch.setattr(beneath, "_openat2", refuse)
    try:
        assert beneath.openat2_works() is False
    finally:
        beneath.openat2_works.cache_clear()

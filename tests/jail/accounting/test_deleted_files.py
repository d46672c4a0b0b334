"""Files without a name, wherever somebody holds them."""

from __future__ import annotations

import ctypes
import mmap
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel.jail.accounting.folder_watch import Deleted, deleted_files

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

    def refuse(path: str) -> list[str]:
        raise PermissionError(path)

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

"""Files that the gate hands over: believed only when nobody can change them any more."""

from __future__ import annotations

import fcntl
import os

from sandbox_kernel.jail.gate_messages import read_kept

ALL_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


def memory(data: bytes, seals: int = ALL_SEALS) -> int:
    fd = os.memfd_create("kept", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(fd, data)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def is_closed(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return True
    return False


def test_sealed_files_are_read_in_order_and_closed() -> None:
    fds = [memory(b"program"), memory(b"")]
    assert read_kept(fds, 100) == (b"program", b"")
    assert all(is_closed(fd) for fd in fds)


def test_one_that_can_still_be_written_spoils_all() -> None:
    fds = [memory(b"program"), memory(b"more", fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)]
    assert read_kept(fds, 100) == ()
    assert all(is_closed(fd) for fd in fds)


def test_one_that_is_too_large_spoils_all() -> None:
    assert read_kept([memory(b"x" * 101)], 100) == ()


def test_a_descriptor_that_is_no_memory_file_is_refused_unread() -> None:
    read, write = os.pipe()
    os.close(write)
    assert read_kept([read], 100) == ()
    assert is_closed(read)

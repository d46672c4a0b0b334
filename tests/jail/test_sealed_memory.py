"""Memory that is handed to jails can be read by all of them and changed by none."""

from __future__ import annotations

import errno
import mmap
import os

import pytest

from sandbox_kernel.jail.sealed_memory import SealedMemory


def test_what_was_put_in_is_there() -> None:
    memory = SealedMemory(b"x" * 100_000)
    assert len(memory) == 100_000
    assert os.pread(memory.fileno(), 200_000, 0) == b"x" * 100_000


@pytest.mark.parametrize("change", ["write", "grow", "shrink", "map"])
def test_nobody_can_change_it_not_even_its_maker(change: str) -> None:
    memory = SealedMemory(b"x" * 4096)
    changes = {
        "write": lambda: os.pwrite(memory.fileno(), b"y", 0),
        "grow": lambda: os.ftruncate(memory.fileno(), 8192),
        "shrink": lambda: os.ftruncate(memory.fileno(), 0),
        "map": lambda: mmap.mmap(memory.fileno(), 4096, mmap.MAP_SHARED, mmap.PROT_WRITE),
    }
    with pytest.raises(OSError) as caught:
        changes[change]()
    assert caught.value.errno == errno.EPERM


def test_it_is_closed_with_its_last_reference() -> None:
    memory = SealedMemory(b"x")
    number = memory.fileno()
    del memory
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)

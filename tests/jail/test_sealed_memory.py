"""Memory that is handed to jails can be read by all of them and changed by none."""

import contextlib
import errno
import fcntl
import hashlib
import mmap
import os
from pathlib import Path

import pytest

from sandbox_kernel.jail import sealed_memory
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
    number, before = memory.fileno(), os.fstat(memory.fileno())
    del memory
    # A thread of an earlier test may have opened something under the number since.
    with contextlib.suppress(OSError):
        assert not os.path.samestat(os.fstat(number), before)


def test_a_part_of_a_file_is_copied_with_its_holes(tmp_path: Path) -> None:
    with open(tmp_path / "sparse", "w+b") as file:
        os.ftruncate(file.fileno(), 64 << 20)
        os.pwrite(file.fileno(), b"first", 1 << 20)
        os.pwrite(file.fileno(), b"last", (64 << 20) - 4)
        memory = SealedMemory.of_file(file.fileno(), 1 << 20, 63 << 20)
        os.pwrite(file.fileno(), b"later", 1 << 20)
    assert len(memory) == 63 << 20
    assert os.pread(memory.fileno(), 6, 0) == b"first\0"
    assert os.pread(memory.fileno(), 10, (63 << 20) - 4) == b"last"
    assert os.fstat(memory.fileno()).st_blocks * 512 < 16 << 20


def test_a_file_that_is_too_short_is_said_to_be(tmp_path: Path) -> None:
    with open(tmp_path / "short", "w+b") as file:
        file.write(b"x" * 10)
        file.flush()
        with pytest.raises(EOFError):
            SealedMemory.of_file(file.fileno(), 5, 6)
        assert len(SealedMemory.of_file(file.fileno(), 5, 5)) == 5


def test_its_checksum_is_that_of_its_bytes() -> None:
    assert SealedMemory(b"x" * 5000).sha256() == hashlib.sha256(b"x" * 5000).hexdigest()
    assert SealedMemory().sha256() == hashlib.sha256().hexdigest()


def test_the_checksum_of_holes_takes_no_memory(tmp_path: Path) -> None:
    (tmp_path / "holes").write_bytes(b"")
    os.truncate(tmp_path / "holes", 64 << 20)
    with (tmp_path / "holes").open("rb") as file:
        memory = SealedMemory.of_file(file.fileno(), 0, 64 << 20)
    assert memory.sha256() == hashlib.sha256(bytes(64 << 20)).hexdigest()
    assert os.fstat(memory.fileno()).st_blocks == 0


def test_what_a_stranger_wrote_cannot_be_changed_by_it_afterwards() -> None:
    kept: list[int] = []

    def write(descriptor: int) -> None:
        kept.append(os.dup(descriptor))
        os.write(descriptor, b"written")

    memory = SealedMemory.filled(write)
    assert (len(memory), os.pread(memory.fileno(), 100, 0)) == (7, b"written")
    with pytest.raises(OSError, match="not permitted"):
        os.pwrite(kept[0], b"changed", 0)
    os.close(kept[0])


def test_memory_that_a_stranger_still_maps_or_has_sealed_itself_is_refused() -> None:
    maps: list[mmap.mmap] = []

    def keep_a_mapping(descriptor: int) -> None:
        os.ftruncate(descriptor, 4096)
        maps.append(mmap.mmap(descriptor, 4096))

    with pytest.raises(OSError) as caught:
        SealedMemory.filled(keep_a_mapping)
    assert caught.value.errno == errno.EBUSY
    maps[0].close()
    with pytest.raises(OSError) as caught:
        SealedMemory.filled(lambda descriptor: fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL) and None)
    assert caught.value.errno == errno.EPERM


def test_memory_that_is_in_use_for_a_moment_is_sealed_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may use a page of a session's memory at the moment when the session is forked."""
    maps: list[mmap.mmap] = []

    def map_it(descriptor: int) -> None:
        os.ftruncate(descriptor, 4096)
        maps.append(mmap.mmap(descriptor, 4096))

    monkeypatch.setattr(sealed_memory.time, "sleep", lambda _seconds: maps.pop().close())
    assert len(SealedMemory.filled(map_it)) == 4096
    assert not maps

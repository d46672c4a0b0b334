"""The cache of compiled programs: private, bounded, checked, and safe for two at once."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox_kernel.languages.compile_cache import MAX_ENTRY_BYTES, CompileCache, Compiled, default_folder

KEY, OTHER = "a" * 64, "b" * 64
PROGRAM = Compiled(program=b"\x7fELF", messages=b"warning: w\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "compiled"


def test_what_was_put_is_got(folder: Path) -> None:
    CompileCache(str(folder)).put(KEY, PROGRAM)
    assert CompileCache(str(folder)).get(KEY) == PROGRAM
    assert CompileCache(str(folder)).get(OTHER) is None


def test_the_folder_and_the_files_are_the_users_alone(folder: Path) -> None:
    CompileCache(str(folder)).put(KEY, PROGRAM)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / KEY).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("position", [0, 30, -1])
def test_a_damaged_entry_is_a_miss_and_goes(folder: Path, position: int) -> None:
    cache = CompileCache(str(folder))
    cache.put(KEY, PROGRAM)
    data = bytearray((folder / KEY).read_bytes())
    data[position] ^= 1
    (folder / KEY).write_bytes(data)
    assert cache.get(KEY) is None
    assert not (folder / KEY).exists()


@pytest.mark.parametrize("length", [0, 10, 60])
def test_a_cut_entry_is_a_miss(folder: Path, length: int) -> None:
    cache = CompileCache(str(folder))
    cache.put(KEY, PROGRAM)
    (folder / KEY).write_bytes((folder / KEY).read_bytes()[:length])
    assert cache.get(KEY) is None


def test_an_entry_under_another_key_is_a_miss(folder: Path) -> None:
    cache = CompileCache(str(folder))
    cache.put(KEY, PROGRAM)
    (folder / KEY).rename(folder / OTHER)
    assert cache.get(OTHER) is None


def test_a_link_in_place_of_an_entry_is_not_followed(folder: Path) -> None:
    cache = CompileCache(str(folder))
    cache.put(OTHER, PROGRAM)
    cache.put(KEY, PROGRAM)
    (folder / KEY).rename(folder.parent / "elsewhere")
    (folder / KEY).symlink_to(folder.parent / "elsewhere")
    assert cache.get(KEY) is None


def test_a_folder_that_others_can_write_is_not_used(folder: Path) -> None:
    cache = CompileCache(str(folder))
    cache.put(KEY, PROGRAM)
    folder.chmod(0o777)
    assert cache.get(KEY) is None
    cache.put(OTHER, PROGRAM)
    assert not (folder / OTHER).exists()


def test_the_least_recently_used_go_first(folder: Path) -> None:
    cache = CompileCache(str(folder), max_bytes=3500)
    keys = [letter * 64 for letter in "abcd"]
    for age, key in enumerate(keys[:3]):
        cache.put(key, Compiled(b"x" * 1000, b""))
        os.utime(folder / key, (age, age))
    assert cache.get(keys[0]) is not None  # used now, so the second is the oldest
    cache.put(keys[3], Compiled(b"x" * 1000, b""))
    assert [key[0] for key in keys if cache.get(key)] == ["a", "c", "d"]


def test_a_program_that_is_too_large_is_not_kept(folder: Path) -> None:
    cache = CompileCache(str(folder))
    cache.put(KEY, Compiled(b"x" * (MAX_ENTRY_BYTES + 1), b""))
    assert cache.get(KEY) is None


def test_what_a_dead_writer_left_aside_is_cleared(folder: Path) -> None:
    cache = CompileCache(str(folder))
    cache.put(KEY, PROGRAM)
    for name, age in (("aside-old", 7200), ("aside-new", 0)):
        (folder / name).write_bytes(b"half")
        when = (folder / name).stat().st_mtime - age
        os.utime(folder / name, (when, when))
    cache.put(OTHER, PROGRAM)
    assert sorted(p.name for p in folder.iterdir()) == [KEY, "aside-new", OTHER] or not (folder / "aside-old").exists()
    assert (folder / "aside-new").exists()
    assert not (folder / "aside-old").exists()


def test_two_writers_and_a_reader_never_see_half_an_entry(folder: Path) -> None:
    cache = CompileCache(str(folder))
    versions = [Compiled(bytes([n]) * 200_000, b"m") for n in (1, 2)]
    cache.put(KEY, versions[0])
    writers = [threading.Thread(target=lambda v=v: [cache.put(KEY, v) for _ in range(30)]) for v in versions]
    for writer in writers:
        writer.start()
    seen = [cache.get(KEY) for _ in range(60)]
    for writer in writers:
        writer.join()
    assert all(entry in versions for entry in seen)


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = CompileCache(str(tmp_path / "file" / "compiled"))
    cache.put(KEY, PROGRAM)
    assert cache.get(KEY) is None


def test_the_default_folder_is_below_the_users_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert default_folder() == "/somewhere/sandbox-kernel/compiled"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert default_folder() == os.path.expanduser("~/.cache/sandbox-kernel/compiled")


def test_a_cache_below_a_folder_that_others_can_write_is_not_used(tmp_path: Path) -> None:
    """Its owner could rename ours away and put a folder with his own programs there."""
    shared = tmp_path / "shared"
    shared.mkdir()
    cache = CompileCache(str(shared / "sandbox-kernel" / "compiled"))
    cache.put("ab" * 32, Compiled(program=b"program", messages=b""))
    assert cache.get("ab" * 32) is not None
    shared.chmod(0o777)
    assert cache.get("ab" * 32) is None
    cache.put("cd" * 32, Compiled(program=b"program", messages=b""))
    assert not (shared / "sandbox-kernel" / "compiled" / ("cd" * 32)).exists()


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_pipe_or_a_folder_in_the_place_of_an_entry_is_a_miss(tmp_path: Path, make: Callable[[Path], None]) -> None:
    cache = CompileCache(str(tmp_path / "cache"))
    cache.put("ab" * 32, Compiled(program=b"program", messages=b""))
    (tmp_path / "cache" / ("ab" * 32)).unlink()
    make(tmp_path / "cache" / ("ab" * 32))
    assert cache.get("ab" * 32) is None

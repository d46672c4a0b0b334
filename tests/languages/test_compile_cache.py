"""The cache of compiled programs: private, bounded, checked, and safe for two at once."""

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


def flip(position: int) -> Callable[[Path], None]:
    def spoil(entry: Path) -> None:
        data = bytearray(entry.read_bytes())
        data[position] ^= 1
        entry.write_bytes(data)

    return spoil


def link(entry: Path) -> None:
    entry.rename(entry.parent.parent / "elsewhere")
    entry.symlink_to(entry.parent.parent / "elsewhere")


@pytest.mark.parametrize("spoil", [
    *map(flip, (0, 30, -1)),
    *(lambda entry, length=length: entry.write_bytes(entry.read_bytes()[:length]) for length in (0, 10, 60)),
    lambda entry: (entry.parent / OTHER).rename(entry),
    link,
    lambda entry: (entry.unlink(), os.mkfifo(entry)),
    lambda entry: (entry.unlink(), entry.mkdir()),
], ids=["first", "middle", "last", "empty", "cut", "cut late", "another key", "link", "pipe", "folder"])  # fmt: skip
def test_what_is_no_whole_entry_of_its_key_is_a_miss(folder: Path, spoil: Callable[[Path], object]) -> None:
    cache = CompileCache(str(folder))
    cache.put(OTHER, PROGRAM)
    cache.put(KEY, PROGRAM)
    spoil(folder / KEY)
    assert cache.get(KEY) is None


def test_a_damaged_entry_goes(folder: Path) -> None:
    cache = CompileCache(str(folder))
    cache.put(KEY, PROGRAM)
    flip(-1)(folder / KEY)
    assert cache.get(KEY) is None
    assert not (folder / KEY).exists()


@pytest.mark.parametrize("above", [".", ".."])
def test_a_folder_is_the_users_alone_and_not_used_where_others_can_write(folder: Path, above: str) -> None:
    """The owner of a folder above could rename ours away and put one with his own programs there."""
    own = folder / "sandbox-kernel"
    cache = CompileCache(str(own))
    cache.put(KEY, PROGRAM)
    assert own.stat().st_mode & 0o777 == 0o700
    assert (own / KEY).stat().st_mode & 0o777 == 0o600
    (own / above).chmod(0o777)
    assert cache.get(KEY) is None
    cache.put(OTHER, PROGRAM)
    assert not (own / OTHER).exists()


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

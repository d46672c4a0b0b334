"""WASI in plain Python: files beneath the folders, and an error number for whatever a guest may ask."""

import os
import random
import struct
import time
from pathlib import Path

import pytest
import wasmtime

from sandbox_kernel.guest.wasm.plan import Preopen
from sandbox_kernel.guest.wasm.wasi import _CALLS, PlainWasi

BAD_DESCRIPTOR, FAULT, INVALID, NO_ENTRY, NOT_PERMITTED, READ_ONLY = 8, 21, 28, 44, 63, 69
READ, WRITE = 1 << 1, 1 << 6
BOX, FIXED, LETTERS = 3, 4, 1000
CREATE, DIRECTORY, EXCLUSIVE, TRUNCATE = 1, 2, 4, 8


class Guest:
    """A memory, and the calls as a guest makes them."""

    def __init__(self, root: Path) -> None:
        for name in ("box", "fixed"):
            (root / name).mkdir()
        folders = [
            Preopen(host=str(root / "box"), guest="/box", writable=True),
            Preopen(host=str(root / "fixed"), guest="/fixed", writable=False),
        ]
        self.letters: list[bytes] = []

        def letter(data: bytes) -> bytes:
            self.letters.append(data)
            return b"answer to " + data

        self.wasi = PlainWasi(["prog"], {"K": "v"}, letter_box=LETTERS, letter=letter)
        self.wasi.give(folders)
        self.wasi.write = lambda *_: None
        self.store = wasmtime.Store()
        self.memory = wasmtime.Memory(self.store, wasmtime.MemoryType(wasmtime.Limits(2, 3)))
        self.wasi.store, self.wasi.memory = self.store, self.memory

    def call(self, name: str, *arguments: int) -> int:
        return self.wasi._guarded(name)(*arguments)

    def put(self, at: int, data: bytes) -> tuple[int, int]:
        self.memory.write(self.store, data, at)
        return at, len(data)

    def number(self, at: int, size: int = 4) -> int:
        return int.from_bytes(self.memory.read(self.store, at, at + size), "little")

    def open(self, path: str, *, folder: int = BOX, how: int = 0, rights: int = READ) -> tuple[int, int]:
        error = self.call("path_open", folder, 0, *self.put(1000, path.encode()), how, rights, 0, 0, 16)
        return error, self.number(16)

    def write(self, handle: int, data: bytes) -> int:
        self.put(2000, data)
        self.put(64, struct.pack("<II", 2000, len(data)))
        return self.call("fd_write", handle, 64, 1, 16)

    def read(self, handle: int, size: int = 100) -> bytes:
        self.put(64, struct.pack("<II", 3000, size))
        assert self.call("fd_read", handle, 64, 1, 16) == 0
        return bytes(self.memory.read(self.store, 3000, 3000 + self.number(16)))


@pytest.fixture
def guest(tmp_path: Path) -> Guest:
    return Guest(tmp_path)


def test_a_file_is_made_written_read_and_removed(guest: Guest, tmp_path: Path) -> None:
    error, handle = guest.open("f", how=CREATE | EXCLUSIVE, rights=READ | WRITE)
    assert error == 0
    assert guest.write(handle, b"hello") == 0
    assert guest.call("fd_seek", handle, 1, 0, 16) == 0
    assert guest.read(handle) == b"ello"
    assert guest.call("fd_close", handle) == 0
    assert guest.call("fd_close", handle) == BAD_DESCRIPTOR
    assert (tmp_path / "box" / "f").read_bytes() == b"hello"
    assert guest.open("f", how=CREATE | EXCLUSIVE, rights=WRITE)[0] == 20
    assert guest.call("path_unlink_file", BOX, *guest.put(1000, b"f")) == 0
    assert not (tmp_path / "box" / "f").exists()


def test_what_is_open_is_told_because_no_memory_holds_it(guest: Guest) -> None:
    assert guest.wasi.open_files() == []
    _, handle = guest.open("f", how=CREATE, rights=WRITE)
    assert guest.wasi.open_files() == ["/box/f"]
    guest.call("fd_close", handle)
    assert guest.wasi.open_files() == []


@pytest.mark.parametrize(
    "path", ["../secret", "..", "a/../..", "/etc/passwd", "a/../../secret", "/box/../secret", "/box"]
)
def test_a_path_that_leaves_its_descriptors_folder_is_refused(guest: Guest, tmp_path: Path, path: str) -> None:
    (tmp_path / "secret").write_text("secret")
    for folder in (BOX, FIXED):
        assert guest.open(path, folder=folder)[0] == NOT_PERMITTED
        assert guest.open(path, folder=folder, how=DIRECTORY)[0] == NOT_PERMITTED
        assert guest.call("path_filestat_get", folder, 1, *guest.put(1000, path.encode()), 64) == NOT_PERMITTED
    assert guest.open(path, how=CREATE, rights=WRITE)[0] == NOT_PERMITTED
    assert guest.call("path_symlink", *guest.put(1000, b"a"), BOX, *guest.put(1100, path.encode())) == NOT_PERMITTED
    assert (tmp_path / "secret").read_text() == "secret"


def test_a_path_within_its_descriptors_folder_may_go_up(guest: Guest, tmp_path: Path) -> None:
    (tmp_path / "box" / "a").mkdir()
    (tmp_path / "box" / "f").write_text("x")
    assert [guest.open(path)[0] for path in ("a/../f", "./f", "a/./../f", "a/..", ".")] == [0] * 5


def test_no_link_leads_out(guest: Guest, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    os.symlink(tmp_path, tmp_path / "box" / "link")
    assert guest.open("link/secret")[0] == NO_ENTRY
    assert guest.open("link/secret", how=CREATE, rights=WRITE)[0] in (NO_ENTRY, READ_ONLY)
    assert (tmp_path / "secret").read_text() == "secret"


def test_a_read_only_folder_stays_so_and_links_stay_beneath_writable_ones(guest: Guest, tmp_path: Path) -> None:
    (tmp_path / "fixed" / "f").write_text("x")
    assert guest.open("f", folder=FIXED)[0] == 0
    assert guest.open("f", folder=FIXED, rights=WRITE)[0] == READ_ONLY
    assert guest.open("g", folder=FIXED, how=CREATE, rights=WRITE)[0] == READ_ONLY
    # Opened for reading only, it was emptied all the same.
    assert guest.open("f", folder=FIXED, how=TRUNCATE)[0] == READ_ONLY
    assert guest.open("g", folder=FIXED, how=CREATE)[0] == READ_ONLY
    assert guest.call("fd_filestat_set_times", guest.open("f", folder=FIXED)[1], 0, 0, 5) == READ_ONLY
    assert (tmp_path / "fixed" / "f").read_text() == "x"
    assert os.listdir(tmp_path / "fixed") == ["f"]
    assert guest.call("path_symlink", *guest.put(1000, b"/etc"), BOX, *guest.put(1100, b"l")) == NOT_PERMITTED
    assert guest.call("path_link", FIXED, 0, *guest.put(1000, b"f"), BOX, *guest.put(1100, b"l")) == READ_ONLY
    assert guest.call("path_symlink", *guest.put(1000, b"x"), FIXED, *guest.put(1100, b"l")) == READ_ONLY
    (tmp_path / "box" / "a").write_text("a")
    assert guest.call("path_symlink", *guest.put(1000, b"a"), BOX, *guest.put(1100, b"l")) == 0
    assert guest.call("path_link", BOX, 0, *guest.put(1000, b"a"), BOX, *guest.put(1100, b"h")) == 0
    assert (os.readlink(tmp_path / "box" / "l"), (tmp_path / "box" / "h").read_text()) == ("a", "a")


def test_a_descriptor_can_take_the_place_of_another(guest: Guest, tmp_path: Path) -> None:
    (tmp_path / "box" / "a").write_text("a")
    (tmp_path / "box" / "b").write_text("b")
    first, second = guest.open("a")[1], guest.open("b")[1]
    assert guest.call("fd_renumber", second, first) == 0
    assert guest.wasi.open_files() == ["/box/b"]
    assert guest.call("fd_renumber", first, BOX) == NOT_PERMITTED
    assert guest.call("fd_renumber", 99, first) != 0


def test_a_folder_is_listed_piece_by_piece(guest: Guest, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / "box" / name).write_text("")
    names, cookie = [], 0
    while True:
        assert guest.call("fd_readdir", BOX, 4000, 60, cookie, 16) == 0
        used = guest.number(16)
        entry = bytes(guest.memory.read(guest.store, 4000, 4000 + used))
        if used < 24:
            break
        following, _, size, _ = struct.unpack_from("<QQIB", entry)
        names.append(entry[24 : 24 + size].decode())
        cookie = following
    assert names == [".", "..", "a", "b", "c"]


def test_a_sleep_of_any_length_is_one_that_python_takes(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    for nanoseconds in (10**9, (1 << 64) - 1):
        guest.put(5000, struct.pack("<QBxxxxxxxIxxxxQQH", 7, 0, 1, nanoseconds, 0, 0) + bytes(10))
        assert guest.call("poll_oneoff", 5000, 6000, 1, 16) == 0
        assert (guest.number(16), guest.number(6000, 8)) == (1, 7)
    assert slept == [1.0, 1 << 30]


def test_the_guest_cannot_open_files_without_end(guest: Guest) -> None:
    answers = [guest.open("f", how=CREATE, rights=WRITE)[0] for _ in range(300)]
    assert set(answers) == {0, 33}
    assert answers.index(33) < 220


def test_twenty_thousand_absurd_calls_get_an_answer_each(guest: Guest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pointers beyond the memory, sizes below zero, descriptors that never were."""
    source = random.Random(7)
    odd = [0, 1, 3, 4, 5, 6, 7, 64, 1000, 65535, 131071, 131072, -1, -2, 1 << 30, (1 << 31) - 1, -(1 << 31)]
    odd_long = [*odd, 1 << 40, (1 << 63) - 1, -(1 << 63)]
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    names = [name for name in _CALLS if name != "proc_exit"]
    for _ in range(20_000):
        name = source.choice(names)
        arguments = [source.choice(odd_long if kind == "I" else odd) for kind in _CALLS[name]]
        answer = guest.call(name, *arguments)
        assert 0 <= answer < 80, (name, arguments)


def test_a_letter_goes_out_with_its_line_break_and_the_answer_is_read(guest: Guest) -> None:
    guest.write(LETTERS, b"one ")
    assert guest.letters == []
    guest.write(LETTERS, b"letter\n")
    assert guest.letters == [b"one letter"]
    assert guest.read(LETTERS, 9) + guest.read(LETTERS) + guest.read(LETTERS) == b"answer to one letter"
    assert guest.open("f", folder=LETTERS)[0] == BAD_DESCRIPTOR


def test_a_place_beyond_the_memory_is_refused_until_the_memory_has_grown(tmp_path: Path) -> None:
    guest = Guest(tmp_path)
    assert guest.call("random_get", 0, 8) == 0
    assert guest.call("random_get", 2 << 16, 8) == FAULT
    guest.memory.grow(guest.store, 1)
    assert guest.call("random_get", 2 << 16, 8) == 0
    assert guest.call("random_get", (3 << 16) - 4, 8) == FAULT

"""The changed pages of a memory make another guest the same; a file that lies is refused."""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import threading
from pathlib import Path

import pytest
import wasmtime

from sandbox_kernel.guest.wasm.boot_python import words_that_became_one
from sandbox_kernel.guest.wasm.memory import apply_changes, changed_pages, write_changes
from sandbox_kernel.guest.wasm.python_session import MemoryInterrupts

PAGE = os.sysconf("SC_PAGESIZE")
ENGINE = wasmtime.Engine()
MODULE = wasmtime.Module(ENGINE, f'(module (memory (export "memory") 4 8) (data (i32.const 0) "{"image" * 20_000}"))')


class Guest:
    """An instance of a module with an image of its own."""

    def __init__(self) -> None:
        self.store = wasmtime.Store(ENGINE)
        memory = wasmtime.Instance(self.store, MODULE, []).exports(self.store)["memory"]
        assert isinstance(memory, wasmtime.Memory)
        self.memory = memory

    def content(self) -> bytes:
        return bytes(self.memory.read(self.store, 0, self.memory.data_len(self.store)))


def test_another_guest_becomes_the_same_and_loses_what_it_wrote_itself(tmp_path: Path) -> None:
    one, two = Guest(), Guest()
    one.memory.write(one.store, b"changed", 5 * PAGE)
    one.memory.grow(one.store, 1)
    one.memory.write(one.store, b"grown", 4 * 65536 + 10)
    two.memory.write(two.store, b"its own", 9 * PAGE)
    pages = changed_pages(one)
    assert pages is not None
    numbers = {number for first, many in pages for number in range(first, first + many)}
    assert {5, 4 * 65536 // PAGE} <= numbers and 9 not in numbers
    with open(tmp_path / "changes", "wb") as file:
        assert write_changes(one, file.fileno(), pages)["changes"] is True
    apply_changes(two, os.open(tmp_path / "changes", os.O_RDONLY))
    assert two.content() == one.content()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"short",
        struct.pack("<QI", 4 * 65536, 1),
        struct.pack("<QIII", 4 * 65536, 1, 4 * 65536 // PAGE, 1) + bytes(PAGE),
        struct.pack("<QIII", 4 * 65536, 1, 4 * 65536 // PAGE - 1, 2) + bytes(2 * PAGE),
        struct.pack("<QIII", 4 * 65536, 1, 1 << 31, 1) + bytes(PAGE),
        struct.pack("<QIII", 4 * 65536, 1, 1, 0),
        struct.pack("<QIII", 4 * 65536, 1, 1, 2) + bytes(PAGE),
        struct.pack("<QIII", 1 << 40, 1, 1 << 20, 1) + bytes(PAGE),
        struct.pack("<QI", 4 * 65536, 0xFFFFFFFF),
        struct.pack("<QIII", 65536, 1, 0, 1) + bytes(PAGE),
    ],
)
def test_a_file_that_does_not_fit_is_refused_and_writes_nothing_outside(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "changes").write_bytes(data)
    guest = Guest()
    with pytest.raises((wasmtime.WasmtimeError, ValueError, struct.error)):
        apply_changes(guest, os.open(tmp_path / "changes", os.O_RDONLY))
    assert guest.content() == Guest().content()


def test_words_that_went_from_nothing_to_one_are_found() -> None:
    before = bytearray(3 * 4096)
    after = bytearray(before)
    struct.pack_into("<I", after, 8, 1)
    struct.pack_into("<I", after, 4096 + 16, 2)
    struct.pack_into("<I", after, 8192, 1)
    assert words_that_became_one(bytes(before), bytes(after)) == {8, 8192}


@pytest.mark.parametrize("word", [-4, 61, 1 << 40, "8", None])
def test_a_memory_that_lies_about_its_words_is_refused(word: object) -> None:
    place = (ctypes.c_ubyte * 64)()
    with pytest.raises(ValueError, match="no place for an interrupt"):
        MemoryInterrupts(ctypes.addressof(place), 64, [0, 4, 8, word])  # type: ignore[list-item]


def test_an_interrupt_waits_until_the_code_of_a_cell_begins_and_is_taken_back_after_it() -> None:
    place = (ctypes.c_int32 * 16)()
    interrupts = MemoryInterrupts(ctypes.addressof(place), 64, [0, 8, 12, 16])
    interrupts.interrupt()
    assert list(place[:5]) == [0, 0, 0, 0, 0]
    interrupts.arm()
    assert list(place[:5]) == [1, 0, 1, 1, 1]
    interrupts.disarm()
    assert list(place[:5]) == [0, 0, 1, 1, 1]


def test_an_interrupt_that_was_heard_after_its_cell_is_not_the_next_ones() -> None:
    place, threads = (ctypes.c_int32 * 16)(), threading.active_count()
    before = signal.signal(signal.SIGINT, lambda *_: None)
    interrupts = MemoryInterrupts(ctypes.addressof(place), 64, [0, 8, 12, 16])
    with interrupts:
        os.kill(os.getpid(), signal.SIGINT)  # the code of this cell never begins
    with interrupts:
        interrupts.arm()
        assert list(place[:5]) == [0, 0, 0, 0, 0]
        os.kill(os.getpid(), signal.SIGINT)
        while not place[0]:  # its own thread hears of it
            pass
    signal.signal(signal.SIGINT, before)
    assert list(place[:5]) == [0, 0, 1, 1, 1]
    assert threading.active_count() == threads, "a fork must find one thread"

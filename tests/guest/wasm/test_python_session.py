"""An interrupt by memory reaches the code of one cell, and no other."""

from __future__ import annotations

import ctypes
import os
import signal
import threading

from sandbox_kernel.guest.wasm.python_session import MemoryInterrupts


def test_an_interrupt_waits_until_the_code_of_a_cell_begins_and_is_taken_back_after_it() -> None:
    place = (ctypes.c_int32 * 16)()
    interrupts = MemoryInterrupts(ctypes.addressof(place), [0, 8, 12, 16])
    interrupts.interrupt()
    assert list(place[:5]) == [0, 0, 0, 0, 0]
    interrupts.arm()
    assert list(place[:5]) == [1, 0, 1, 1, 1]
    interrupts.disarm()
    assert list(place[:5]) == [0, 0, 1, 1, 1]


def test_an_interrupt_that_was_heard_after_its_cell_is_not_the_next_ones() -> None:
    place, threads = (ctypes.c_int32 * 16)(), threading.active_count()
    before = signal.signal(signal.SIGINT, lambda *_: None)
    interrupts = MemoryInterrupts(ctypes.addressof(place), [0, 8, 12, 16])
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

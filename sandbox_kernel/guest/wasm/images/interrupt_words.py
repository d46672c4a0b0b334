"""Finds the words of a CPython's memory that an interrupt sets, while its image is made.

A signal handler of CPython sets four words to 1: that this signal came, that one came, that one is to be handled, and
that the interpreter's loop must look. The interpreter is made to interrupt itself between two calls of its clock, which
is ours: the words that went from 0 to 1 between them, every time, are these four. They are tried before the image is
accepted.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable

import wasmtime

from ..wasi.engine_overrides import WASI

#: How many words an interrupt sets.
COUNT = 4
_PIECE = 4096
_CLOCKS = {0: time.time_ns, 1: time.monotonic_ns}


class WatchedClock:
    """The clock of a guest; ``on_call`` is called each time that the guest asks for the time."""

    def __init__(self, linker: wasmtime.Linker) -> None:
        self.on_call: Callable[[wasmtime.Memory, wasmtime.Caller], None] | None = None
        i32, i64 = wasmtime.ValType.i32(), wasmtime.ValType.i64()
        kind = wasmtime.FuncType([i32, i64, i32], [i32])
        linker.define_func(WASI, "clock_time_get", kind, self._time, access_caller=True)

    def _time(self, caller: wasmtime.Caller, clock: int, _precision: int, at: int) -> int:
        memory = caller["memory"]
        assert isinstance(memory, wasmtime.Memory)
        if self.on_call is not None:
            self.on_call(memory, caller)
        now = _CLOCKS.get(clock, time.process_time_ns)()
        memory.write(caller, now.to_bytes(8, "little"), at & 0xFFFFFFFF)
        return 0


def words_that_became_one(before: bytes, after: bytes) -> set[int]:
    """Return the addresses of the words that were 0 and are 1."""
    found = set()
    for start in range(0, min(len(before), len(after)), _PIECE):
        old, new = before[start : start + _PIECE], after[start : start + _PIECE]
        if old != new:
            pairs = zip(struct.iter_unpack("<I", old), struct.iter_unpack("<I", new), strict=True)
            found |= {start + 4 * place for place, pair in enumerate(pairs) if pair == ((0,), (1,))}
    return found


def find_words(clock: WatchedClock, probe: Callable[[], object], rounds: int = 4) -> set[int]:
    """Return the words that every interrupt sets.

    Args:
        clock: The clock of the guest.
        probe: Makes the guest call the clock, interrupt itself, and call the clock again.
        rounds: How often to try; what is in use by chance differs from one to the next.

    """
    common: set[int] | None = None
    for _ in range(rounds):
        seen: list[bytes] = []

        def look(memory: wasmtime.Memory, caller: wasmtime.Caller, seen: list[bytes] = seen) -> None:
            seen.append(bytes(memory.read(caller, 0, memory.data_len(caller))))

        clock.on_call = look
        probe()
        clock.on_call = None
        if len(seen) != 2:
            return set()
        found = words_that_became_one(*seen)
        common = found if common is None else common & found
    return common or set()


def set_words(clock: WatchedClock, words: set[int], call: Callable[[], object]) -> None:
    """Call a function of the guest, and write an interrupt when it asks for the time."""

    def write(memory: wasmtime.Memory, caller: wasmtime.Caller) -> None:
        for word in words:
            memory.write(caller, (1).to_bytes(4, "little"), word)

    clock.on_call = write
    call()
    clock.on_call = None

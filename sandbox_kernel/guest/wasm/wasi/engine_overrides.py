"""The WASI calls that the embedder implements itself; the engine implements all others.

A guest that sleeps or waits for input blocks inside the engine's calls, where the epoch cannot stop it. Then the
embedder ends the whole process, so these calls need no replacement. The engine makes links too: it refuses absolute
targets and read-only folders, and resolves every link beneath the folder in which the path began.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import wasmtime

from ..endings import GuestExit
from ..guest_fetch import define_fetch
from ..plan import RunPlan

WASI = "wasi_snapshot_preview1"

_SUCCESS, _FAULT, _INVALID = 0, 21, 28
_MOST_RANDOM_BYTES = 1 << 20
_REALTIME = 0


def make_linker(engine: wasmtime.Engine) -> wasmtime.Linker:
    """Make a linker with WASI for one guest."""
    i32 = wasmtime.ValType.i32()
    linker = wasmtime.Linker(engine)
    linker.define_wasi()
    linker.allow_shadowing = True
    # The engine's own proc_exit does not report exit codes of 126 and above.
    _define(linker, "proc_exit", [i32], 0, _proc_exit)
    define_fetch(linker)
    return linker


def make_repeatable(linker: wasmtime.Linker, plan: RunPlan) -> None:
    """Replace the clock and the random numbers where the plan fixes them."""
    i32, i64 = wasmtime.ValType.i32(), wasmtime.ValType.i64()
    if plan.clock_ns is not None:
        _define(linker, "clock_time_get", [i32, i64, i32], 1, _fixed_clock(plan.clock_ns))
    if plan.seed is not None:
        _define(linker, "random_get", [i32, i32], 1, _seeded_random(plan.seed))


def _define(
    linker: wasmtime.Linker,
    name: str,
    parameters: list[wasmtime.ValType],
    results: int,
    function: Callable[..., object],
) -> None:
    kind = wasmtime.FuncType(parameters, [wasmtime.ValType.i32()] * results)
    linker.define_func(WASI, name, kind, function, access_caller=True)


def _proc_exit(_caller: wasmtime.Caller, code: int) -> None:
    raise GuestExit(code)


def _write(caller: wasmtime.Caller, address: int, data: bytes) -> int:
    memory = caller.get("memory")
    start = address & 0xFFFFFFFF
    if not isinstance(memory, wasmtime.Memory) or start + len(data) > memory.data_len(caller):
        return _FAULT
    memory.write(caller, data, start)
    return _SUCCESS


def _fixed_clock(start_ns: int) -> Callable[..., int]:
    """Return a clock that starts at ``start_ns`` and advances by one microsecond at each call, so it is repeatable."""
    ticks = 0

    def clock_time_get(caller: wasmtime.Caller, clock: int, _precision: int, address: int) -> int:
        nonlocal ticks
        ticks += 1
        now = (start_ns if clock == _REALTIME else 0) + ticks * 1000
        return _write(caller, address, (now & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "little"))

    return clock_time_get


def _seeded_random(seed: int) -> Callable[..., int]:
    source = random.Random(seed)  # noqa: S311 - asked for by name: the same numbers at every run

    def random_get(caller: wasmtime.Caller, address: int, size: int) -> int:
        size &= 0xFFFFFFFF
        if size > _MOST_RANDOM_BYTES:
            return _INVALID
        return _write(caller, address, source.randbytes(size))

    return random_get

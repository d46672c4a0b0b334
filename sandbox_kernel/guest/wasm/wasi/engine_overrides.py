"""The WASI calls that the runner answers itself instead of the engine.

All others are the engine's own. A guest that sleeps or waits for input blocks inside those, where no epoch reaches it;
the runner's clock ends the whole process then, so nothing has to be answered here for that.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import wasmtime

from ..endings import GuestExit
from ..guest_fetch import define_fetch
from ..plan import RunPlan

WASI = "wasi_snapshot_preview1"

_SUCCESS, _FAULT, _INVALID, _NOT_PERMITTED = 0, 21, 28, 63
_MOST_RANDOM_BYTES = 1 << 20
_REALTIME = 0


def make_linker(engine: wasmtime.Engine) -> wasmtime.Linker:
    """WASI for one guest."""
    i32 = wasmtime.ValType.i32()
    linker = wasmtime.Linker(engine)
    linker.define_wasi()
    linker.allow_shadowing = True
    # The engine's own proc_exit loses codes from 126 on.
    _define(linker, "proc_exit", [i32], 0, _proc_exit)
    # Links are the raw material of every escape from a preopened folder; no guest needs them.
    _define(linker, "path_symlink", [i32] * 5, 1, _refuse)
    _define(linker, "path_link", [i32] * 7, 1, _refuse)
    define_fetch(linker)
    return linker


def make_repeatable(linker: wasmtime.Linker, plan: RunPlan) -> None:
    """Replace the clock and the source of randomness where the plan says what they are."""
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


def _refuse(_caller: wasmtime.Caller, *_arguments: int) -> int:
    return _NOT_PERMITTED


def _write(caller: wasmtime.Caller, address: int, data: bytes) -> int:
    memory = caller.get("memory")
    start = address & 0xFFFFFFFF
    if not isinstance(memory, wasmtime.Memory) or start + len(data) > memory.data_len(caller):
        return _FAULT
    memory.write(caller, data, start)
    return _SUCCESS


def _fixed_clock(start_ns: int) -> Callable[..., int]:
    """A clock that starts where it is told and moves by one microsecond at each look: repeatable, never standing."""
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

"""The few WASI calls that QuickJS makes, in plain Python: no threads, so that the worker can fork.

The engine's own WASI starts a thread pool at the first call, and threads do not survive a fork, which is how a session
makes its checkpoints. File access does not use these calls (``guest_files.py``).
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable

import wasmtime

from .engine_overrides import WASI

_SUCCESS, _BAD_DESCRIPTOR, _FAULT, _INVALID, _NOT_SEEKABLE = 0, 8, 21, 28, 70
_MOST_VECTORS, _MOST_RANDOM_BYTES = 1024, 1 << 20
_CHARACTER_DEVICE = 2


def plain_linker(engine: wasmtime.Engine, write: Callable[[int, bytes], None]) -> wasmtime.Linker:
    """Make a linker with these calls; ``write`` is called with output of streams 1 and 2."""
    i32, i64 = wasmtime.ValType.i32(), wasmtime.ValType.i64()
    linker = wasmtime.Linker(engine)

    def define(name: str, parameters: list[wasmtime.ValType], function: Callable[..., int]) -> None:
        linker.define_func(WASI, name, wasmtime.FuncType(parameters, [i32]), function, access_caller=True)

    def fd_write(caller: wasmtime.Caller, stream: int, vectors: int, count: int, written_at: int) -> int:
        memory = _memory(caller)
        if stream not in (1, 2) or memory is None:
            return _BAD_DESCRIPTOR
        if not 0 <= count <= _MOST_VECTORS:
            return _INVALID
        table = _read(memory, caller, vectors, 8 * count)
        parts = [_read(memory, caller, *pair) for pair in struct.iter_unpack("<II", table or b"")]
        data = b"".join(part for part in parts if part is not None)
        if table is None or any(part is None for part in parts) or not _put(memory, caller, written_at, len(data), 4):
            return _FAULT
        write(stream, data)
        return _SUCCESS

    def clock_time_get(caller: wasmtime.Caller, clock: int, _precision: int, address: int) -> int:
        memory = _memory(caller)
        now = time.time_ns() if clock == 0 else time.monotonic_ns()
        return _SUCCESS if memory is not None and _put(memory, caller, address, now, 8) else _FAULT

    def random_get(caller: wasmtime.Caller, address: int, size: int) -> int:
        memory, start, size = _memory(caller), address & 0xFFFFFFFF, size & 0xFFFFFFFF
        if memory is None or size > _MOST_RANDOM_BYTES or start + size > memory.data_len(caller):
            return _FAULT
        memory.write(caller, os.urandom(size), start)
        return _SUCCESS

    def fd_fdstat_get(caller: wasmtime.Caller, stream: int, address: int) -> int:
        memory = _memory(caller)
        if stream not in (0, 1, 2) or memory is None:
            return _BAD_DESCRIPTOR
        return _SUCCESS if _put(memory, caller, address, _CHARACTER_DEVICE, 24) else _FAULT

    define("fd_write", [i32] * 4, fd_write)
    define("clock_time_get", [i32, i64, i32], clock_time_get)
    define("random_get", [i32, i32], random_get)
    define("fd_fdstat_get", [i32, i32], fd_fdstat_get)
    define("fd_close", [i32], lambda _caller, _stream: _SUCCESS)
    define("fd_seek", [i32, i64, i32, i32], lambda _caller, *_rest: _NOT_SEEKABLE)
    return linker


def _memory(caller: wasmtime.Caller) -> wasmtime.Memory | None:
    found = caller.get("memory")
    return found if isinstance(found, wasmtime.Memory) else None


def _read(memory: wasmtime.Memory, caller: wasmtime.Caller, start: int, size: int) -> bytes | None:
    start &= 0xFFFFFFFF
    if start + size > memory.data_len(caller):
        return None
    return bytes(memory.read(caller, start, start + size))


def _put(memory: wasmtime.Memory, caller: wasmtime.Caller, start: int, value: int, size: int) -> bool:
    start &= 0xFFFFFFFF
    if start + size > memory.data_len(caller):
        return False
    memory.write(caller, value.to_bytes(size, "little"), start)
    return True

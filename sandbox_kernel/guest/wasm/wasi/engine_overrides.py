"""The WASI calls that the embedder of single runs implements itself; the engine implements all others.

A guest that sleeps or waits for input blocks inside the engine's calls, where the epoch cannot stop it. Then the
embedder ends the whole process, so these calls need no replacement. The engine makes links too: it refuses absolute
targets and read-only folders, and resolves every link beneath the folder in which the path began.

Two calls get more than the engine's. ``AskedInput``: standard input that comes from the user, who is asked for a line
when the guest reads and has used up the last one; the engine's own ``fd_read`` blocks without telling us.
``HostDescriptor``: a descriptor that leads to host functions; a write to it that ends a line is a call. For both the
guest is linked to a small module (``front``) whose calls go through a table. Once the guest has its memory, a second
module (``back``) puts functions into that table, which call us or the engine. All other data does not pass through
Python, so reading files is as fast as before.
"""

from __future__ import annotations

import errno
import json
import os
import random
from collections.abc import Callable, Sequence

import wasmtime

from ..engine import GuestExit
from ..guest_fetch import define_fetch
from ..host_line import HostLine
from ..plan import RunPlan
from .file_calls import NUMBERS, GuestMemory, WasiRefusal

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


_READ = "fd_read"
#: How many bytes fit into an empty pipe.
_MOST_BYTES = 60_000
_INPUT_FRONT = """(module (type $read (func (param i32 i32 i32 i32) (result i32)))
  (table (export "table") 1 funcref)
  (func (export "fd_read") (type $read)
    (call_indirect (type $read) (local.get 0) (local.get 1) (local.get 2) (local.get 3) (i32.const 0))))"""
_INPUT_BACK = """(module (type $read (func (param i32 i32 i32 i32) (result i32)))
  (import "guest" "memory" (memory 0)) (import "front" "table" (table 1 funcref))
  (import "wasi" "fd_read" (func $engine (type $read))) (import "host" "ask" (func $ask (result i32)))
  (export "memory" (memory 0)) (global $left (mut i32) (i32.const 0))
  (func $fd_read (type $read) (local $number i32)
    (if (local.get 0) (then
      (return (call $engine (local.get 0) (local.get 1) (local.get 2) (local.get 3)))))
    (if (i32.eqz (global.get $left)) (then (global.set $left (call $ask))))
    (local.set $number (call $engine (local.get 0) (local.get 1) (local.get 2) (local.get 3)))
    (if (i32.eqz (local.get $number)) (then
      (global.set $left (i32.sub (global.get $left) (i32.load (local.get 3))))))
    (local.get $number))
  (elem (i32.const 0) $fd_read))"""
#: How many instances ``AskedInput`` or ``HostDescriptor`` adds to the guest's own.
INSTANCES = 2


def ask(channel: int, prompt: str) -> str | None:
    """Ask the user for a line over the report's channel; returns None where the host has no user to ask."""
    try:
        os.write(channel, json.dumps({"ask": prompt}).encode() + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            part = os.read(channel, 1 << 16)
            if not part:
                return None
            answer += part
    except OSError:
        return None
    value = json.loads(answer)["answer"]
    return value if isinstance(value, str) else None


class AskedInput:
    """The standard input of one guest; must be made before the engine opens the process's own standard input."""

    def __init__(self, channel: int) -> None:
        self._channel = channel
        read, self._write = os.pipe()
        os.dup2(read, 0)
        os.close(read)

    def link(self, store: wasmtime.Store, linker: wasmtime.Linker, engine: wasmtime.Engine) -> None:
        """Define ``fd_read`` of the module ``front`` for the guest; called before the guest is instantiated."""
        self._engine = linker.get(store, WASI, _READ)
        self._front = wasmtime.Instance(store, wasmtime.Module(engine, _INPUT_FRONT), []).exports(store)
        linker.define(store, WASI, _READ, self._front[_READ])

    def join(self, store: wasmtime.Store, memory: wasmtime.Memory, engine: wasmtime.Engine) -> None:
        """Instantiate ``back`` with the guest's memory; from then on the guest can read."""
        asks = wasmtime.Func(store, wasmtime.FuncType([], [wasmtime.ValType.i32()]), self._refill)
        given = [memory, self._front["table"], self._engine, asks]
        wasmtime.Instance(store, wasmtime.Module(engine, _INPUT_BACK), given)

    def _refill(self) -> int:
        """Write the next line into the pipe that the engine reads; returns its size in bytes, 0 at the end of input."""
        if self._write < 0:
            return 0
        answer = ask(self._channel, "")
        if answer is None:
            os.close(self._write)
            self._write = -1
            return 0
        return os.write(self._write, (answer[:_MOST_BYTES] + "\n").encode("utf-8", "replace")[-_MOST_BYTES:])


def reads_input(module: wasmtime.Module) -> bool:
    """Whether a guest imports ``fd_read`` and exports its memory."""
    imported = any(item.module == WASI and item.name == _READ for item in module.imports)
    return imported and any(item.name == "memory" for item in module.exports)


#: The descriptor of the folder with the program, which can be neither read nor written otherwise. Not a number that no
#: file has: a CPython with a file system of its own knows its descriptors. ``backends/functions/inside.py`` has it too.
DESCRIPTOR = 6
PROGRAM_FOLDER = "/cell"
_CALLS = ("fd_read", "fd_write")
_FRONT = """(module (type $io (func (param i32 i32 i32 i32) (result i32)))
  (table (export "table") 2 funcref)
  (func (export "fd_read") (type $io)
    (call_indirect (type $io) (local.get 0) (local.get 1) (local.get 2) (local.get 3) (i32.const 0)))
  (func (export "fd_write") (type $io)
    (call_indirect (type $io) (local.get 0) (local.get 1) (local.get 2) (local.get 3) (i32.const 1))))"""
#: A read or write of several pieces is one of its first: programs go on with the rest.
_BACK = f"""(module (type $io (func (param i32 i32 i32 i32) (result i32)))
  (type $piece (func (param i32 i32) (result i32)))
  (import "guest" "memory" (memory 0)) (import "front" "table" (table 2 funcref))
  (import "wasi" "fd_read" (func $engine_read (type $io))) (import "wasi" "fd_write" (func $engine_write (type $io)))
  (import "host" "read" (func $host_read (type $piece))) (import "host" "write" (func $host_write (type $piece)))
  (export "memory" (memory 0))
  (func $moved (param $size i32) (param $told i32) (result i32)
    (if (i32.lt_s (local.get $size) (i32.const 0)) (then (return (i32.sub (i32.const 0) (local.get $size)))))
    (i32.store (local.get $told) (local.get $size)) (i32.const 0))
  (func $read (type $io)
    (if (i32.eq (local.get 0) (i32.const {DESCRIPTOR})) (then
      (return (call $moved
        (call $host_read (i32.load (local.get 1)) (i32.load offset=4 (local.get 1))) (local.get 3)))))
    (call $engine_read (local.get 0) (local.get 1) (local.get 2) (local.get 3)))
  (func $write (type $io)
    (if (i32.eq (local.get 0) (i32.const {DESCRIPTOR})) (then
      (return (call $moved
        (call $host_write (i32.load (local.get 1)) (i32.load offset=4 (local.get 1))) (local.get 3)))))
    (call $engine_write (local.get 0) (local.get 1) (local.get 2) (local.get 3)))
  (elem (i32.const 0) $read $write))"""


class HostDescriptor(GuestMemory):
    """The descriptor of one guest."""

    def __init__(self, line: HostLine) -> None:
        self._line = line
        self._asked = bytearray()
        self._answer = b""

    def link(self, store: wasmtime.Store, linker: wasmtime.Linker, engine: wasmtime.Engine) -> None:
        """Define the calls of ``front`` for the guest; called before the guest is instantiated."""
        self._engine = [linker.get(store, WASI, name) for name in _CALLS]
        self._front = wasmtime.Instance(store, wasmtime.Module(engine, _FRONT), []).exports(store)
        for name in _CALLS:
            linker.define(store, WASI, name, self._front[name])

    def join(self, store: wasmtime.Store, memory: wasmtime.Memory, engine: wasmtime.Engine) -> None:
        """Instantiate ``back`` with the guest's memory; from then on the guest can read and write."""
        self.memory, self.store = memory, store
        kind = wasmtime.FuncType([wasmtime.ValType.i32()] * 2, [wasmtime.ValType.i32()])
        ours = [wasmtime.Func(store, kind, call) for call in (self._read, self._write)]
        wasmtime.Instance(store, wasmtime.Module(engine, _BACK), [memory, self._front["table"], *self._engine, *ours])

    def _write(self, start: int, size: int) -> int:
        """Take a piece of a message; returns its size, or an error number below zero."""
        try:
            data = self._get(start, size)
            self._asked += data
            if data.endswith(b"\n"):
                message, self._asked = bytes(self._asked[:-1]), bytearray()
                self._answer = self._answered(message)
        except (WasiRefusal, MemoryError) as error:
            return -error.number if isinstance(error, WasiRefusal) else -NUMBERS[errno.ENOSPC]
        return size

    def _answered(self, message: bytes) -> bytes:
        if message == b"{}":
            return json.dumps({"functions": self._line.listing}).encode()
        return self._line.answer(message)

    def _read(self, start: int, size: int) -> int:
        """Give the next piece of the answer; returns its size, or an error number below zero."""
        try:
            part = self._answer[: size & 0xFFFFFFFF]
            self._put(start, part)
        except WasiRefusal as error:
            return -error.number
        self._answer = self._answer[len(part) :]
        return len(part)


def can_call(module: wasmtime.Module, places: Sequence[str]) -> bool:
    """Whether a guest with these folders has the descriptor, imports the two calls and exports its memory."""
    imported = {item.name for item in module.imports if item.module == WASI}
    exports_memory = any(item.name == "memory" for item in module.exports)
    return places[DESCRIPTOR - 3 :][:1] == [PROGRAM_FOLDER] and imported.issuperset(_CALLS) and exports_memory

"""A descriptor of a single run that leads to host functions: a write to it that ends a line is a call.

As for input from the user (``asked_input.py``), the guest is linked to a small module (``front``) whose calls go
through a table, and a second one (``back``) puts functions into the table once the guest has its memory. Reads and
writes of all other descriptors go to the engine and do not pass through Python.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Sequence

import wasmtime

from ..host_line import HostLine
from .engine_overrides import WASI
from .guest_memory import NUMBERS, GuestMemory, WasiRefusal

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
#: The number of instances besides the guest's own.
INSTANCES = 2


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

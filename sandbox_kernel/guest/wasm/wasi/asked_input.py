"""Standard input that comes from the user: asks for a line when the guest reads and has used up the last one.

The engine's own ``fd_read`` blocks without telling us. So the guest is linked to a small module (``front``) whose
``fd_read`` calls a function in a table. Once the guest has its memory, a second module (``back``) puts a function into
that table which first asks for a line if there is nothing to read, and then calls the engine's ``fd_read``. The data
itself does not pass through Python, so reading files is as fast as before.
"""

from __future__ import annotations

import json
import os

import wasmtime

from .engine_overrides import WASI

_READ = "fd_read"
#: How many bytes fit into an empty pipe.
_MOST_BYTES = 60_000
_FRONT = """(module (type $read (func (param i32 i32 i32 i32) (result i32)))
  (table (export "table") 1 funcref)
  (func (export "fd_read") (type $read)
    (call_indirect (type $read) (local.get 0) (local.get 1) (local.get 2) (local.get 3) (i32.const 0))))"""
_BACK = """(module (type $read (func (param i32 i32 i32 i32) (result i32)))
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
#: The number of instances besides the guest's own.
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
        self._front = wasmtime.Instance(store, wasmtime.Module(engine, _FRONT), []).exports(store)
        linker.define(store, WASI, _READ, self._front[_READ])

    def join(self, store: wasmtime.Store, memory: wasmtime.Memory, engine: wasmtime.Engine) -> None:
        """Instantiate ``back`` with the guest's memory; from then on the guest can read."""
        asks = wasmtime.Func(store, wasmtime.FuncType([], [wasmtime.ValType.i32()]), self._refill)
        given = [memory, self._front["table"], self._engine, asks]
        wasmtime.Instance(store, wasmtime.Module(engine, _BACK), given)

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

"""Standard input of a guest whose user can be asked: a line is asked for when the guest reads and has used up the last.

A guest reads through the engine's own ``fd_read``, which waits where nobody can tell that it does. So the guest is
linked to a small module (``front``) whose ``fd_read`` goes through a table, and once the guest has its memory, a second
one (``back``) puts a function there that sees to it that there is something to read, and then lets the engine read. No
byte of the guest goes through here, and reading files costs as much as ever.
"""

from __future__ import annotations

import json
import os

import wasmtime

from .engine_overrides import WASI

_READ = "fd_read"
#: What fits into a pipe that is empty.
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
#: Instances beside the guest's own.
INSTANCES = 2


def ask(channel: int, prompt: str) -> str | None:
    """Ask the host's user for a line, on the channel that takes the report; None where there is nobody to ask."""
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
    """The standard input of one guest; made before the engine takes the process's own for it."""

    def __init__(self, channel: int) -> None:
        self._channel = channel
        read, self._write = os.pipe()
        os.dup2(read, 0)
        os.close(read)

    def link(self, store: wasmtime.Store, linker: wasmtime.Linker, engine: wasmtime.Engine) -> None:
        """Stand between the guest and the engine; called before the guest is instantiated."""
        self._engine = linker.get(store, WASI, _READ)
        self._front = wasmtime.Instance(store, wasmtime.Module(engine, _FRONT), []).exports(store)
        linker.define(store, WASI, _READ, self._front[_READ])

    def join(self, store: wasmtime.Store, memory: wasmtime.Memory, engine: wasmtime.Engine) -> None:
        """The guest has its memory: reading works from here on."""
        asks = wasmtime.Func(store, wasmtime.FuncType([], [wasmtime.ValType.i32()]), self._refill)
        given = [memory, self._front["table"], self._engine, asks]
        wasmtime.Instance(store, wasmtime.Module(engine, _BACK), given)

    def _refill(self) -> int:
        """Put the next line where the engine reads; how many bytes, 0 at the end of input."""
        if self._write < 0:
            return 0
        answer = ask(self._channel, "")
        if answer is None:
            os.close(self._write)
            self._write = -1
            return 0
        return os.write(self._write, (answer[:_MOST_BYTES] + "\n").encode("utf-8", "replace")[-_MOST_BYTES:])


def reads_input(module: wasmtime.Module) -> bool:
    """Whether a guest can read at all, and lets us see its memory."""
    imported = any(item.module == WASI and item.name == _READ for item in module.imports)
    return imported and any(item.name == "memory" for item in module.exports)

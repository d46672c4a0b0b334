"""Adds a function to the QuickJS module that writes console output through WASI, without calling Python.

A call from JavaScript to the host crosses between Python and WebAssembly a dozen times, a millisecond on a busy
machine: too slow for a program that prints in a loop. So host functions whose name is one digit are handled inside the
module: the digit is the stream, the first argument the text. All others go to the host.
"""

from __future__ import annotations

import functools

import wasmtime

from . import format as binary
from .format import Malformed, Reader, unsigned
from .inspect_module import Caps, ModuleFacts, inspect, skip_locals
from .opcodes import CALL, walk

STDOUT, STDERR = "1", "2"

#: The imports are in the order of their counterparts in ``_CALLS``; the added function comes after them.
_TEXT = """(module
  (import "x" "host_call" (func $host_call (param i32 i32 i32 i32 i32) (result i32)))
  (import "x" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "x" "get_string" (func $get_string (param i32 i32) (result i32)))
  (import "x" "free_string" (func $free_string (param i32)))
  (import "x" "undefined" (func $undefined (result i32)))
  (import "x" "malloc" (func $malloc (param i32) (result i32)))
  (import "x" "free" (func $free (param i32)))
  (memory 1)
  (func (param $name i32) (param $size i32) (param $this i32) (param $count i32) (param $arguments i32) (result i32)
    (local $place i32) (local $text i32)
    (if (i32.or (i32.ne (local.get $size) (i32.const 1)) (i32.eqz (local.get $count)))
      (then (return (call $host_call
        (local.get $name) (local.get $size) (local.get $this) (local.get $count) (local.get $arguments)))))
    ;; place: bytes written, then an io vector of address and size
    (local.set $place (call $malloc (i32.const 16)))
    (if (i32.eqz (local.get $place)) (then (return (call $undefined))))
    (local.set $text (call $get_string (i32.load (local.get $arguments)) (i32.add (local.get $place) (i32.const 8))))
    (if (local.get $text) (then
      (i32.store offset=4 (local.get $place) (local.get $text))
      (block $done (loop $more
        (br_if $done (i32.eqz (i32.load offset=8 (local.get $place))))
        (br_if $done (call $fd_write
          (i32.sub (i32.load8_u (local.get $name)) (i32.const 48))
          (i32.add (local.get $place) (i32.const 4)) (i32.const 1) (local.get $place)))
        (i32.store offset=4 (local.get $place)
          (i32.add (i32.load offset=4 (local.get $place)) (i32.load (local.get $place))))
        (i32.store offset=8 (local.get $place)
          (i32.sub (i32.load offset=8 (local.get $place)) (i32.load (local.get $place))))
        (br $more)))
      (call $free_string (local.get $text))))
    (call $free (local.get $place))
    (call $undefined)))"""
_IMPORTS = (("env", "host_call"), ("wasi_snapshot_preview1", "fd_write"))
_EXPORTS = ("qjs_get_string_len", "qjs_free_cstring", "qjs_get_undefined", "wasm_malloc", "wasm_free")


def with_console(module: bytes, facts: ModuleFacts) -> bytes:
    """Return the QuickJS module with the added console function."""
    functions = [item for item in facts.imports if item.kind == "func"]
    try:
        targets = [next(i for i, f in enumerate(functions) if (f.module, f.name) == name) for name in _IMPORTS]
        targets += [facts.exports[name][1] for name in _EXPORTS]
    except (StopIteration, KeyError):
        raise Malformed("this is not the QuickJS module that the console is made for") from None
    added = facts.imported_functions + facts.functions
    parts: list[tuple[int, bytes]] = []
    for section in facts.sections:
        content = module[section.start : section.end]
        if section.id == binary.FUNCTION:
            content = _append(content, unsigned(_type_of(module, facts, targets[0])))
        elif section.id == binary.CODE:
            bodies = [_redirected(module, *body, {targets[0]: added}) for body in facts.bodies]
            bodies.append(_own_body(tuple(targets)))
            content = unsigned(len(bodies)) + b"".join(unsigned(len(body)) + body for body in bodies)
        parts.append((section.id, content))
    return binary.assemble(parts)


def _append(content: bytes, item: bytes) -> bytes:
    reader = Reader(content)
    return unsigned(reader.unsigned() + 1) + content[reader.position :] + item


def _redirected(data: bytes, start: int, end: int, calls: dict[int, int]) -> bytes:
    """Return a function body in which calls of some functions are replaced by calls of others."""
    wanted = [bytes([CALL]) + unsigned(old) for old in calls]
    if all(data.find(pattern, start, end) < 0 for pattern in wanted):
        return data[start:end]
    pieces, rest = [], start
    for offset, opcode in walk(data, skip_locals(data, start, end, 1 << 32), end):
        if opcode == CALL:
            reader = Reader(data, offset + 1, end)
            target = reader.unsigned()
            if target in calls:
                pieces += [data[rest:offset], bytes([CALL]) + unsigned(calls[target])]
                rest = reader.position
    return b"".join([*pieces, data[rest:end]])


@functools.lru_cache(maxsize=1)
def _own_body(targets: tuple[int, ...]) -> bytes:
    data = bytes(wasmtime.wat2wasm(_TEXT))
    ((start, end),) = inspect(data, Caps()).bodies
    return _redirected(data, start, end, dict(enumerate(targets)))


def _type_of(module: bytes, facts: ModuleFacts, wanted: int) -> int:
    """Return the type of an imported function, which ``inspect`` does not keep."""
    section = next(s for s in facts.sections if s.id == binary.IMPORT)
    reader = Reader(module, section.start, section.end)
    seen = -1
    for _ in range(reader.unsigned()):
        reader.name()
        reader.name()
        if reader.byte() != 0:
            raise Malformed("QuickJS imports something that is not a function")
        number = reader.unsigned()
        seen += 1
        if seen == wanted:
            return number
    raise Malformed("QuickJS does not import its host call")

"""Checks, changes and compiles modules. Additions go to the end of their sections, so no index in a module changes.

``prepare`` makes two changes to every module, so that the embedder can report exactly how it ended:

* A refused ``memory.grow`` only returns -1, so a program that reached its memory limit looks like any other failure.
  Each ``memory.grow`` becomes a call of an added function, which counts refusals in an added global and traps after
  too many.
* A start function runs while the module is instantiated, before the embedder can set that counter. It becomes an export
  that the embedder calls.

``with_console`` adds a function to QuickJS. ``bake``, ``exposed`` and ``with_stack`` make images: modules of the
catalogue that begin with the memory of a guest that has started. The engine validates every result.

``compile_module`` finds everything that would keep a module from running: the host runs only what it has accepted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import wasmtime

from . import binary
from .binary import (
    CALL,
    MEMORY_GROW,
    PAGE_BYTES,
    TARGET,
    TRUSTED,
    Caps,
    Malformed,
    ModuleFacts,
    Reader,
    Section,
    inspect,
    signed,
    skip_locals,
    unsigned,
    walk,
)
from .engine import describe_error, make_engine, make_linker
from .plan import CompilePlan

#: The exported i32 counter of refused growths. Without a limit of ours the embedder sets it so low that it never traps.
REFUSED = "__sandbox_refused_growths"
#: The exported start function of a module that had one.
START = "__sandbox_start"
#: After this many refusals the program is stopped: it does nothing but ask for memory.
MOST_REFUSALS = 10_000

_I32, _MUTABLE = 0x7F, 0x01


def prepare(data: bytes, facts: ModuleFacts) -> bytes:
    """Return the module with counted growth and an exported start function; unchanged when it has neither."""
    if {REFUSED, START} & facts.exports.keys():
        raise binary.Malformed(f"the export names {REFUSED} and {START} are reserved; rename that export")
    counter, added = facts.imported_globals + facts.globals, facts.imported_functions + facts.functions
    bodies = [_redirected(data, start, end, MEMORY_GROW, {0: added}) for start, end in facts.bodies]
    contents: dict[int, bytes] = {}
    exports = []
    if any(body != data[start:end] for body, (start, end) in zip(bodies, facts.bodies, strict=True)):
        contents[binary.TYPE] = _more(data, facts, binary.TYPE, bytes([0x60, 1, _I32, 1, _I32]))
        contents[binary.FUNCTION] = _more(data, facts, binary.FUNCTION, unsigned(facts.types))
        contents[binary.GLOBAL] = _more(data, facts, binary.GLOBAL, bytes([_I32, _MUTABLE, 0x41, 0, 0x0B]))
        contents[binary.CODE] = _code([*bodies, _counting_grow(counter)])
        exports.append(_export(REFUSED, "global", counter))
    if facts.start is not None:
        exports.append(_export(START, "func", facts.start))
    if not exports:
        return data
    contents[binary.EXPORT] = _more(data, facts, binary.EXPORT, *exports)
    return _changed(data, facts.sections, contents)


def _changed(module: bytes, sections: Sequence[Section], contents: Mapping[int, bytes]) -> bytes:
    """Return the module with these contents of some sections, also of those that it lacks; without a start function."""
    parts = [
        (section.id, contents.get(section.id, module[section.start : section.end]))
        for section in sections
        if section.id != binary.START
    ]
    for number in contents.keys() - {number for number, _ in parts}:
        behind = binary.ORDER[binary.ORDER.index(number) + 1 :]
        place = next((at for at, (other, _) in enumerate(parts) if other in behind), len(parts))
        parts.insert(place, (number, contents[number]))
    return binary.assemble(parts)


def _more(module: bytes, facts: ModuleFacts, number: int, *items: bytes) -> bytes:
    """Return the content of a section with more items at its end."""
    found = next((section for section in facts.sections if section.id == number), Section(number, 0, 0))
    reader = Reader(module, found.start, found.end)
    before = reader.unsigned() if found.end else 0
    return unsigned(before + len(items)) + module[reader.position : found.end] + b"".join(items)


def _export(name: str, kind: str, index: int) -> bytes:
    return unsigned(len(name)) + name.encode() + bytes([binary.KINDS.index(kind)]) + unsigned(index)


def _code(bodies: Sequence[bytes]) -> bytes:
    return unsigned(len(bodies)) + b"".join(unsigned(len(body)) + body for body in bodies)


def _redirected(data: bytes, start: int, end: int, opcode: int, calls: Mapping[int, int]) -> bytes:
    """Return a function body in which this instruction with some operands is a call of a function."""
    # Walks only bodies that contain the bytes of the instruction; a number may be written longer than it needs.
    wanted = [bytes([opcode]) + unsigned(old) for old in calls] + [bytes([opcode, old & 0x7F | 0x80]) for old in calls]
    if all(data.find(pattern, start, end) < 0 for pattern in wanted):
        return data[start:end]
    pieces, rest = [], start
    for offset, found in walk(data, skip_locals(data, start, end, 1 << 32), end):
        if found == opcode:
            reader = Reader(data, offset + 1, end)
            target = calls.get(reader.unsigned())
            if target is not None:
                pieces += [data[rest:offset], bytes([CALL]) + unsigned(target)]
                rest = reader.position
    return b"".join([*pieces, data[rest:end]])


def _counting_grow(counter: int) -> bytes:
    index = unsigned(counter)
    return b"".join([
        b"\x01\x01\x7f",  # one local i32: the answer
        b"\x20\x00\x40\x00\x22\x01\x41\x7f\x46",  # (i32.eq (local.tee 1 (memory.grow (local.get 0))) (i32.const -1))
        b"\x04\x40",  # if: refused
        b"\x23", index, b"\x41\x01\x6a\x24", index,  # counter += 1
        b"\x23", index, b"\x41", signed(MOST_REFUSALS), b"\x4a\x04\x40\x00\x0b",  # if counter > most: unreachable
        b"\x0b\x20\x01\x0b",
    ])  # fmt: skip


#: What ``exposed`` exports of a module, so that its booted memory can be entered.
TABLE = "__sandbox_table"


def exposed(module: bytes, facts: ModuleFacts) -> bytes:
    """Return the module with its first table exported; raises ``Malformed`` when its memory may not be all of it.

    One global is its stack pointer, which is the same between two calls. The large CPython has a constant besides.
    """
    if facts.globals not in (1, 2) or facts.imported_globals or facts.start is not None:
        raise Malformed(
            f"a module with {facts.globals} globals and {facts.imported_globals} imported ones is not booted"
        )
    added = _more(module, facts, binary.EXPORT, _export(TABLE, "table", 0))
    return _changed(module, facts.sections, {binary.EXPORT: added})


def with_stack(image: bytes, stack: int) -> bytes:
    """Return the image with this first value of its only global, the stack pointer; with others it is not valid."""
    content = unsigned(1) + bytes([_I32, _MUTABLE]) + _constant(stack) + b"\x0b"
    return _changed(image, binary.sections(image), {binary.GLOBAL: content})


_OS_PAGE = 4096


def bake(module: bytes, memory: bytes) -> bytes:
    """Return the module with this initial content of its memory."""
    if len(memory) % PAGE_BYTES:
        raise Malformed("an image must be whole pages of memory")
    start = (len(memory) - len(memory.lstrip(b"\0"))) // _OS_PAGE * _OS_PAGE
    end = max(start, -(-len(memory.rstrip(b"\0")) // _OS_PAGE) * _OS_PAGE)
    data = unsigned(1) + b"\0" + _constant(start) + b"\x0b" + unsigned(end - start) + memory[start:end]
    sections = binary.sections(module)
    contents = {binary.DATA: data}
    for section in sections:
        if section.id == binary.DATA_COUNT:
            contents[section.id] = unsigned(1)
        elif section.id == binary.MEMORY:
            reader = Reader(module, section.start, section.end)
            if reader.unsigned() != 1:
                raise Malformed("only a module with one memory can be made into an image")
            flags, least = reader.byte(), reader.unsigned()
            pages = unsigned(1) + bytes([flags]) + unsigned(max(least, len(memory) // PAGE_BYTES))
            contents[section.id] = pages + module[reader.position : section.end]
    return _changed(module, sections, contents)


def _constant(value: int) -> bytes:
    return b"\x41" + signed(value - (1 << 32) if value >= 1 << 31 else value)


STDOUT, STDERR = "1", "2"

#: A line that is printed by this takes a fortieth of the time of a host call. The imports are in the order of their
#: counterparts in ``_CALLS``; the added function comes after them.
_CONSOLE = """(module
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
    own = bytes(wasmtime.wat2wasm(_CONSOLE))
    ((start, end),) = inspect(own, Caps()).bodies
    bodies = [_redirected(module, *body, CALL, {targets[0]: added}) for body in facts.bodies]
    bodies.append(_redirected(own, start, end, CALL, dict(enumerate(targets))))
    kind = unsigned(functions[targets[0]].type)
    contents = {binary.FUNCTION: _more(module, facts, binary.FUNCTION, kind), binary.CODE: _code(bodies)}
    return _changed(module, facts.sections, contents)


ENTRY = "_start"
_NO_ENTRY = f"export the function to run as {ENTRY}, or {TARGET} and not as a library"
_IMPORTED = f"only what wasi_snapshot_preview1 and the module sandbox (fetch) declare is given; {TARGET}"


def compile_module(plan: CompilePlan) -> bytearray:
    """Return the machine code of ``plan.source``; raises ``Malformed`` or ``WasmtimeError`` for a bad module."""
    with open(plan.source, "rb") as file:
        data = file.read()
    if plan.text:
        data = bytes(wasmtime.wat2wasm(data.decode()))
    engine = make_engine(plan.switches, parallel=plan.trusted)
    facts = inspect(data, TRUSTED if plan.trusted else Caps())
    if plan.plain:
        return wasmtime.Module(engine, exposed(data, facts)).serialize()
    if not plan.trusted and facts.exports.get(ENTRY, ("", 0))[0] != "func":
        names = ", ".join(sorted(repr(name) for name, (kind, _) in facts.exports.items() if kind == "func")[:5])
        found = f"; it exports {names}" if names else ""
        raise Malformed(f"the module exports no {ENTRY} function, so there is nothing to run{found}", _NO_ENTRY)
    prepared = prepare(data, facts)
    if prepared != data and not plan.trusted:
        # Validate before ``prepare``: a module must not become valid by what that adds, or it could use our counter.
        wasmtime.Module.validate(engine, data)
    module = wasmtime.Module(engine, prepared)
    if not plan.trusted:
        try:
            make_linker(engine).instantiate_pre(module)
        except wasmtime.WasmtimeError as error:
            raise Malformed(describe_error(error), _IMPORTED) from None
    return module.serialize()

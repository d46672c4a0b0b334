"""Checks, changes and compiles modules. Additions go to the end of their sections, so no index in a module changes.

``prepare`` makes two changes to every module, so that the embedder can report exactly how it ended:

* A refused ``memory.grow`` only returns -1, so a program that reached its memory limit looks like any other failure.
  Each ``memory.grow`` becomes a call of an added function, which counts refusals in an added global and traps after
  too many.
* A start function runs while the module is instantiated, before the embedder can set that counter. It becomes an export
  that the embedder calls.

``with_console`` adds a function to QuickJS. ``bake``, ``exposed`` and ``with_stack`` make images: modules of the
catalogue that begin with the memory of a guest that has started. The engine validates every result.

``compile_module`` runs in a jailed child under limits on time and memory. The host runs only modules that it has
accepted, so it finds everything that would keep a module from running: broken or oversized modules, unknown imports, a
missing entry point.
"""

from __future__ import annotations

import functools
import os

import wasmtime

from . import binary
from .binary import (
    CALL,
    MEMORY_GROW,
    PAGE_BYTES,
    TARGET,
    TRUSTED,
    Caps,
    Import,
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
from .engine import GuestEnding, describe_error, make_engine, make_linker
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
    growing = _growing_bodies(data, facts)
    if not growing and facts.start is None:
        return data
    exports: list[tuple[str, int, int]] = []
    added: dict[int, bytes] = {}
    if growing:
        counter = facts.imported_globals + facts.globals
        added[binary.TYPE] = bytes([0x60, 1, _I32, 1, _I32])
        added[binary.FUNCTION] = unsigned(facts.types)
        added[binary.GLOBAL] = bytes([_I32, _MUTABLE, 0x41, 0, 0x0B])
        added[binary.CODE] = _counting_grow(counter)
        exports.append((REFUSED, 3, counter))
    if facts.start is not None:
        exports.append((START, 0, facts.start))
    added[binary.EXPORT] = b"".join(
        unsigned(len(name)) + name.encode() + bytes([kind]) + unsigned(index) for name, kind, index in exports
    )
    return binary.assemble(_parts(data, facts, added, len(exports), growing))


def _parts(
    data: bytes, facts: ModuleFacts, added: dict[int, bytes], exports: int, growing: dict[int, list[int]]
) -> list[tuple[int, bytes]]:
    present = {section.id for section in facts.sections}
    sections = [section for section in facts.sections if section.id != binary.START]
    for number in added:
        if number not in present:
            # Insert an empty section at its place in the order; the addition below fills it.
            rank = binary.ORDER.index(number)
            behind = [i for i, s in enumerate(sections) if s.id in binary.ORDER[rank + 1 :]]
            sections.insert(behind[0] if behind else len(sections), Section(number, 0, 0))
    parts: list[tuple[int, bytes]] = []
    for section in sections:
        content = data[section.start : section.end]
        if section.id == binary.CODE and growing:
            content = _code(data, facts, growing, added[binary.CODE])
        elif section.id in added:
            content = _appended(content, added[section.id], exports if section.id == binary.EXPORT else 1)
        parts.append((section.id, content))
    return parts


def _appended(content: bytes, addition: bytes, items: int = 1) -> bytes:
    reader = Reader(content)
    number = reader.unsigned() if content else 0
    return unsigned(number + items) + content[reader.position :] + addition


def _growing_bodies(data: bytes, facts: ModuleFacts) -> dict[int, list[int]]:
    """Return which functions grow the memory, and where; walks only bodies that contain the instruction's bytes."""
    growing: dict[int, list[int]] = {}
    for index, (start, end) in enumerate(facts.bodies):
        if data.find(b"\x40\x00", start, end) < 0 and data.find(b"\x40\x80", start, end) < 0:
            continue
        code = skip_locals(data, start, end, 1 << 32)
        places = [offset for offset, opcode in walk(data, code, end) if opcode == MEMORY_GROW]
        if places:
            growing[index] = places
    return growing


def _code(data: bytes, facts: ModuleFacts, growing: dict[int, list[int]], counting_grow: bytes) -> bytes:
    call = bytes([CALL]) + unsigned(facts.imported_functions + facts.functions)
    bodies = [unsigned(facts.functions + 1)]
    for index, (start, end) in enumerate(facts.bodies):
        pieces, rest = [], start
        for offset in growing.get(index, ()):
            reader = Reader(data, offset + 1, end)
            reader.unsigned()
            pieces += [data[rest:offset], call]
            rest = reader.position
        body = b"".join([*pieces, data[rest:end]])
        bodies += [unsigned(len(body)), body]
    return b"".join([*bodies, counting_grow])


def _counting_grow(counter: int) -> bytes:
    index = unsigned(counter)
    body = b"".join([
        b"\x01\x01\x7f",  # one local i32: the answer
        b"\x20\x00\x40\x00\x22\x01\x41\x7f\x46",  # (i32.eq (local.tee 1 (memory.grow (local.get 0))) (i32.const -1))
        b"\x04\x40",  # if: refused
        b"\x23", index, b"\x41\x01\x6a\x24", index,  # counter += 1
        b"\x23", index, b"\x41", signed(MOST_REFUSALS), b"\x4a\x04\x40\x00\x0b",  # if counter > most: unreachable
        b"\x0b\x20\x01\x0b",
    ])  # fmt: skip
    return unsigned(len(body)) + body


#: What ``exposed`` exports of a module, so that its booted memory can be entered.
TABLE, STACK = "__sandbox_table", "__sandbox_stack"


def exposed(module: bytes, facts: ModuleFacts) -> bytes:
    """Return the module with its first table and its only global exported; raises ``Malformed`` if it has others."""
    if facts.globals != 1 or facts.imported_globals or facts.start is not None:
        raise Malformed(
            f"a module with {facts.globals} globals and {facts.imported_globals} imported ones is not booted"
        )
    added = {**facts.exports, TABLE: ("table", 0), STACK: ("global", 0)}
    return _changed(module, {binary.EXPORT: _exports(added)})


def with_stack(image: bytes, stack: int) -> bytes:
    """Return the image with this first value of its only global, the stack pointer."""
    return _changed(image, {binary.GLOBAL: unsigned(1) + bytes([_I32, _MUTABLE]) + _constant(stack) + b"\x0b"})


def _changed(module: bytes, contents: dict[int, bytes]) -> bytes:
    parts = [(section.id, contents.get(section.id, module[section.start : section.end]))
             for section in binary.sections(module) if section.id != binary.CUSTOM]  # fmt: skip
    return binary.assemble(parts)


def _exports(exports: dict[str, tuple[str, int]]) -> bytes:
    items = (
        unsigned(len(name.encode())) + name.encode() + bytes([binary.KINDS.index(kind)]) + unsigned(index)
        for name, (kind, index) in exports.items()
    )
    return unsigned(len(exports)) + b"".join(items)


_OS_PAGE = 4096


def bake(module: bytes, memory: bytes) -> bytes:
    """Return the module with this initial content of its memory."""
    if len(memory) % PAGE_BYTES:
        raise Malformed("an image must be whole pages of memory")
    first, last = _used(memory)
    segment = b"\0" + _constant(first) + b"\x0b"
    data = unsigned(1) + segment + unsigned(last - first) + memory[first:last]
    parts: list[tuple[int, bytes]] = []
    for section in binary.sections(module):
        content = module[section.start : section.end]
        if section.id == binary.MEMORY:
            content = _sized(content, len(memory) // PAGE_BYTES)
        elif section.id == binary.DATA:
            content = data
        elif section.id == binary.DATA_COUNT:
            content = unsigned(1)
        elif section.id == binary.START:
            continue
        parts.append((section.id, content))
    return binary.assemble(parts)


def _used(memory: bytes) -> tuple[int, int]:
    first = len(memory) - len(memory.lstrip(b"\0"))
    last = len(memory.rstrip(b"\0"))
    start = first // _OS_PAGE * _OS_PAGE
    return start, max(start, -(-last // _OS_PAGE) * _OS_PAGE)


def _sized(content: bytes, pages: int) -> bytes:
    reader = Reader(content)
    if reader.unsigned() != 1:
        raise Malformed("only a module with one memory can be made into an image")
    flags = reader.byte()
    least = reader.unsigned()
    return unsigned(1) + bytes([flags]) + unsigned(max(least, pages)) + content[reader.position :]


def _constant(value: int) -> bytes:
    """Return ``i32.const`` of an unsigned number."""
    return b"\x41" + signed(value - (1 << 32) if value >= 1 << 31 else value)


STDOUT, STDERR = "1", "2"

#: The imports are in the order of their counterparts in ``_CALLS``; the added function comes after them.
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
    parts: list[tuple[int, bytes]] = []
    for section in facts.sections:
        content = module[section.start : section.end]
        if section.id == binary.FUNCTION:
            content = _appended(content, unsigned(_type_of(module, facts, targets[0])))
        elif section.id == binary.CODE:
            bodies = [_redirected(module, *body, {targets[0]: added}) for body in facts.bodies]
            bodies.append(_own_body(tuple(targets)))
            content = unsigned(len(bodies)) + b"".join(unsigned(len(body)) + body for body in bodies)
        parts.append((section.id, content))
    return binary.assemble(parts)


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
    data = bytes(wasmtime.wat2wasm(_CONSOLE))
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


ENTRY = "_start"
_NO_ENTRY = f"export the function to run as {ENTRY}, or {TARGET} and not as a library"
_UNKNOWN_IMPORT = f"only wasi_snapshot_preview1 and the module sandbox (fetch) are given; {TARGET}"
_OTHER_IMPORT = f"the import is declared in another way than WASI has it; {TARGET}"


def compile_module(plan: CompilePlan) -> GuestEnding:
    """Compile ``plan.source`` into ``plan.out``. For a bad module, returns an ``invalid`` ending that says why."""
    with open(plan.source, "rb") as file:
        data = file.read()
    try:
        if plan.text:
            data = bytes(wasmtime.wat2wasm(data.decode()))
        if plan.plain:
            return _written(plan, wasmtime.Module(make_engine(plan.switches, parallel=True), data).serialize(), 0)
        facts = inspect(data, TRUSTED if plan.trusted else Caps())
        _check_entry(facts, plan)
        too_large = _too_large(facts, plan.memory_bytes)
        if too_large is not None:
            return too_large
        engine = make_engine(plan.switches, parallel=plan.trusted)
        prepared = prepare(data, facts)
        if prepared != data and not plan.trusted:
            # Validate before ``prepare``: a module must not become valid by what that adds, or it could use our
            # counter.
            wasmtime.Module.validate(engine, data)
        module = wasmtime.Module(engine, prepared)
        if not plan.trusted:
            _check_imports(engine, module, facts)
        compiled = module.serialize()
    except Malformed as error:
        return GuestEnding(end="invalid", message=str(error))
    except wasmtime.WasmtimeError as error:
        return GuestEnding(end="invalid", message=describe_error(error))
    return _written(plan, compiled, (facts.memory_pages or 0) * PAGE_BYTES)


def _written(plan: CompilePlan, compiled: bytearray, memory_bytes: int) -> GuestEnding:
    descriptor = os.open(plan.out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(compiled)
    return GuestEnding(end="compiled", memory_bytes=memory_bytes)


def _check_entry(facts: ModuleFacts, plan: CompilePlan) -> None:
    if plan.trusted:
        return
    if facts.exports.get(ENTRY, ("", 0))[0] != "func":
        names = ", ".join(sorted(repr(name) for name, (kind, _) in facts.exports.items() if kind == "func")[:5])
        found = f"; it exports {names}" if names else ""
        raise Malformed(f"the module exports no {ENTRY} function, so there is nothing to run{found}", _NO_ENTRY)


def _check_imports(engine: wasmtime.Engine, module: wasmtime.Module, facts: ModuleFacts) -> None:
    """Raise ``Malformed`` with the engine's words unless everything that the module imports is offered."""
    linker = make_linker(engine)
    try:
        linker.instantiate_pre(module)
    except wasmtime.WasmtimeError as error:
        offered = all(_offers(linker, wasmtime.Store(engine), item) for item in facts.imports)
        raise Malformed(describe_error(error), _OTHER_IMPORT if offered else _UNKNOWN_IMPORT) from None


def _offers(linker: wasmtime.Linker, store: wasmtime.Store, item: Import) -> bool:
    try:
        linker.get(store, item.module, item.name)
    except wasmtime.WasmtimeError:
        return False
    return True


def _too_large(facts: ModuleFacts, memory_bytes: int | None) -> GuestEnding | None:
    asked = (facts.memory_pages or 0) * PAGE_BYTES
    if memory_bytes is None or asked <= memory_bytes:
        return None
    message = f"the module starts with {asked} bytes of memory; the limit is {memory_bytes}"
    return GuestEnding(end="memory", message=message, memory_bytes=0, refused=1)

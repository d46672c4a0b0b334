"""Measures a module before the compiler gets it.

For a 1.8 MB module of 300 000 functions Cranelift needs 1.7 GB and cannot be interrupted, so a module is first checked
against ``Caps``. The parser checks sections and counts, not types: the engine validates the rest. Runs inside the
jailed compile step; pure functions, so that it can be tested with any bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from . import format as binary
from .format import Defect, Malformed, Reader, Section
from .opcodes import END, OPENERS, walk

PAGE_BYTES = 65536


@dataclass(frozen=True, kw_only=True)
class Caps:
    """The bounds of a module that is compiled; the defaults are large enough for cells."""

    module_bytes: int = 64 << 20
    types: int = 20_000
    imports: int = 1_000
    functions: int = 60_000
    tables: int = 8
    table_elements: int = 200_000
    memories: int = 1
    globals: int = 20_000
    exports: int = 20_000
    segments: int = 100_000
    body_bytes: int = 512 << 10
    locals: int = 10_000
    nesting: int = 5_000


@dataclass(frozen=True)
class Import:
    """One import of the module; ``kind`` is func, table, memory, global or tag."""

    module: str
    name: str
    kind: str


@dataclass(frozen=True, kw_only=True)
class ModuleFacts:
    """What ``inspect`` found; ``bodies`` holds the (start, end) of each function's code, locals included."""

    types: int
    imports: tuple[Import, ...]
    functions: int
    globals: int
    exports: dict[str, tuple[str, int]]
    memory_pages: int | None
    memory_most_pages: int | None
    start: int | None
    bodies: tuple[tuple[int, int], ...]
    sections: tuple[Section, ...]

    @property
    def imported_functions(self) -> int:
        """The number of imported functions; defined functions are numbered after them."""
        return sum(1 for item in self.imports if item.kind == "func")

    @property
    def imported_globals(self) -> int:
        """The number of imported globals; defined globals are numbered after them."""
        return sum(1 for item in self.imports if item.kind == "global")


_KINDS = ("func", "table", "memory", "global", "tag")


def inspect(data: bytes, caps: Caps) -> ModuleFacts:
    """Measure a module; raises ``Malformed`` when it is broken or larger than the caps."""
    if len(data) > caps.module_bytes:
        raise Malformed(f"module of {len(data)} bytes; at most {caps.module_bytes} are compiled", Defect.TOO_LARGE)
    found = binary.sections(data)
    place = {section.id: section for section in found if section.id != binary.CUSTOM}

    def count(section_id: int, what: str, most: int) -> tuple[int, Reader | None]:
        section = place.get(section_id)
        if section is None:
            return 0, None
        reader = Reader(data, section.start, section.end)
        number = reader.unsigned()
        if number > most:
            raise Malformed(f"{number} {what}; at most {most} are compiled", Defect.TOO_LARGE)
        return number, reader

    types, _ = count(binary.TYPE, "types", caps.types)
    imports = _imports(*count(binary.IMPORT, "imports", caps.imports))
    functions, _ = count(binary.FUNCTION, "functions", caps.functions)
    table_count, tables = count(binary.TABLE, "tables", caps.tables)
    _check_tables(table_count, tables, caps)
    memories, memory = count(binary.MEMORY, "memories", caps.memories)
    least, most = _memory(memory) if memories and memory is not None else (None, None)
    global_count, _ = count(binary.GLOBAL, "globals", caps.globals)
    exports = _exports(*count(binary.EXPORT, "exports", caps.exports))
    count(binary.ELEMENT, "element segments", caps.segments)
    count(binary.DATA, "data segments", caps.segments)
    bodies = _bodies(data, *count(binary.CODE, "function bodies", caps.functions), caps=caps)
    if len(bodies) != functions:
        raise Malformed(f"{functions} functions are declared and {len(bodies)} have a body")
    start = place.get(binary.START)
    return ModuleFacts(
        types=types,
        imports=imports,
        functions=functions,
        globals=global_count,
        exports=exports,
        memory_pages=least,
        memory_most_pages=most,
        start=Reader(data, start.start, start.end).unsigned() if start else None,
        bodies=bodies,
        sections=tuple(found),
    )


def _limits(reader: Reader) -> tuple[int, int | None]:
    flags = reader.byte()
    if flags > 1:
        raise Malformed("shared or 64-bit memories and tables are switched off", Defect.SWITCHED_OFF)
    least = reader.unsigned()
    return least, reader.unsigned() if flags else None


def _imports(number: int, reader: Reader | None) -> tuple[Import, ...]:
    if reader is None:
        return ()
    found: list[Import] = []
    for _ in range(number):
        module, name, kind = reader.name(), reader.name(), reader.byte()
        if kind >= len(_KINDS):
            raise Malformed(f"import {module}.{name} is of the unknown kind {kind}")
        match _KINDS[kind]:
            case "func":
                reader.unsigned()
            case "table":
                reader.skip_signed(33)
                _limits(reader)
            case "memory":
                _limits(reader)
            case "global":
                reader.skip_signed(33)
                reader.byte()
            case _:
                reader.byte()
                reader.unsigned()
        found.append(Import(module, name, _KINDS[kind]))
    return tuple(found)


def _check_tables(number: int, reader: Reader | None, caps: Caps) -> None:
    if reader is None:
        return
    for _ in range(number):
        if reader.data[reader.position : reader.position + 1] == b"\x40":
            raise Malformed(
                "a table with an initial value belongs to a proposal that is switched off", Defect.SWITCHED_OFF
            )
        reader.skip_signed(33)
        least, _most = _limits(reader)
        if least > caps.table_elements:
            raise Malformed(f"a table of {least} elements; at most {caps.table_elements} are allowed", Defect.TOO_LARGE)


def _memory(reader: Reader) -> tuple[int, int | None]:
    least, most = _limits(reader)
    if least > PAGE_BYTES or (most is not None and most > PAGE_BYTES):
        raise Malformed(
            f"a memory of {max(least, most or 0)} pages; the format allows {PAGE_BYTES}", Defect.MEMORY_RANGE
        )
    return least, most


def _exports(number: int, reader: Reader | None) -> dict[str, tuple[str, int]]:
    found: dict[str, tuple[str, int]] = {}
    if reader is None:
        return found
    for _ in range(number):
        name, kind, index = reader.name(), reader.byte(), reader.unsigned()
        if kind >= len(_KINDS):
            raise Malformed(f"export {name!r} is of the unknown kind {kind}")
        if name in found:
            raise Malformed(f"export {name!r} is given twice")
        found[name] = (_KINDS[kind], index)
    return found


def _bodies(data: bytes, number: int, reader: Reader | None, *, caps: Caps) -> tuple[tuple[int, int], ...]:
    if reader is None:
        return ()
    found: list[tuple[int, int]] = []
    for index in range(number):
        size = reader.unsigned()
        if size > caps.body_bytes:
            raise Malformed(
                f"function {index} has {size} bytes of code; at most {caps.body_bytes} are compiled", Defect.TOO_LARGE
            )
        start = reader.skip(size)
        end = start + size
        code = skip_locals(data, start, end, caps.locals)
        # Counting bytes is fast and safe: a body with few bytes that could open a block cannot be nested deeply.
        if sum(data.count(bytes([opener]), code, end) for opener in OPENERS) > caps.nesting:
            _check_nesting(data, code, end, index, caps.nesting)
        found.append((start, end))
    return tuple(found)


def skip_locals(data: bytes, start: int, end: int, most: int) -> int:
    """Return where the instructions of a body begin; raises ``Malformed`` if it has too many local variables."""
    reader = Reader(data, start, end)
    total = 0
    for _ in range(reader.unsigned()):
        total += reader.unsigned()
        if total > most:
            raise Malformed(f"a function with {total} local variables; at most {most} are compiled", Defect.TOO_LARGE)
        reader.skip_signed(33)
    return reader.position


def _check_nesting(data: bytes, start: int, end: int, index: int, most: int) -> None:
    depth = 0
    for _offset, opcode in walk(data, start, end):
        if opcode in OPENERS:
            depth += 1
            if depth > most:
                raise Malformed(f"function {index} nests more than {most} blocks", Defect.NESTED)
        elif opcode == END:
            depth -= 1

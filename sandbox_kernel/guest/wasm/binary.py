"""Reads the WebAssembly binary format, and measures a module before the compiler gets it.

The bytes are hostile: every read is checked against the end and every number against its size in the format. Every
error raises ``Malformed``, which names the place. For a 1.8 MB module of 300 000 functions Cranelift needs 1.7 GB and
cannot be interrupted, so a module is first checked against ``Caps``. The engine validates the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

MAGIC = b"\0asm"
MODULE_VERSION = b"\x01\0\0\0"
#: The layer field of a component, at the place of a module's version.
COMPONENT_LAYER = b"\x01\0"

CUSTOM, TYPE, IMPORT, FUNCTION, TABLE, MEMORY, GLOBAL, EXPORT, START, ELEMENT, CODE, DATA, DATA_COUNT, TAG = range(14)
#: The order of the sections in a module; custom sections may be anywhere.
ORDER = (TYPE, IMPORT, FUNCTION, TABLE, MEMORY, TAG, GLOBAL, EXPORT, START, ELEMENT, DATA_COUNT, CODE, DATA)

#: The most sections. Compilers write a few dozen custom ones; a million empty ones are small but slow to read.
MOST_SECTIONS = 10_000


#: What to do next about a module that is refused.
TARGET = "build it as a command for wasm32-wasip1"
CUT = "the file is cut or damaged: build or download it again"
TOO_LARGE = "make it smaller: leave out what is not used (wasm-opt -Oz, --gc-sections), or split it"
NESTED = "make it flatter: no compiler makes such a function of a program"
SWITCHED_OFF = f"{TARGET}, without threads, 64-bit memory and proposals beyond WebAssembly 2.0"


class Malformed(ValueError):
    """Raised when bytes are not a module that we run; the message says what is wrong, where, and what to do next."""

    def __init__(self, message: str, step: str = "") -> None:
        super().__init__(f"{message}; {step}" if step else message)


@dataclass(frozen=True)
class Section:
    """One section: its number, and where its content is in the module."""

    id: int
    start: int
    end: int


class Reader:
    """A cursor over ``data[position:end]``; raises ``Malformed`` instead of reading beyond the end."""

    __slots__ = ("data", "end", "position")

    def __init__(self, data: bytes, position: int = 0, end: int | None = None) -> None:
        self.data = data
        self.position = position
        self.end = len(data) if end is None else end

    def byte(self) -> int:
        """Return the next byte."""
        if self.position >= self.end:
            raise Malformed(f"unexpected end at byte {self.position}", CUT)
        value = self.data[self.position]
        self.position += 1
        return value

    def skip(self, count: int) -> int:
        """Skip ``count`` bytes; returns where they began."""
        start = self.position
        if count > self.end - start:
            raise Malformed(f"{count} bytes announced at byte {start}, only {self.end - start} left", CUT)
        self.position = start + count
        return start

    def unsigned(self, bits: int = 32) -> int:
        """Return an unsigned LEB128 number of at most ``bits`` bits."""
        start, value = self.position, 0
        for shift in range(0, bits, 7):
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80 and not value >> bits:
                return value
            if byte < 0x80:
                break
        raise Malformed(f"number at byte {start} is longer than {bits} bits")

    def skip_signed(self, bits: int) -> None:
        """Skip a signed LEB128 number."""
        start = self.position
        if all(self.byte() >= 0x80 for _ in range(0, bits, 7)):
            raise Malformed(f"number at byte {start} is longer than {bits} bits")

    def name(self, longest: int = 100_000) -> str:
        """Return a length-prefixed UTF-8 string."""
        start = self.position
        size = self.unsigned()
        if size > longest:
            raise Malformed(f"name of {size} bytes at byte {start}; at most {longest} are accepted", TOO_LARGE)
        text = self.data[self.skip(size) : self.position]
        try:
            return text.decode()
        except UnicodeDecodeError:
            raise Malformed(f"name at byte {start} is not UTF-8") from None


def sections(data: bytes) -> list[Section]:
    """Return the sections of a module in file order; raises ``Malformed``, which says what else the bytes may be."""
    if data[:4] != MAGIC:
        raise Malformed("not a WebAssembly module: it does not begin with \\0asm")
    if data[4:8] != MODULE_VERSION:
        if data[6:8] == COMPONENT_LAYER:
            raise Malformed("a WebAssembly component, not a core module; build it for wasm32-wasip1 (preview 1)")
        raise Malformed(f"WebAssembly version {data[4:8].hex(' ') or 'missing'}; only version 1 modules are run")
    found: list[Section] = []
    reader = Reader(data, 8)
    rank = -1
    while reader.position < len(data):
        number = reader.byte()
        size = reader.unsigned()
        start = reader.skip(size)
        if number != CUSTOM:
            if number not in ORDER:
                raise Malformed(f"unknown section {number} at byte {start}")
            if ORDER.index(number) <= rank:
                raise Malformed(f"section {number} at byte {start} is repeated or out of order")
            rank = ORDER.index(number)
        found.append(Section(number, start, start + size))
        if len(found) > MOST_SECTIONS:
            raise Malformed(f"more than {MOST_SECTIONS} sections")
    return found


def unsigned(value: int) -> bytes:
    """Return a number as unsigned LEB128."""
    return signed(value, 0)


def signed(value: int, sign: int = 0x40) -> bytes:
    """Return a number as signed LEB128; ``sign`` is the bit of the last byte that makes it negative."""
    out = bytearray()
    while True:
        low, value = value & 0x7F, value >> 7
        done = value == (-1 if low & sign else 0)
        out.append(low | (0 if done else 0x80))
        if done:
            return bytes(out)


def assemble(parts: Iterable[tuple[int, bytes]]) -> bytes:
    """Return a module made of these sections, in this order."""
    out = bytearray(MAGIC + MODULE_VERSION)
    for number, content in parts:
        out += bytes([number]) + unsigned(len(content)) + content
    return bytes(out)


BLOCK, LOOP, IF, TRY_TABLE, END, CALL, MEMORY_GROW = 0x02, 0x03, 0x04, 0x1F, 0x0B, 0x10, 0x40
OPENERS = (BLOCK, LOOP, IF, TRY_TABLE)

#: How many LEB128 numbers follow an instruction, for those that are followed only by such numbers.
_NUMBERS: dict[int, int] = {
    **dict.fromkeys((0x00, 0x01, 0x05, 0x0A, 0x0B, 0x0F, 0x1A, 0x1B, 0xD1, *range(0x45, 0xC5)), 0),
    **dict.fromkeys((0x08, 0x0C, 0x0D, 0x10, 0x12, *range(0x20, 0x27), 0x3F, 0x40, 0xD2), 1),
    **dict.fromkeys((0x11, 0x13), 2),
}
#: The bits of the signed number that follows an instruction, and the bytes of the float.
_SIGNED, _FLOATS = {BLOCK: 33, LOOP: 33, IF: 33, 0xD0: 33, 0x41: 32, 0x42: 64}, {0x43: 4, 0x44: 8}
_NUMBERS_FC = {**dict.fromkeys(range(8), 0), 8: 2, 9: 1, 10: 2, 11: 1, 12: 2, 13: 1, 14: 2, 15: 1, 16: 1, 17: 1}


def walk(data: bytes, start: int, end: int, most_depth: int = 1 << 32) -> Iterator[tuple[int, int]]:
    """Yield (offset, opcode) of each instruction of ``data[start:end]``, an expression that ends with its last end."""
    reader = Reader(data, start, end)
    depth = 1
    while reader.position < end:
        offset = reader.position
        opcode = data[offset]
        reader.position = offset + 1
        if opcode in OPENERS:
            depth += 1
            if depth > most_depth + 1:
                raise Malformed(f"a function nests more than {most_depth} blocks at byte {offset}", NESTED)
        elif opcode == END:
            depth -= 1
            if depth == 0 and reader.position != end:
                raise Malformed(f"instructions after the end of a function at byte {reader.position}")
        yield offset, opcode
        _skip_operands(reader, opcode, offset)
    if depth:
        raise Malformed(f"{depth} blocks are still open at the end of a function at byte {end}")


def _skip_operands(reader: Reader, opcode: int, offset: int) -> None:
    numbers = _NUMBERS.get(opcode)
    if numbers is not None:
        for _ in range(numbers):
            reader.unsigned()
    elif 0x28 <= opcode <= 0x3E:
        _skip_memory_argument(reader)
    elif opcode in _SIGNED:
        reader.skip_signed(_SIGNED[opcode])
    elif opcode in _FLOATS:
        reader.skip(_FLOATS[opcode])
    elif opcode == 0x0E:
        for _ in range(reader.unsigned() + 1):
            reader.unsigned()
    elif opcode == 0x1C:
        for _ in range(reader.unsigned()):
            reader.skip_signed(33)
    elif opcode == TRY_TABLE:
        _skip_try_table(reader)
    elif opcode == 0xFC:
        _skip_extended(reader, offset)
    elif opcode == 0xFD:
        _skip_vector(reader, offset)
    else:
        raise Malformed(f"instruction 0x{opcode:02x} at byte {offset} is of a proposal that is off", SWITCHED_OFF)


def _skip_memory_argument(reader: Reader) -> None:
    if reader.unsigned() & 0x40:
        reader.unsigned()
    reader.unsigned(64)


def _skip_try_table(reader: Reader) -> None:
    reader.skip_signed(33)
    for _ in range(reader.unsigned()):
        kind = reader.byte()
        if kind in (0, 1):
            reader.unsigned()
        reader.unsigned()


def _skip_extended(reader: Reader, offset: int) -> None:
    numbers = _NUMBERS_FC.get(reader.unsigned())
    if numbers is None:
        raise Malformed(f"unknown instruction 0xfc at byte {offset}")
    for _ in range(numbers):
        reader.unsigned()


def _skip_vector(reader: Reader, offset: int) -> None:
    number = reader.unsigned()
    if number <= 11 or number in (92, 93):
        _skip_memory_argument(reader)
    elif number in (12, 13):
        reader.skip(16)
    elif 21 <= number <= 34:
        reader.skip(1)
    elif 84 <= number <= 91:
        _skip_memory_argument(reader)
        reader.skip(1)
    elif number > 255:
        raise Malformed(f"vector instruction {number} at byte {offset} is of a proposal that is off", SWITCHED_OFF)


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


#: Bounds for interpreters of the catalogue, which are larger than a module of a cell may be.
TRUSTED = Caps(
    module_bytes=1 << 30,
    functions=400_000,
    table_elements=1_000_000,
    body_bytes=16 << 20,
    locals=50_000,
    nesting=50_000,
    exports=100_000,
)


@dataclass(frozen=True)
class Import:
    """One import of the module; ``kind`` is func, table, memory, global or tag, ``type`` the number of a func's."""

    module: str
    name: str
    kind: str
    type: int


@dataclass(frozen=True, kw_only=True)
class ModuleFacts:
    """What ``inspect`` found; ``bodies`` holds the (start, end) of each function's code, locals included."""

    types: int
    imports: tuple[Import, ...]
    functions: int
    globals: int
    exports: dict[str, tuple[str, int]]
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


#: The kinds of imports and exports, by their number in the format.
KINDS = ("func", "table", "memory", "global", "tag")


def inspect(data: bytes, caps: Caps) -> ModuleFacts:
    """Measure a module; raises ``Malformed`` when it is broken or larger than the caps."""
    if len(data) > caps.module_bytes:
        raise Malformed(f"module of {len(data)} bytes; at most {caps.module_bytes} are compiled", TOO_LARGE)
    found = sections(data)
    place = {section.id: section for section in found if section.id != CUSTOM}

    def count(section_id: int, what: str, most: int) -> tuple[int, Reader]:
        section = place.get(section_id, Section(section_id, 0, 0))
        reader = Reader(data, section.start, section.end)
        number = reader.unsigned() if section.end else 0
        if number > most:
            raise Malformed(f"{number} {what}; at most {most} are compiled", TOO_LARGE)
        return number, reader

    types, _ = count(TYPE, "types", caps.types)
    imports = _imports(*count(IMPORT, "imports", caps.imports))
    functions, _ = count(FUNCTION, "functions", caps.functions)
    _check_tables(*count(TABLE, "tables", caps.tables), caps)
    memories, memory = count(MEMORY, "memories", caps.memories)
    if memories:
        _check_memory(memory)
    global_count, _ = count(GLOBAL, "globals", caps.globals)
    exports = _exports(*count(EXPORT, "exports", caps.exports))
    count(ELEMENT, "element segments", caps.segments)
    count(DATA, "data segments", caps.segments)
    bodies = _bodies(data, *count(CODE, "function bodies", caps.functions), caps=caps)
    if len(bodies) != functions:
        raise Malformed(f"{functions} functions are declared and {len(bodies)} have a body")
    start = place.get(START)
    return ModuleFacts(
        types=types,
        imports=imports,
        functions=functions,
        globals=global_count,
        exports=exports,
        start=Reader(data, start.start, start.end).unsigned() if start else None,
        bodies=bodies,
        sections=tuple(found),
    )


def _limits(reader: Reader) -> tuple[int, int | None]:
    flags = reader.byte()
    if flags > 1:
        raise Malformed("shared or 64-bit memories and tables are switched off", SWITCHED_OFF)
    least = reader.unsigned()
    return least, reader.unsigned() if flags else None


def _imports(count: int, reader: Reader) -> tuple[Import, ...]:
    found: list[Import] = []
    for _ in range(count):
        module, name, kind = reader.name(), reader.name(), reader.byte()
        if kind >= len(KINDS):
            raise Malformed(f"import {module}.{name} is of the unknown kind {kind}")
        number = -1
        match KINDS[kind]:
            case "func":
                number = reader.unsigned()
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
        found.append(Import(module, name, KINDS[kind], number))
    return tuple(found)


def _check_tables(number: int, reader: Reader, caps: Caps) -> None:
    for _ in range(number):
        if reader.data[reader.position : reader.position + 1] == b"\x40":
            raise Malformed("a table with an initial value belongs to a proposal that is switched off", SWITCHED_OFF)
        reader.skip_signed(33)
        least, _most = _limits(reader)
        if least > caps.table_elements:
            raise Malformed(f"a table of {least} elements; at most {caps.table_elements} are allowed", TOO_LARGE)


def _check_memory(reader: Reader) -> None:
    least, most = _limits(reader)
    if least > PAGE_BYTES or (most is not None and most > PAGE_BYTES):
        raise Malformed(
            f"a memory of {max(least, most or 0)} pages; the format allows {PAGE_BYTES}", "declare a smaller memory"
        )


def _exports(number: int, reader: Reader) -> dict[str, tuple[str, int]]:
    found: dict[str, tuple[str, int]] = {}
    for _ in range(number):
        name, kind, index = reader.name(), reader.byte(), reader.unsigned()
        if kind >= len(KINDS):
            raise Malformed(f"export {name!r} is of the unknown kind {kind}")
        if name in found:
            raise Malformed(f"export {name!r} is given twice")
        found[name] = (KINDS[kind], index)
    return found


def _bodies(data: bytes, number: int, reader: Reader, *, caps: Caps) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    for index in range(number):
        size = reader.unsigned()
        if size > caps.body_bytes:
            raise Malformed(
                f"function {index} has {size} bytes of code; at most {caps.body_bytes} are compiled", TOO_LARGE
            )
        start = reader.skip(size)
        end = start + size
        code = skip_locals(data, start, end, caps.locals)
        # Counting bytes is fast and safe: a body with few bytes that could open a block cannot be nested deeply.
        if sum(data.count(bytes([opener]), code, end) for opener in OPENERS) > caps.nesting:
            for _ in walk(data, code, end, caps.nesting):
                pass
        found.append((start, end))
    return tuple(found)


def skip_locals(data: bytes, start: int, end: int, most: int) -> int:
    """Return where the instructions of a body begin; raises ``Malformed`` if it has too many local variables."""
    reader = Reader(data, start, end)
    total = 0
    for _ in range(reader.unsigned()):
        total += reader.unsigned()
        if total > most:
            raise Malformed(f"a function with {total} local variables; at most {most} are compiled", TOO_LARGE)
        reader.skip_signed(33)
    return reader.position

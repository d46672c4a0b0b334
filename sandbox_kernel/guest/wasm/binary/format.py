"""Reads and writes the sections of the WebAssembly binary format.

The bytes are hostile: every read is checked against the end and every number against its size in the format. Every
error raises ``Malformed``, which names the place. Used by ``inspect_module.py`` and ``rewrite.py``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

MAGIC = b"\0asm"
MODULE_VERSION = b"\x01\0\0\0"
#: The layer field of a component, at the place of a module's version.
COMPONENT_LAYER = b"\x01\0"

CUSTOM, TYPE, IMPORT, FUNCTION, TABLE, MEMORY, GLOBAL, EXPORT, START, ELEMENT, CODE, DATA, DATA_COUNT, TAG = range(14)
#: The order of the sections in a module; custom sections may be anywhere.
ORDER = (TYPE, IMPORT, FUNCTION, TABLE, MEMORY, TAG, GLOBAL, EXPORT, START, ELEMENT, DATA_COUNT, CODE, DATA)

#: The most sections. Compilers write a few dozen custom ones; a million empty ones are small but slow to read.
MOST_SECTIONS = 10_000


class Defect(StrEnum):
    """What kind of thing is wrong with a module; ``backends/wasm/advice.py`` has the next step for each."""

    OTHER = "other"
    CUT = "cut"
    TOO_LARGE = "too_large"
    NESTED = "nested"
    SWITCHED_OFF = "switched_off"
    MEMORY_RANGE = "memory_range"
    NO_ENTRY = "no_entry"
    UNKNOWN_IMPORT = "unknown_import"
    OTHER_IMPORT = "other_import"


class Malformed(ValueError):
    """Raised when bytes are not a module that we run; the message says what is wrong and where."""

    def __init__(self, message: str, defect: Defect = Defect.OTHER) -> None:
        super().__init__(message)
        self.defect = defect


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
            raise Malformed(f"unexpected end at byte {self.position}", Defect.CUT)
        value = self.data[self.position]
        self.position += 1
        return value

    def skip(self, count: int) -> int:
        """Skip ``count`` bytes; returns where they began."""
        start = self.position
        if count > self.end - start:
            raise Malformed(f"{count} bytes announced at byte {start}, only {self.end - start} left", Defect.CUT)
        self.position = start + count
        return start

    def take(self, count: int) -> bytes:
        """Return the next ``count`` bytes."""
        start = self.skip(count)
        return self.data[start : start + count]

    def unsigned(self, bits: int = 32) -> int:
        """Return an unsigned LEB128 number of at most ``bits`` bits."""
        start, value, shift = self.position, 0, 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
            if shift >= bits:
                raise Malformed(f"number at byte {start} is longer than {bits} bits")
        if value >> bits:
            raise Malformed(f"number at byte {start} is longer than {bits} bits")
        return value

    def skip_signed(self, bits: int) -> None:
        """Skip a signed LEB128 number."""
        start, shift = self.position, 0
        while self.byte() >= 0x80:
            shift += 7
            if shift >= bits:
                raise Malformed(f"number at byte {start} is longer than {bits} bits")

    def name(self, longest: int = 100_000) -> str:
        """Return a length-prefixed UTF-8 string."""
        start = self.position
        size = self.unsigned()
        if size > longest:
            raise Malformed(f"name of {size} bytes at byte {start}; at most {longest} are accepted", Defect.TOO_LARGE)
        try:
            return self.take(size).decode()
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
    out = bytearray()
    while True:
        low = value & 0x7F
        value >>= 7
        out.append(low | (0x80 if value else 0))
        if not value:
            return bytes(out)


def signed(value: int) -> bytes:
    """Return a number as signed LEB128."""
    out = bytearray()
    while True:
        low = value & 0x7F
        value >>= 7
        done = (value == 0 and not low & 0x40) or (value == -1 and low & 0x40)
        out.append(low | (0 if done else 0x80))
        if done:
            return bytes(out)


def assemble(parts: Iterable[tuple[int, bytes]]) -> bytes:
    """Return a module made of these sections, in this order."""
    out = bytearray(MAGIC + MODULE_VERSION)
    for number, content in parts:
        out += bytes([number]) + unsigned(len(content)) + content
    return bytes(out)

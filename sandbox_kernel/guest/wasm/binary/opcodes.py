"""The length of each WebAssembly instruction: enough to walk through a function body.

Covers only what our engine accepts (``engine.py``): instructions of threads, GC, legacy exceptions and stack switching
raise ``Malformed``. The engine validates everything again; this walk only has to find instruction boundaries.
"""

from __future__ import annotations

from collections.abc import Iterator

from .format import Defect, Malformed, Reader

BLOCK, LOOP, IF, TRY_TABLE, END, CALL, MEMORY_GROW = 0x02, 0x03, 0x04, 0x1F, 0x0B, 0x10, 0x40
OPENERS = (BLOCK, LOOP, IF, TRY_TABLE)

#: How many LEB128 numbers follow an instruction, for those that are followed only by such numbers.
_NUMBERS: dict[int, int] = {
    **dict.fromkeys((0x00, 0x01, 0x05, 0x0A, 0x0B, 0x0F, 0x1A, 0x1B, 0xD1, *range(0x45, 0xC5)), 0),
    **dict.fromkeys((0x08, 0x0C, 0x0D, 0x10, 0x12, *range(0x20, 0x27), 0x3F, 0x40, 0xD2), 1),
    **dict.fromkeys((0x11, 0x13), 2),
}
_NUMBERS_FC = {**dict.fromkeys(range(8), 0), 8: 2, 9: 1, 10: 2, 11: 1, 12: 2, 13: 1, 14: 2, 15: 1, 16: 1, 17: 1}


def walk(data: bytes, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield (offset, opcode) of each instruction of ``data[start:end]``, an expression that ends with its last end."""
    reader = Reader(data, start, end)
    depth = 1
    while reader.position < end:
        offset = reader.position
        opcode = data[offset]
        reader.position = offset + 1
        if opcode in OPENERS:
            depth += 1
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
    elif opcode in (BLOCK, LOOP, IF, 0xD0):
        reader.skip_signed(33)
    elif opcode == 0x41:
        reader.skip_signed(32)
    elif opcode == 0x42:
        reader.skip_signed(64)
    elif opcode == 0x43:
        reader.skip(4)
    elif opcode == 0x44:
        reader.skip(8)
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
        raise Malformed(
            f"instruction 0x{opcode:02x} at byte {offset} belongs to a proposal that is switched off",
            Defect.SWITCHED_OFF,
        )


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
        raise Malformed(
            f"relaxed vector instruction {number} at byte {offset} belongs to a proposal that is off",
            Defect.SWITCHED_OFF,
        )

"""Writes a guest's linear memory into its module, so that the next instance starts in the same state.

This works for guests that are entered by calls, and between two calls: then the stack is empty and the only mutable
global, the stack pointer, has its initial value. The memory becomes one data segment from the first to the last used
page, because the engine maps a single segment copy-on-write but copies several.
"""

from __future__ import annotations

from ..binary import format as binary
from ..binary.format import Malformed, Reader, signed, unsigned
from ..binary.inspect_module import PAGE_BYTES

_OS_PAGE = 4096


def bake(module: bytes, memory: bytes) -> bytes:
    """Return the module with this initial content of its memory."""
    if len(memory) % PAGE_BYTES:
        raise Malformed("an image must be whole pages of memory")
    first, last = _used(memory)
    segment = b"\0\x41" + signed(first - (1 << 32) if first >= 1 << 31 else first) + b"\x0b"
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

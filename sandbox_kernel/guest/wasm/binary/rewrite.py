"""Makes two small changes to a module before it is compiled, so that the embedder can report exactly how it ended.

* A refused ``memory.grow`` only returns -1, so a program that reached its memory limit looks like any other failure.
  Each ``memory.grow`` becomes a call of an added function, which counts refusals in an added global and traps after
  too many.
* A start function runs while the module is instantiated, before the embedder can set that counter. It becomes an export
  that the embedder calls.

Additions go to the end of their sections, so no index in the module changes. The engine validates the result.
"""

from __future__ import annotations

from . import format as binary
from .format import Reader, Section, signed, unsigned
from .inspect_module import ModuleFacts, skip_locals
from .opcodes import CALL, MEMORY_GROW, walk

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
            content = _append(content, added[section.id], exports if section.id == binary.EXPORT else 1)
        parts.append((section.id, content))
    return parts


def _append(content: bytes, addition: bytes, items: int) -> bytes:
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

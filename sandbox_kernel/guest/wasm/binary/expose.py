"""Changes a module so that its booted memory can be entered: exports its table and stack pointer, replaces ``_start``.

For trusted modules only. Custom sections go: they describe code that is not executed in an image.
"""

from __future__ import annotations

from . import format as binary
from .format import Malformed, Reader, signed, unsigned
from .inspect_module import ModuleFacts

TABLE, STACK = "__sandbox_table", "__sandbox_stack"
_I32, _MUTABLE = 0x7F, 0x01
_KINDS = ("func", "table", "memory", "global", "tag")


def exposed(module: bytes, facts: ModuleFacts) -> bytes:
    """Return the module with its first table and its only global exported; raises ``Malformed`` if it has others."""
    if facts.globals != 1 or facts.imported_globals or facts.start is not None:
        raise Malformed(
            f"a module with {facts.globals} globals and {facts.imported_globals} imported ones is not booted"
        )
    added = {**facts.exports, TABLE: ("table", 0), STACK: ("global", 0)}
    return _changed(module, {binary.EXPORT: _exports(added)})


def with_start(image: bytes, facts: ModuleFacts, code: bytes, stack: int) -> bytes:
    """Return the image with these instructions as its ``_start``, and this first value of its stack pointer."""
    exports = {**facts.exports, "_start": ("func", facts.imported_functions + facts.functions)}
    body = b"\0" + code + b"\x0b"
    sections = {section.id: image[section.start : section.end] for section in facts.sections}
    start = signed(stack - (1 << 32) if stack >= 1 << 31 else stack)
    return _changed(
        image,
        {
            binary.TYPE: _appended(sections[binary.TYPE], b"\x60\0\0"),
            binary.FUNCTION: _appended(sections[binary.FUNCTION], unsigned(facts.types)),
            binary.GLOBAL: unsigned(1) + bytes([_I32, _MUTABLE, 0x41]) + start + b"\x0b",
            binary.EXPORT: _exports(exports),
            binary.CODE: _appended(sections[binary.CODE], unsigned(len(body)) + body),
        },
    )


def _changed(module: bytes, contents: dict[int, bytes]) -> bytes:
    parts = [(section.id, contents.get(section.id, module[section.start : section.end]))
             for section in binary.sections(module) if section.id != binary.CUSTOM]  # fmt: skip
    return binary.assemble(parts)


def _exports(exports: dict[str, tuple[str, int]]) -> bytes:
    items = (
        unsigned(len(name.encode())) + name.encode() + bytes([_KINDS.index(kind)]) + unsigned(index)
        for name, (kind, index) in exports.items()
    )
    return unsigned(len(exports)) + b"".join(items)


def _appended(content: bytes, item: bytes) -> bytes:
    reader = Reader(content)
    return unsigned(reader.unsigned() + 1) + content[reader.position :] + item

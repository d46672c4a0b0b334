"""Parses the headers of a hostile tar: strictly, in one pass, in time linear in the size of the file.

Python's ``tarfile`` supports more formats than are needed here, at a cost: it recurses for each extension header,
copies all global headers for each member, and searches them in quadratic time in many releases. This parser keeps no
state from one member to the next, and raises ``ValueError`` for anything unclear.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

BLOCK = 512
#: Largest extension header (a long name, for example). It is read in one piece; real ones are much smaller.
MAX_EXTENSION_BYTES = 1 << 20

_FILE_TYPES = (b"0", b"\0", b"7")
_FOLDER_TYPE = b"5"
_PAX, _PAX_GLOBAL, _LONG_NAME, _LONG_LINK = (b"x", b"X"), b"g", b"L", b"K"
#: Keys that a global header must not have, because they would apply to every member.
_OF_ONE_MEMBER = (b"path", b"size", b"linkpath")
_SPARSE = b"GNU.sparse."


@dataclass(frozen=True, slots=True)
class TarHeader:
    """One member. ``kind`` is file, folder or other; ``offset`` is the start of its content in the tar."""

    name: str
    kind: str
    mode: int
    mtime: float
    size: int
    offset: int


def read_headers(fd: int) -> Iterator[TarHeader]:
    """Yield the members of an open tar in order. Raises ``ValueError`` when it is damaged."""
    position = 0
    records: dict[bytes, bytes] = {}
    while True:
        block = os.pread(fd, BLOCK, position)
        if not block or block == bytes(BLOCK):
            if records:
                raise ValueError("it ends between a header and the member that it describes")
            return
        if len(block) < BLOCK or not _is_sound(block):
            raise ValueError(f"there is no header at byte {position}")
        position += BLOCK
        kind, size = block[156:157], _number(block[124:136])
        if kind in _PAX or kind in (_PAX_GLOBAL, _LONG_NAME, _LONG_LINK):
            extension = _extension(fd, position, size)
            position += _whole_blocks(size)
            if kind in _PAX:
                records |= _records(extension)
            elif kind == _PAX_GLOBAL:
                _check_global(_records(extension))
            elif kind == _LONG_NAME:
                records[b"path"] = extension.partition(b"\0")[0]
            continue
        header = _header(block, records, position)
        records = {}
        yield header
        position += _whole_blocks(header.size)


def _header(block: bytes, records: dict[bytes, bytes], offset: int) -> TarHeader:
    name = records.get(b"path") or _name(block)
    kind = "other"
    if block[156:157] == _FOLDER_TYPE or (block[156:157] == b"\0" and name.endswith(b"/")):
        kind = "folder"
    elif block[156:157] in _FILE_TYPES and not any(key.startswith(_SPARSE) for key in records):
        kind = "file"
    size = _decimal(records[b"size"]) if b"size" in records else _number(block[124:136])
    return TarHeader(
        name=os.fsdecode(name),
        kind=kind,
        mode=_number(block[100:108]) & 0o7777,
        mtime=_time(records[b"mtime"]) if b"mtime" in records else _number(block[136:148], least=None),
        size=size if kind == "file" else 0,
        offset=offset,
    )


def _is_sound(block: bytes) -> bool:
    """Return whether the checksum of a header is right; old programs added signed bytes."""
    stored = _number(block[148:156])
    summed = block[:148] + b" " * 8 + block[156:]
    unsigned = sum(summed)
    return stored in (unsigned, unsigned - 256 * sum(byte > 127 for byte in summed))


def _name(block: bytes) -> bytes:
    name = block[:100].partition(b"\0")[0]
    prefix = block[345:500].partition(b"\0")[0] if block[257:263] == b"ustar\0" else b""
    return prefix + b"/" + name if prefix else name


def _number(field: bytes, least: int | None = 0) -> int:
    """Parse octal digits, or a binary number if the first byte marks one. ``least=None`` allows negative numbers."""
    if field[0] in (0x80, 0xFF):
        value = int.from_bytes(field[1:], "big") - (256 ** (len(field) - 1) if field[0] == 0xFF else 0)
    else:
        digits = field.partition(b"\0")[0].strip(b" ")
        if digits.strip(b"01234567"):
            raise ValueError("a number in a header is not octal")
        value = int(digits or b"0", 8)
    if least is not None and value < least:
        raise ValueError("a number in a header is negative")
    return value


def _decimal(text: bytes) -> int:
    if not text.isdigit() or len(text) > 20:
        raise ValueError("a size in a header is not a number")
    return int(text)


def _time(text: bytes) -> float:
    if len(text) > 40 or text.strip(b"-.0123456789"):
        raise ValueError("a time in a header is not a number")
    return float(text)


def _extension(fd: int, position: int, size: int) -> bytes:
    if size > MAX_EXTENSION_BYTES:
        raise ValueError(f"a header claims {size} bytes")
    content = os.pread(fd, size, position)
    if len(content) < size:
        raise ValueError("it ends within a header")
    return content


def _records(content: bytes) -> dict[bytes, bytes]:
    """Parse the records of an extended header: ``length key=value`` and a line end; the length counts all of these."""
    found: dict[bytes, bytes] = {}
    at = 0
    while at < len(content) and content[at]:
        space = content.find(b" ", at, at + 20)
        length = _decimal(content[at : max(space, at)])
        record = content[at : at + length]
        key, equals, value = record[space + 1 - at : -1].partition(b"=")
        if len(record) < length or record[-1:] != b"\n" or not equals or not key:
            raise ValueError("an extended header is damaged")
        found[key] = value
        at += length
    return found


def _check_global(records: dict[bytes, bytes]) -> None:
    if any(key in _OF_ONE_MEMBER or key.startswith(_SPARSE) for key in records):
        raise ValueError("a global header names a path or a size, which would be that of every member")


def _whole_blocks(size: int) -> int:
    return -(-size // BLOCK) * BLOCK

"""The one form of a message from a side that may be hostile: a length of four bytes, then JSON of a declared type.

``Frames`` bounds the size of a message before it is read; ``has_too_many_parts`` counts its parts before they become
objects. Two readers check the types of all fields: ``decode_strict`` takes the many messages of a cell, ``decode`` the
few whose texts may be names of files that have no UTF-8, or that need hooks of ``json``. Programs inside a sandbox run
under the user's Python and write the same form with ``struct`` and ``json`` alone.

Why parts are counted: a frame from a session's worker has at most 16 MB, but 16 MB of ``[],`` become five million
objects: 900 MB of the host's memory and seconds of its time, outside every limit of the cell. So strings, brackets and
commas are counted first, in linear time and without a copy.
"""

from __future__ import annotations

import contextlib
import json
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar, overload

if TYPE_CHECKING:
    import msgspec

_T = TypeVar("_T")
_LENGTH = struct.Struct(">I")

#: The most strings, opening brackets and commas in one frame. The largest value that a page accepts (``json_value.py``:
#: 100 000 values) has three for each value: a name, a text and a comma.
MAX_PARTS = 320_000
_TOO_MANY = f"it holds more than {MAX_PARTS} texts, lists, objects and commas"
#: The deepest nesting of a value in a strict message: later code walks through it by recursion.
MAX_DEPTH = 100
_OTHERS = bytes(set(range(256)) - set(b'",[{'))
#: An unterminated string matches to the end of the frame, so that no byte is scanned twice.
_PART = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[{,]', re.DOTALL)


class BadMessage(ValueError):
    """Raised for a message of another size, shape or type than its declaration says."""


def encodable(text: str) -> str:
    """Return a text that has a UTF-8, as every message needs: lone surrogates become question marks."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def frame(data: bytes) -> bytes:
    """Return a message as it is sent: its length, then its bytes."""
    return _LENGTH.pack(len(data)) + data


class Frames:
    """Splits a stream into messages of at most ``largest`` bytes; ``on_size`` hears of each before the rest is read."""

    def __init__(self, largest: int, on_size: Callable[[int], None] = lambda _: None) -> None:
        self._largest, self._on_size = largest, on_size
        self._buffer = bytearray()
        #: How long the next message is with its length; None until that has come.
        self._end: int | None = None

    @property
    def missing(self) -> int:
        """How many bytes the next message lacks; 0 when its length has not come yet."""
        return self._end - len(self._buffer) if self._end is not None else 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Add data and yield each message that is complete. Raises ``BadMessage`` for one that is too large."""
        self._buffer += data
        while (message := self.next()) is not None:
            yield message

    def next(self, data: bytes = b"") -> bytes | None:
        """Add data and return one message; None when it is not complete yet."""
        self._buffer += data
        if self._end is None and len(self._buffer) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._buffer)
            self._on_size(size)
            if size > self._largest:
                raise BadMessage(f"a message of {size} bytes; at most {self._largest} are accepted")
            self._end = _LENGTH.size + size
        if self._end is None or len(self._buffer) < self._end:
            return None
        message = bytes(memoryview(self._buffer)[_LENGTH.size : self._end])
        del self._buffer[: self._end]
        self._end = None
        return message


def decode(data: bytes, declared: type[_T], **hooks: Any) -> _T:
    """Parse a message and check it against a dataclass, or a union of tagged msgspec structs.

    Raises ``BadMessage`` that names the first field that is missing or has another type. Bounds of a field stand in its
    declaration: ``Annotated[int, msgspec.Meta(ge=0)]``. The hooks are those of ``json.loads``.
    """
    try:
        return check(parse_json(data, **hooks), declared)
    except (ValueError, RecursionError) as error:
        raise BadMessage(str(error)) from None


def finite(digits: str) -> float:
    """Return a float, as the ``float_hook`` of decoders of hostile JSON: msgspec itself may take 14 µs for each."""
    if abs(number := float(digits)) == float("inf"):
        raise ValueError("a number out of range")
    return number


def decode_strict(raw: bytes, decoder: msgspec.json.Decoder[_T]) -> _T:
    """Parse a message of strict JSON, without NaN and halves of surrogate pairs, as a msgspec struct; see ``decode``.

    It is ten times as fast. No value in it is nested deeper than ``MAX_DEPTH``.
    """
    if has_too_many_parts(raw):
        raise BadMessage(_TOO_MANY)
    try:
        found = decoder.decode(raw)
    except (ValueError, RecursionError) as error:
        raise BadMessage(str(error)) from None
    # Nothing is nested deeper than there are brackets.
    many = raw.count(b"{") + raw.count(b"[") > MAX_DEPTH
    if many and any(_is_deeper(getattr(found, name), MAX_DEPTH) for name in getattr(found, "__struct_fields__", ())):
        raise BadMessage("nested too deep")
    return found


def _is_deeper(value: object, most: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else None
    return inner is not None and (most == 0 or any(_is_deeper(item, most - 1) for item in inner))


@overload
def check(value: object, declared: type[_T]) -> _T: ...
@overload
def check(value: object, declared: Any) -> Any: ...
def check(value: object, declared: Any) -> Any:
    """Return a parsed value as what was declared; see ``decode``."""
    # A plain run takes no such message; msgspec takes 14 ms to import.
    import msgspec

    try:
        return msgspec.convert(value, declared)
    except (ValueError, RecursionError) as error:  # msgspec's ValidationError is a ValueError
        raise BadMessage(str(error)) from None


def check_or(value: object, otherwise: _T) -> _T:
    """Return a parsed value if it has the type of ``otherwise``, else ``otherwise``."""
    try:
        return check(value, type(otherwise))
    except BadMessage:
        return otherwise


def check_each(values: list[object], declared: Any) -> list[Any]:
    """Return those of a list's values that are as declared."""
    found = []
    for value in values:
        with contextlib.suppress(BadMessage):
            found.append(check(value, declared))
    return found


def parse_json(raw: bytes, **hooks: Any) -> Any:
    """Parse a text of a program, with the hooks of ``json.loads``. Raises ``ValueError``, or ``RecursionError``.

    Only UTF-8 is taken. ``json.loads`` guesses UTF-16 and UTF-32 too, in which the count would see other signs than the
    parser.
    """
    if has_too_many_parts(raw):
        raise BadMessage(_TOO_MANY)
    return json.loads(str(raw, "utf-8", "surrogatepass"), **hooks)


def has_too_many_parts(*raw: bytes) -> bool:
    """Whether parsing the frame, or several texts, would make more objects than the limit allows."""
    # One pass instead of four: what is left when all other bytes are taken out.
    if sum(map(len, raw)) <= MAX_PARTS or sum(len(each.translate(None, _OTHERS)) for each in raw) <= MAX_PARTS:
        return False
    # Commas inside strings do not count.
    found = (part for each in raw for part in _PART.finditer(each))
    return any(number >= MAX_PARTS for number, _ in enumerate(found))


def no_key_twice(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return an object of JSON, for ``object_pairs_hook``. Raises ``ValueError`` for a key that stands twice."""
    # Another parser of the same text may have taken the other value.
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key {twice!r:.80} stands twice in an object")
    return found

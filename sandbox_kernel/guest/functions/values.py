"""Values of host functions as JSON, inside: the same rules as ``backends/functions/call_values.py`` of the host."""

from __future__ import annotations

import binascii
import math

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

#: Types that are JSON as they are. A look at the exact type is quicker than the questions that follow.
_AS_THEY_ARE = frozenset({type(None), bool, int, str})
_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class AnswerBytes:
    """The bytes that follow the JSON of one answer; they are taken in the order of the values."""

    def __init__(self, data: bytes = b"") -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        """Return the next bytes."""
        self._at += size
        return self._data[self._at - size : self._at]


def encode(value: object, raw: List[bytes] | None = None) -> object:
    """Return an argument as JSON; raises ``TypeError`` for a type that cannot be sent.

    Bytes are appended to ``raw``; without it they are base64.
    """
    if type(value) in _AS_THEY_ARE or isinstance(value, (int, str)):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$float": str(float(value))}
    if isinstance(value, (bytes, bytearray, memoryview)):
        if raw is None:
            return {"$bytes": binascii.b2a_base64(value, newline=False).decode()}
        raw.append(bytes(value))
        return {"$bytes": len(raw[-1])}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [encode(item, raw) for item in value]
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("a dict for a host function must have texts as keys")
        plain = {key: encode(item, raw) for key, item in value.items()}
        return {"$object": plain} if any(key.startswith("$") for key in plain) else plain
    if hasattr(value, "tolist"):  # numbers and arrays of NumPy
        return encode(value.tolist(), raw)
    raise TypeError(f"a host function cannot be sent a {type(value).__name__}; send JSON values or bytes")


def decode(value: object, raw: AnswerBytes | None = None) -> object:
    """Return a result of the host."""
    if isinstance(value, list):
        return [decode(item, raw) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((key, item),) = value.items()
        if key == "$bytes":
            return raw.take(item) if raw is not None and isinstance(item, int) else binascii.a2b_base64(item)
        if key == "$float":
            return _FLOATS[item]
        if key == "$object":
            return {name: decode(part, raw) for name, part in item.items()}
    return {key: decode(item, raw) for key, item in value.items()}

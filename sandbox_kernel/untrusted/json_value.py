"""Checks JSON values from a sandbox: only plain types, bounded in depth, number and length."""

from __future__ import annotations

import math

from sandbox_kernel.untrusted import ContentRefused
from sandbox_kernel.util.wire import encodable

MAX_DEPTH = 64
MAX_VALUES = 100_000
MAX_CHARACTERS = 1 << 20
#: What a number, true, false or null counts, in characters.
_SCALAR = 8


def check_json(value: object, most: int = MAX_CHARACTERS) -> object:
    """Return a copy of a JSON value with ``most`` characters of text at most, or raise ``ContentRefused``."""
    values = characters = 0

    def text(value: str) -> str:
        nonlocal characters
        characters += len(value)
        if characters > most:
            raise ContentRefused(f"it holds more than {most >> 20} MB of text")
        return encodable(value)

    def copy(value: object, depth: int) -> object:
        nonlocal values
        values += 1
        if depth > MAX_DEPTH:
            raise ContentRefused(f"it is nested deeper than {MAX_DEPTH}")
        if values > MAX_VALUES:
            raise ContentRefused(f"it holds more than {MAX_VALUES} values")
        if isinstance(value, str):
            return text(value)
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, int):
            if value.bit_length() > 1024:
                raise ContentRefused("it holds a number of more than 1024 bits")
            return int(value)
        if isinstance(value, float):
            if not math.isfinite(value):
                raise ContentRefused(f"it holds {value}, which is no JSON")
            return float(value)
        if isinstance(value, list | tuple):
            return [copy(item, depth + 1) for item in value]
        if isinstance(value, dict):
            if not all(isinstance(key, str) for key in value):
                raise ContentRefused("it holds a key that is not text")
            return {text(key): copy(item, depth + 1) for key, item in value.items()}
        raise ContentRefused(f"it holds a {type(value).__name__}, which is no JSON")

    return copy(value, 0)


def size_of(value: object) -> int:
    """Return about how many characters a decoded JSON value has. Blanks and escapes in its bytes do not count."""
    size, left = 0, [value]
    while left:
        each = left.pop()
        if isinstance(each, str):
            size += len(each)
        elif isinstance(each, dict):
            left += [*each, *each.values()]
        elif isinstance(each, list):
            left += each
        else:
            size += _SCALAR
    return size

"""Parses durations and sizes of options: ``500ms``, ``5s``, ``2m``; ``512K``, ``64M``, ``1G``.

Pure. The caller passes the name of the option, and errors quote it with the text that the user typed.
"""

from __future__ import annotations

import math
import re

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.limits import MIB

DURATION_FORM = "a number with a unit: 500ms, 5s or 2m"
SIZE_FORM = "a number with a unit: 512K, 64M or 1G"

_NUMBER = r"([0-9]{1,12}(?:\.[0-9]{1,6})?)"
_DURATION = re.compile(rf"{_NUMBER}(ms|s|m|h|)\Z")
_SIZE = re.compile(rf"{_NUMBER}([KMGT])(?:i?B)?\Z", re.IGNORECASE)
#: A number without a unit is seconds. A size without a unit is refused: it could be bytes or megabytes.
_SECONDS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}
_BYTES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def parse_duration(text: str, option: str) -> float:
    """Return seconds, above zero; ``InvalidRequest`` quotes ``option`` if the text is not a duration."""
    match = _DURATION.match(text)
    if not match:
        raise InvalidRequest(f"{option} {text!r} is not a duration; give {DURATION_FORM}")
    seconds = float(match[1]) * _SECONDS[match[2]]
    if seconds <= 0:
        raise InvalidRequest(f"{option} {text!r} must be above zero; give {DURATION_FORM}")
    return seconds


def parse_bytes(text: str, option: str) -> int:
    """Return whole bytes, above zero."""
    match = _SIZE.match(text)
    if not match:
        hint = f" (did you mean {text}M?)" if text.isascii() and text.isdigit() else ""
        raise InvalidRequest(f"{option} {text!r} is not a size; give {SIZE_FORM}{hint}")
    size = round(float(match[1]) * _BYTES[match[2].upper()])
    if size <= 0:
        raise InvalidRequest(f"{option} {text!r} must be above zero; give {SIZE_FORM}")
    return size


def parse_megabytes(text: str, option: str) -> int:
    """Return whole MB, rounded up, so that a limit is never smaller than asked for."""
    return math.ceil(parse_bytes(text, option) / MIB)


def parse_count(text: str, option: str, least: int) -> int:
    """Return a whole number of at least ``least``."""
    if not (text.isascii() and text.isdigit()) or len(text) > 9 or int(text) < least:
        raise InvalidRequest(f"{option} {text!r} must be a whole number from {least} upwards, like {max(least, 5)}")
    return int(text)


def duration_text(seconds: float) -> str:
    """Return the shortest text that ``parse_duration`` reads as the same duration."""
    if seconds < 1:
        return f"{seconds * 1000:.10g}ms"
    return f"{seconds / 60:.10g}m" if seconds >= 60 and seconds % 60 == 0 else f"{seconds:.10g}s"


def size_text(size: int) -> str:
    """Return the shortest text that ``parse_bytes`` reads as the same size."""
    for unit in ("G", "M"):
        if size >= _BYTES[unit] and size % _BYTES[unit] == 0:
            return f"{size // _BYTES[unit]}{unit}"
    return f"{size / 1024:.6f}".rstrip("0").rstrip(".") + "K"

"""Selects pictures of a session for the client: PNG only, checked by the header, few and small.

Pictures are untrusted. They are not decoded here; a picture that is passed on has the header of a PNG, few bytes, and
dimensions that do not decode to gigabytes.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable

from sandbox_kernel.model import Display

PNG = "image/png"
MOST_PICTURES = 4
MOST_BYTES = 1 << 20
MOST_PIXELS = 25_000_000


def pictures_of(displays: Iterable[Display]) -> tuple[str, ...]:
    """Return the last few pictures as canonical base64."""
    found = [picture for shown in displays if (picture := _picture(shown.data.get(PNG))) is not None]
    return tuple(found[-MOST_PICTURES:])


def _picture(encoded: object) -> str | None:
    if not isinstance(encoded, str) or len(encoded) > MOST_BYTES * 3 // 2:
        return None
    try:
        data = base64.b64decode("".join(encoded.split()), validate=True)
    except (binascii.Error, ValueError):
        return None
    if data[:8] != b"\x89PNG\r\n\x1a\n" or data[8:16] != b"\0\0\0\rIHDR" or not 45 <= len(data) <= MOST_BYTES:
        return None
    width, height = int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    return base64.b64encode(data).decode() if 0 < width * height <= MOST_PIXELS else None

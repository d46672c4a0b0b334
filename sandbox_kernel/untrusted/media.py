"""Checks pictures: base64 data of the format that the MIME type names, of a size that a page can draw.

Only headers are read. A browser must not guess another type, and a few kB of PNG can unpack to gigabytes.
"""

from __future__ import annotations

import base64
import binascii
import re

from sandbox_kernel.untrusted import ContentRefused

IMAGE_TYPES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
MAX_IMAGE_BYTES = 16 << 20
MAX_SIDE = 16384
MAX_PIXELS = 50_000_000
#: Most segments and padding bytes before the frame header of a JPEG; cameras write a few dozen.
_MAX_SEGMENTS = 2000
#: Most scans of a progressive JPEG, each of which goes over all of its pixels; usual are ten.
MAX_SCANS, _SCAN = 100, b"\xff\xda"
_DATA_URL = re.compile(r"data:(image/[a-z]{1,20});base64,([A-Za-z0-9+/=\s]*)\Z")
_PICTURE = re.compile(r"data:(image/[a-z]{1,20});base64,([A-Za-z0-9+/=]*)")


def check_image(mime: str, encoded: str) -> str:
    """Return the picture as canonical base64, or raise ``ContentRefused``."""
    if len(encoded) > MAX_IMAGE_BYTES * 3 // 2:
        raise ContentRefused(f"it is larger than {MAX_IMAGE_BYTES >> 20} MB")
    try:
        data = base64.b64decode(re.sub(r"\s+", "", encoded), validate=True)
    except (binascii.Error, ValueError):
        raise ContentRefused("it is not base64") from None
    if len(data) > MAX_IMAGE_BYTES:
        raise ContentRefused(f"it is larger than {MAX_IMAGE_BYTES >> 20} MB")
    size = _size(mime, data)
    if size is None:
        raise ContentRefused(f"its content is not {mime}")
    width, height = size
    if not (0 < width <= MAX_SIDE and 0 < height <= MAX_SIDE and width * height <= MAX_PIXELS):
        raise ContentRefused(f"its {width} x {height} pixels are more than a page draws")
    if mime == "image/jpeg" and data.count(_SCAN) > MAX_SCANS:
        raise ContentRefused(f"it has more than {MAX_SCANS} scans")
    return base64.b64encode(data).decode()


def check_data_url(url: str) -> str | None:
    """Return a ``data:`` URL of a picture, canonical; None for every other URL."""
    match = _DATA_URL.match(url) if len(url) <= MAX_IMAGE_BYTES * 3 // 2 else None
    if match is None or match[1] not in IMAGE_TYPES:
        return None
    try:
        return f"data:{match[1]};base64,{check_image(match[1], match[2])}"
    except ContentRefused:
        return None


def picture_work(mime: str, encoded: str) -> int:
    """Return the work of a checked picture, in simple shapes: a page decodes it, also where it is drawn small."""
    try:
        data = base64.b64decode(encoded)
    except ValueError:  # text that looks like the address of a picture
        return 0
    width, height = _size(mime, data) or (0, 0)
    scans = data.count(_SCAN) if mime == "image/jpeg" else 1
    return 100 + width * height * max(1, scans // 4) // 1000


def pictures_work(cleaned: str) -> int:
    """Return the work of all pictures in a cleaned text."""
    return sum(picture_work(*picture) for picture in _PICTURE.findall(cleaned))


def _size(mime: str, data: bytes) -> tuple[int, int] | None:
    """Return width and height of a picture by its header; None if it is not of this type."""
    if mime == "image/jpeg":
        return _jpeg_size(data)
    if mime == "image/webp":
        return _webp_size(data)
    if mime == "image/png" and data[:16] == b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" and len(data) >= 45:
        return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")
    if mime == "image/gif" and data[:6] in (b"GIF87a", b"GIF89a") and len(data) >= 14:
        return int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")
    return None


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    """Return the size from the frame header, which comes after any number of segments."""
    if data[:3] != b"\xff\xd8\xff":
        return None
    position = 2
    for _ in range(_MAX_SEGMENTS):
        if position + 9 >= len(data) or data[position] != 0xFF:
            break
        marker = data[position + 1]
        if marker == 0xFF:  # padding
            position += 1
            continue
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = data[position + 5 : position + 7], data[position + 7 : position + 9]
            return int.from_bytes(width, "big"), int.from_bytes(height, "big")
        if marker in (0xD8, 0xD9, 0xDA) or marker < 0xC0:
            return None
        length = int.from_bytes(data[position + 2 : position + 4], "big")
        if length < 2:
            return None
        position += 2 + length
    return None


def _webp_size(data: bytes) -> tuple[int, int] | None:
    if data[:4] != b"RIFF" or data[8:12] != b"WEBP" or len(data) < 30:
        return None
    kind = data[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if kind == b"VP8L" and data[20] == 0x2F:
        bits = int.from_bytes(data[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        return int.from_bytes(data[26:28], "little") & 0x3FFF, int.from_bytes(data[28:30], "little") & 0x3FFF
    return None

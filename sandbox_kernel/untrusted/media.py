"""Checks sound and video in ``data:`` URLs: base64 data in the container that the MIME type names.

The browser decodes them. Their content must match their MIME type: a playlist, which makes a browser load from
elsewhere, is no container, and neither is QuickTime, which may refer to other files. Only headers are read here.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable

MAX_MEDIA_BYTES = 12 << 20

_DATA_URL = re.compile(r"data:((?:audio|video)/[a-z0-9.+-]{1,20});base64,([A-Za-z0-9+/=\s]*)\Z")
_MOST_REFERENCES = 64


def check_media_url(url: str) -> str | None:
    """Return a ``data:`` URL of sound or video, checked and canonical; None for every other URL."""
    match = _DATA_URL.match(url) if len(url) <= MAX_MEDIA_BYTES * 3 // 2 else None
    reader = _READERS.get(match[1]) if match else None
    if match is None or reader is None:
        return None
    try:
        data = base64.b64decode(re.sub(r"\s+", "", match[2]), validate=True)
    except (binascii.Error, ValueError):
        return None
    if len(data) > MAX_MEDIA_BYTES or not reader(data):
        return None
    return f"data:{match[1]};base64,{base64.b64encode(data).decode()}"


def _wav(data: bytes) -> bool:
    return data[:4] == b"RIFF" and data[8:12] == b"WAVE"


def _mpeg(data: bytes) -> bool:
    """MP3 and AAC begin with a tag of theirs, or with the eleven set bits of a frame."""
    return data[:3] == b"ID3" or (len(data) > 4 and data[0] == 0xFF and data[1] & 0xE0 == 0xE0)


def _mp4(data: bytes) -> bool:
    if data[4:8] != b"ftyp" or data[8:12] == b"qt  ":
        return False
    return _is_self_contained(data)


def _is_self_contained(data: bytes) -> bool:
    """Whether no track of an MP4 file says that its samples are in another file."""
    at = data.find(b"dref")
    for _ in range(_MOST_REFERENCES):
        if at < 0:
            return True
        # One entry, an address, with the flag for "in this file".
        if (data[at + 8 : at + 12], data[at + 16 : at + 20], data[at + 23 : at + 24]) != (b"\0\0\0\1", b"url ", b"\1"):
            return False
        at = data.find(b"dref", at + 4)
    return False


_READERS: dict[str, Callable[[bytes], bool]] = {
    **dict.fromkeys(("audio/wav", "audio/x-wav", "audio/wave", "audio/vnd.wave"), _wav),
    **dict.fromkeys(("audio/mpeg", "audio/mp3", "audio/aac"), _mpeg),
    **dict.fromkeys(("audio/ogg", "video/ogg"), lambda data: data[:4] == b"OggS"),
    **dict.fromkeys(("audio/flac", "audio/x-flac"), lambda data: data[:4] == b"fLaC"),
    **dict.fromkeys(("audio/webm", "video/webm"), lambda data: data[:4] == b"\x1a\x45\xdf\xa3"),
    **dict.fromkeys(("audio/mp4", "audio/x-m4a", "video/mp4"), _mp4),
}

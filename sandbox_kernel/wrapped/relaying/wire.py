"""Jupyter's messages on the wire: routing prefix, delimiter, signature, four JSON parts, buffers. Pure functions.

The outside key, in the front end's connection file, never enters the jail; the inside key is good for one kernel.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from sandbox_kernel.util.wire import parse_json

DELIMITER = b"<IDS|MSG>"
#: Made once: making one takes longer than encoding a header.
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
#: The parts of a message that are signed: header, parent header, metadata, content.
_SIGNED = 4


@dataclass(frozen=True)
class Signer:
    """Signs messages with one key. Without a key, signatures are empty, as Jupyter defines it."""

    key: bytes = field(repr=False)
    digest: str = "sha256"

    def sign(self, parts: Sequence[bytes]) -> bytes:
        """Return the signature of the four JSON parts."""
        if not self.key:
            return b""
        return hmac.digest(self.key, b"".join(parts), self.digest).hex().encode()

    def verifies(self, signature: bytes, parts: Sequence[bytes]) -> bool:
        """Whether a signature is the one of these parts."""
        return hmac.compare_digest(signature, self.sign(parts))


@dataclass(frozen=True)
class Packet:
    """One message, not decoded yet."""

    routing: list[bytes]
    signature: bytes
    parts: list[bytes]
    buffers: list[bytes]


def split(frames: Sequence[bytes]) -> Packet | None:
    """Split the frames of a message; returns None when they are no message of Jupyter."""
    frames = list(frames)
    try:
        at = frames.index(DELIMITER)
    except ValueError:
        return None
    rest = at + 2 + _SIGNED
    if len(frames) < rest:
        return None
    return Packet(frames[:at], frames[at + 1], frames[at + 2 : rest], frames[rest:])


def joined(
    signer: Signer, routing: Sequence[bytes], parts: Sequence[bytes], buffers: Sequence[bytes] = ()
) -> list[bytes]:
    """Return the frames of a message with a new signature."""
    return [*routing, DELIMITER, signer.sign(parts), *parts, *buffers]


def to_json(value: object) -> bytes:
    """Encode one part. Raises ``ValueError`` for numbers that JSON does not have, and for lone surrogates."""
    return _ENCODER.encode(value).encode()


def from_json(part: bytes) -> dict[str, object] | None:
    """Decode one part; returns None for anything but a JSON object of bounded size."""
    try:
        value = parse_json(part)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None

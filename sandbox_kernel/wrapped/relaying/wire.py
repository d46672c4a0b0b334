"""Jupyter's messages on the wire: routing prefix, delimiter, signature, four JSON parts, buffers. Pure functions.

Two keys are in use. The outside key is in the connection file of the front end and never enters the jail. The inside
key is in the connection file of the kernel; who has it can talk to that kernel only.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from json.encoder import encode_basestring
from typing import Any

from sandbox_kernel.errors import InvalidRequest

DELIMITER = b"<IDS|MSG>"
#: Made once: making one takes longer than encoding a header.
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_DECODER = json.JSONDecoder()
#: A text of this length is encoded without copies.
_LONG = 64 << 10
#: Bytes that stand in JSON as they are, and the end of a line.
_UNESCAPED = bytes({*range(0x20, 0x100), *b"\n"} - set(b'"\\'))
#: The parts of a message that are signed: header, parent header, metadata, content.
_SIGNED = 4
#: The place of the content among them.
CONTENT = 3


@dataclass(frozen=True)
class Signer:
    """Signs messages with one key. Without a key, signatures are empty, as Jupyter defines it."""

    key: bytes = field(repr=False)
    digest: str = "sha256"

    def sign(self, parts: Sequence[bytes]) -> bytes:
        """Return the signature of the four JSON parts."""
        if not self.key:
            return b""
        if sum(map(len, parts)) < _LONG:
            return hmac.digest(self.key, b"".join(parts), self.digest).hex().encode()
        made = hmac.new(self.key, digestmod=self.digest)
        for part in parts:
            made.update(part)
        return made.hexdigest().encode()

    def verifies(self, signature: bytes, parts: Sequence[bytes]) -> bool:
        """Whether a signature is the one of these parts."""
        return hmac.compare_digest(signature, self.sign(parts))


def make_signer(key: str, scheme: str) -> Signer:
    """Return the signer for the key and scheme of a connection file."""
    name, _, digest = scheme.partition("-")
    if name != "hmac" or digest not in hashlib.algorithms_available:
        raise InvalidRequest(f"connection file: signature_scheme {scheme!r:.80} is not known; hmac-sha256 is")
    return Signer(key.encode(), digest)


@dataclass(frozen=True)
class Packet:
    """One message, not decoded yet."""

    routing: list[bytes]
    signature: bytes
    parts: list[bytes]
    buffers: list[bytes]

    def with_content(self, content: bytes) -> Packet:
        """Return the message with another content. Its signature is not made anew."""
        return replace(self, parts=[*self.parts[:CONTENT], content])


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
    if not value and isinstance(value, dict):
        return b"{}"
    if not isinstance(value, dict) or not _is_long_text(value):
        return _ENCODER.encode(value).encode()
    # Printed text. The encoder copies a text of megabytes three times more, which takes as long again.
    pairs = ((_quoted(name), _quoted(text)) for name, text in value.items())
    pieces = [piece for name, text in pairs for piece in (b",", name, b":", text)]
    return b"".join((b"{", *pieces[1:], b"}"))


def _is_long_text(value: dict[str, Any]) -> bool:
    """Whether a JSON object holds texts only, and one of them is long."""
    size = 0
    for text in value.values():
        if type(text) is not str:
            return False
        size += len(text)
    return size > _LONG


def _quoted(text: str) -> bytes:
    """Encode a text. One in which only ends of lines need an escape, as in most printed output, takes a fourth."""
    data = text.encode()
    if data.translate(None, _UNESCAPED):
        return encode_basestring(text).encode()
    return b"".join((b'"', data.replace(b"\n", b"\\n"), b'"'))


def from_json(part: bytes) -> dict[str, object] | None:
    """Decode one part; returns None for anything but a JSON object."""
    if part == b"{}":
        return {}
    try:
        value = _DECODER.decode(part.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None

"""Recognises the form of a WebAssembly module: text, binary or base64. Runs and compiles nothing.

Pure. Input that is none of them raises ``InvalidRequest``; the compile step inside a jail checks the module itself.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass

from sandbox_kernel.errors import InvalidRequest

MAGIC = b"\0asm"
_ELF = b"\x7fELF"
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]+={0,2}\Z")
_ACCEPTED = "give WAT text beginning with '(', the bytes of a .wasm file, or those bytes as base64"


@dataclass(frozen=True)
class WasmSource:
    """The input of the compile step: WAT as UTF-8 when ``text`` is true, else the bytes of a module."""

    data: bytes
    text: bool


def read_source(code: str | bytes) -> WasmSource:
    """Recognise the form of ``code``; the content of a file is given as bytes."""
    if isinstance(code, bytes):
        return _from_bytes(code)
    stripped = code.strip()
    # WAT may begin with a comment: ;; or (; …
    if stripped.startswith(("(", ";;")):
        return WasmSource(code.encode(), text=True)
    compact = "".join(stripped.removeprefix("data:application/wasm;base64,").split())
    if compact.startswith("AGFzb") and _BASE64.match(compact):
        return WasmSource(_decode(compact), text=False)
    if compact.startswith("AGFzb"):
        raise InvalidRequest(f"the base64 of the module holds characters that base64 does not have; {_ACCEPTED}")
    raise InvalidRequest(f"{stripped[:40]!r}… is not WebAssembly: {_ACCEPTED}")


def _from_bytes(code: bytes) -> WasmSource:
    if code.startswith(MAGIC):
        return WasmSource(code, text=False)
    if code.startswith(_ELF):
        raise InvalidRequest(
            "this is native code (a precompiled .cwasm or an ELF program), which is never loaded from outside; "
            "give the .wasm it was made from"
        )
    try:
        text = code.decode()
    except UnicodeDecodeError:
        raise InvalidRequest(f"bytes that begin with {code[:4].hex(' ')} are not WebAssembly: {_ACCEPTED}") from None
    if "\0" in text:
        raise InvalidRequest(f"bytes that begin with {code[:4].hex(' ')} are not WebAssembly: {_ACCEPTED}")
    return read_source(text)


def _decode(compact: str) -> bytes:
    plain = compact.translate(str.maketrans("-_", "+/")).rstrip("=")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidRequest(f"the base64 of the module is damaged: {error}; encode the file again") from None

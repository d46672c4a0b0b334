"""Files that are not text, as parts of a patch in git's binary form: ``git apply`` makes the same bytes.

Such a part is letters and digits, so it is safe to print. It holds the new content, and of the old one the hash alone,
by which git knows that the file is still the one that was changed.
"""

from __future__ import annotations

import hashlib
import zlib
from base64 import b85encode
from collections.abc import Iterator

#: The longest line of git's form, in bytes before they are encoded.
_LINE = 52
_NOTHING = "0" * 40


def binary_part(head: str, old: bytes | None, new: bytes | None) -> str:
    """Return a part below its header. None for a side that is not there."""
    data = new or b""
    index = f"index {_blob(old)}..{_blob(new)}\n"
    return f"{head}{index}GIT binary patch\nliteral {len(data)}\n{''.join(_encoded(zlib.compress(data)))}\n"


def _blob(data: bytes | None) -> str:
    """Return git's name of a content."""
    if data is None:
        return _NOTHING
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _encoded(packed: bytes) -> Iterator[str]:
    for at in range(0, len(packed), _LINE):
        piece = packed[at : at + _LINE]
        size = len(piece)
        length = chr(ord("A") + size - 1) if size <= 26 else chr(ord("a") + size - 27)
        yield f"{length}{b85encode(piece, pad=True).decode()}\n"

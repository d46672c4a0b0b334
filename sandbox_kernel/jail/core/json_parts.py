"""How many parts a text in JSON has, counted before it is parsed.

A frame of a session's worker is at most 16 MB, but 16 MB of ``[],`` become five million objects: 900 MB of the host's
memory and seconds of its time, outside every limit of the cell. Strings, brackets and commas are therefore counted
first, in time that grows with the size of the frame alone and with no copy of it.
"""

from __future__ import annotations

import re

#: Strings, opening brackets and commas of one frame. The largest value that a page is given (``json_value.py``: 100 000
#: values) has three for each: a name, a text and a comma.
MAX_PARTS = 320_000
#: A string that never ends goes on to the end of the frame, so that no byte is looked at twice.
_PART = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[{,]', re.DOTALL)


def has_too_many_parts(raw: bytes) -> bool:
    """Whether a frame would become more objects than the host makes of one frame."""
    if sum(map(raw.count, (b'"', b",", b"[", b"{"))) <= MAX_PARTS:
        return False
    # Texts may hold as many commas as they like.
    return any(number >= MAX_PARTS for number, _ in enumerate(_PART.finditer(raw)))

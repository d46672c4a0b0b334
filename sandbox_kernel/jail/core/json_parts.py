"""Parses JSON of a program: its parts are counted first, and keys that stand twice in an object can be refused.

A frame from a session's worker has at most 16 MB, but 16 MB of ``[],`` become five million objects: 900 MB of the
host's memory and seconds of its time, outside every limit of the cell. So strings, brackets and commas are counted
first, in linear time and without a copy.
"""

from __future__ import annotations

import json
import re
from typing import Any

#: The most strings, opening brackets and commas in one frame. The largest value that a page accepts (``json_value.py``:
#: 100 000 values) has three for each value: a name, a text and a comma.
MAX_PARTS = 320_000
_OTHERS = bytes(set(range(256)) - set(b'",[{'))
#: An unterminated string matches to the end of the frame, so that no byte is scanned twice.
_PART = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)|[\[{,]', re.DOTALL)


class TooManyParts(ValueError):
    """Raised for a text whose objects would take more of the host's memory than its size tells."""


def parse_json(raw: bytes, **hooks: Any) -> Any:
    """Parse a text of a program, with the hooks of ``json.loads``. Raises ``ValueError``, or ``RecursionError``.

    Only UTF-8 is taken. ``json.loads`` guesses UTF-16 and UTF-32 too, in which the count would see other signs than the
    parser.
    """
    if has_too_many_parts(raw):
        raise TooManyParts(f"it holds more than {MAX_PARTS} texts, lists, objects and commas")
    return json.loads(str(raw, "utf-8", "surrogatepass"), **hooks)


def has_too_many_parts(*raw: bytes) -> bool:
    """Whether parsing the frame, or several texts, would make more objects than the limit allows."""
    # One pass instead of four: what is left when all other bytes are taken out.
    if sum(map(len, raw)) <= MAX_PARTS or sum(len(each.translate(None, _OTHERS)) for each in raw) <= MAX_PARTS:
        return False
    # Commas inside strings do not count.
    found = (part for each in raw for part in _PART.finditer(each))
    return any(number >= MAX_PARTS for number, _ in enumerate(found))


def no_key_twice(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return an object of JSON, for ``object_pairs_hook``. Raises ``ValueError`` for a key that stands twice.

    Whoever looked at the text before us may have taken the other value.
    """
    found = dict(pairs)
    if len(found) != len(pairs):
        from collections import Counter  # only for a mistake

        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ValueError(f"the key {twice!r:.80} stands twice in an object")
    return found

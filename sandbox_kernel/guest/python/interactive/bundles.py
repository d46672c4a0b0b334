"""MIME bundles as JSON can hold them: bytes become base64, as in Jupyter's messages, and unknown values text."""

from __future__ import annotations

import base64
import json
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict

#: References taken before the first cell, because a cell may replace these functions.
_dumps, _loads = json.dumps, json.loads

#: MIME types that the host accepts. It ends a worker that sends others, and a program may use any name.
MIME = re.compile(r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}\Z")
MAX_MIMES = 32
UNREADABLE = "application/x-unreadable"


def plain(value: Any) -> Any:
    """Return a value that JSON can hold: bytes become base64, unknown types text."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, str):
        return value
    try:
        return _loads(_dumps(value, default=str))
    except (TypeError, ValueError, RecursionError):
        return str(value)


def bundle(data: Dict[str, Any]) -> Dict[str, Any]:
    """Return a MIME bundle that JSON can hold, without entries whose name is not a MIME type."""
    named = {mime if isinstance(mime, str) and MIME.match(mime) else UNREADABLE: value for mime, value in data.items()}
    return {mime: plain(value) for mime, value in list(named.items())[:MAX_MIMES]}

"""Frames and libraries as messages for the host: markup with scripts, and the JavaScript that several frames share."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List


#: Taken before the first cell, because a cell may replace it.
_dumps, _loads = json.dumps, json.loads

FRAME = "application/vnd.sandbox-kernel.frame+json"
LIBRARY = "application/vnd.sandbox-kernel.library+json"


def frame(markup: str, libraries: List[str], height: Any = None) -> Dict[str, Any]:
    """Return the data of a frame."""
    return {"html": markup, "libraries": libraries, "height": height}


def script(code: str) -> str:
    """Return code as an inline script; text in it cannot end the script."""
    return "<script>" + code.replace("</", "<\\/").replace("<!--", "<\\!--") + "</script>"


def as_json(value: Any) -> str:
    """Return a value as JavaScript."""
    return _dumps(value, default=str)


#: What makes the source of a library, by the first word of its title; it gets the rest. From files of installed
#: packages alone, so that the host can have it made again where no program has run.
MAKERS: Dict[str, Callable[[str], str]] = {}


class Libraries:
    """Sends each library to the host once; later frames name it by its SHA-256."""

    def __init__(self) -> None:
        #: Sends a library to the host; set when the worker exists.
        self.send: Callable[[Dict[str, Any]], bool] | None = None
        self._known: Dict[str, str] = {}

    def named(self, title: str) -> str:
        """Return the SHA-256 of a library; makes and sends it the first time that this title is asked for."""
        if title not in self._known:
            kind, _, rest = title.partition(" ")
            data = MAKERS[kind](rest).encode("utf-8", "replace")
            name = hashlib.sha256(data).hexdigest()
            packed = base64.b64encode(gzip.compress(data, 6, mtime=0)).decode("ascii")
            if self.send is not None:
                self.send({LIBRARY: {"sha256": name, "title": title, "gzip": packed}})
            self._known[title] = name
        return self._known[title]


LIBRARIES = Libraries()


# MIME bundles as JSON can hold them: bytes become base64, as in Jupyter's messages, and unknown values text.

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

"""Splits the stream of a worker into messages and checks each.

The worker shares a process with the user's code, so its messages may be hostile. Size, shape, types, names and numbers
are checked; the first error raises a ``SessionError``, which ends the worker. Nothing in a message is ever executed,
unpickled or used as a path.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field

from sandbox_kernel.errors import SessionError
from sandbox_kernel.ground.wire import TooManyParts, parse_json
from sandbox_kernel.jail.gate_messages import host_names
from sandbox_kernel.model import CellError
from sandbox_kernel.session.tree.looks import MOST_SEEN
from sandbox_kernel.session.worker.messages import (
    HEADER,
    Answer,
    Began,
    Beside,
    CellDone,
    DisplayShown,
    FromWorker,
    Frozen,
    LateText,
    Looked,
    OutputCleared,
    Question,
    Ready,
    Restored,
)

#: The largest frame of a worker, in bytes.
MAX_FRAME = 16 << 20
#: Bounds within a frame.
MAX_TEXT = 64 << 10
MAX_LINES = 1000
#: The longest entry of a traceback that has many: together they are some megabytes, which are cleaned at once.
MAX_LINE = 8000
MAX_MIMES = 32
MAX_METADATA = 256 << 10
MAX_VARIABLES, MAX_VARIABLE_TEXT = MOST_SEEN, 100
#: The largest frame whose reply to a front end is read: cleaning it takes time that no limit of the cell counts.
MAX_REPLY = 4 << 20
#: The deepest nesting of a value: later code walks through it by recursion.
MAX_DEPTH = 100
_MIME = re.compile(r"[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}\Z")
_SURROGATE = re.compile("[\ud800-\udfff]")
_MAX_MARKED = 10_000
_IDENTIFIER = re.compile(r"[^\x00-\x1f]{1,200}\Z")


@dataclass
class Cutter:
    """Splits the stream of a worker into messages; buffers at most one unfinished frame."""

    _buffer: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes) -> list[FromWorker]:
        """Add data and return the messages that are complete; raises ``SessionError`` on a malformed one."""
        self._buffer += data
        found: list[FromWorker] = []
        while len(self._buffer) >= HEADER.size:
            (size,) = HEADER.unpack(self._buffer[: HEADER.size])
            if size > MAX_FRAME:
                raise SessionError(f"the worker sent a frame of {size} bytes; at most {MAX_FRAME} are accepted")
            if len(self._buffer) < HEADER.size + size:
                break
            raw = bytes(self._buffer[HEADER.size : HEADER.size + size])
            del self._buffer[: HEADER.size + size]
            found.append(parse(raw))
        return found


def parse(raw: bytes) -> FromWorker:
    """Parse and check one message of the worker."""
    try:
        # NaN and the infinities are not JSON, and a notebook may hold only JSON.
        message = parse_json(raw, parse_constant=lambda _: None)
    except TooManyParts as error:
        raise SessionError(f"the worker sent a frame that cannot be taken: {error}") from None
    except (ValueError, RecursionError):
        raise SessionError("the worker sent a frame that is not JSON") from None
    if not isinstance(message, dict):
        raise SessionError("the worker sent a frame that is not a JSON object")
    reader = _Reader(message, len(raw))
    match message.get("op"):
        case "ready":
            return Ready(reader.count("pid"), reader.count("names"))
        case "began":
            return Began(reader.count("id"))
        case "display":
            return reader.shown()
        case "clear":
            return OutputCleared(reader.count("id"), reader.count("question"), reader.flag("wait"))
        case "late":
            return reader.late()
        case "input":
            prompt = reader.text("prompt")
            return Question(reader.count("id"), reader.count("question"), prompt, reader.flag("password"))
        case "done":
            return reader.done()
        case "frozen":
            made = reader.count("cell"), reader.count("pid"), reader.count("threads")
            return Frozen(*made, reader.text("reason"), reader.beside())
        case "restored":
            numbers = [reader.count(key) for key in ("cell", "names", "threads")]
            return Restored(*numbers)
        case "look":
            return Looked(reader.count("cell"), reader.variables("found"))
        case "answer":
            return Answer(reader.count("id"), reader.table("answer"))
        case other:
            raise SessionError(f"the worker sent an unknown message: {str(other)[:60]!r}")


class _Reader:
    """Returns checked values of one message; raises ``SessionError`` for a field that is missing or wrong."""

    def __init__(self, message: dict[str, object], size: int) -> None:
        self._message = message
        self._size = size

    def _wrong(self, key: str) -> SessionError:
        op = str(self._message.get("op"))[:20]
        return SessionError(f"the worker sent a malformed {op!r} message: field {key!r} is not usable")

    def count(self, key: str) -> int:
        value = self._message.get(key)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 53:
            raise self._wrong(key)
        return value

    def beside(self) -> Beside:
        """Return what the checkpoint shares with all states; nothing when the worker does not count it."""
        if "beside" not in self._message:
            return Beside()
        counted = _Reader(self.table("beside"), self._size)
        return Beside(*(counted.count(key) for key in ("sockets", "databases", "children")))

    def flag(self, key: str) -> bool:
        value = self._message.get(key)
        if not isinstance(value, bool):
            raise self._wrong(key)
        return value

    def text(self, key: str) -> str:
        value = self._message.get(key)
        if not isinstance(value, str) or len(value) > MAX_TEXT:
            raise self._wrong(key)
        return clean_text(value)

    def table(self, key: str) -> dict[str, object]:
        try:
            value = clean(self._message.get(key))
        except _TooDeep:
            raise self._wrong(key) from None
        if not isinstance(value, dict):
            raise self._wrong(key)
        return value

    def variables(self, key: str) -> dict[str, tuple[str, str, str]]:
        """Return what the variables are; names and words that cannot be shown are left out."""
        found = self._message.get(key)
        if not isinstance(found, dict) or len(found) > MAX_VARIABLES:
            raise self._wrong(key)
        seen: dict[str, tuple[str, str, str]] = {}
        for name, parts in found.items():
            if not isinstance(parts, list) or len(parts) != 3 or not all(isinstance(part, str) for part in parts):
                raise self._wrong(key)
            if name.isidentifier() and len(name) <= MAX_VARIABLE_TEXT:
                kind, mark, text = ("".join(c for c in part[:MAX_VARIABLE_TEXT] if c.isprintable()) for part in parts)
                seen[name] = (kind, mark, text)
        return seen

    def hosts(self, key: str) -> tuple[str, ...]:
        """Return the first host names of a list, some with a port; what is not one is left out."""
        found = self._message.get(key, ())
        if not isinstance(found, list | tuple) or len(found) > MAX_LINES:
            raise self._wrong(key)
        return host_names(found)

    def shown(self) -> DisplayShown:
        kind = self._message.get("kind")
        if kind not in ("display", "result", "update"):
            raise self._wrong("kind")
        data, metadata = self.table("data"), self.table("metadata")
        if len(data) > MAX_MIMES or not all(_MIME.match(name) for name in data):
            raise self._wrong("data")
        if len(json.dumps(metadata)) > MAX_METADATA:
            metadata = {}
        name = self._message.get("display_id")
        if name is not None and (not isinstance(name, str) or not _IDENTIFIER.match(name)):
            raise self._wrong("display_id")
        identity = clean_text(name) if name is not None else None
        return DisplayShown(self.count("id"), self.count("question"), str(kind), data, metadata, identity, self._size)

    def late(self) -> LateText:
        name = self._message.get("name")
        if name not in ("stdout", "stderr"):
            raise self._wrong("name")
        return LateText(self.count("id"), str(name), self.text("text"))

    def done(self) -> CellDone:
        status = self._message.get("status")
        if status not in ("ok", "error", "interrupted"):
            raise self._wrong("status")
        code = self._message.get("exit_code")
        if code is not None and (isinstance(code, bool) or not isinstance(code, int) or not 0 <= code <= 255):
            raise self._wrong("exit_code")
        limit = self._message.get("limit")
        if limit not in (None, "memory", "processes", "disk", "open_files"):
            raise self._wrong("limit")
        return CellDone(
            id=self.count("id"),
            status=str(status),
            exit_code=code,
            error=self._error(),
            limit=str(limit) if limit is not None else None,
            unsaved=self._message.get("unsaved") is True,
            accelerator=self._message.get("accelerator") is True,
            tried=self.hosts("tried"),
            on_card=self._names("on_card"),
            reply=self.table("reply") if "reply" in self._message and self._size <= MAX_REPLY else {},
        )

    def _names(self, field: str) -> tuple[str, ...]:
        """Return a list of names of variables; what is no name is left out."""
        found = self._message.get(field)
        listed = found[:MAX_VARIABLES] if isinstance(found, list) else []
        return tuple(
            name for name in listed if isinstance(name, str) and len(name) <= MAX_VARIABLE_TEXT and name.isidentifier()
        )

    def _error(self) -> CellError | None:
        found = self._message.get("error")
        if found is None:
            return None
        if not isinstance(found, dict):
            raise self._wrong("error")
        inner = _Reader({"op": "error", **found}, self._size)
        lines = found.get("traceback")
        if not isinstance(lines, list) or len(lines) > MAX_LINES or not all(isinstance(line, str) for line in lines):
            raise self._wrong("traceback")
        return CellError(
            ename=inner.text("ename")[:200],
            evalue=inner.text("evalue"),
            traceback=tuple(clean_text(line[: MAX_TEXT if len(lines) <= 32 else MAX_LINE]) for line in lines),
        )


def clean_text(text: str) -> str:
    """Return text that can be encoded: each lone surrogate becomes U+FFFD.

    Replacing megabytes of them would take seconds, so those after the first 10,000 become question marks.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return _SURROGATE.sub("\ufffd", text, count=_MAX_MARKED).encode("utf-8", "replace").decode()
    return text


class _TooDeep(ValueError):
    """Raised when a value is nested deeper than ``MAX_DEPTH``."""


def clean(value: object, depth: int = 0) -> object:
    """Return a JSON value with all texts and keys cleaned; raises ``_TooDeep`` when it is nested too deep.

    A number too large for a float was parsed as infinity, which is not JSON: it becomes None.
    """
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list | dict) and depth >= MAX_DEPTH:
        raise _TooDeep
    if isinstance(value, list):
        return [clean(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {clean_text(key): clean(item, depth + 1) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value

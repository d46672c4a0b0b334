"""Parses the JSON of a guest's fetch request at a bounded cost.

``json.loads`` turns 16 MB of brackets into gigabytes of lists and blocks the whole process while it does. A request is
one object of strings with one object of headers in it. This parser accepts only that, so parsing costs no more than
copying the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from json.decoder import scanstring  # type: ignore[attr-defined]  # documented nowhere, and in every Python
from typing import TypeVar

from sandbox_kernel.errors import InvalidRequest

_SPACE = re.compile(r"[ \t\n\r]*")
_Value = TypeVar("_Value")

Text = str | None
Table = dict[str, str]


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def object(self, most: int, known: Collection[str] | None, value: Callable[[str], _Value]) -> dict[str, _Value]:
        """Read an object of at most ``most`` entries; ``value(key)`` reads the value of each key."""
        found: dict[str, _Value] = {}
        self.expect("{", "an object")
        if self.next() == "}":
            self._at += 1
            return found
        while True:
            key = self.string("a key")
            if known is not None and key not in known:
                raise InvalidRequest(f"the request has the unknown key {key[:50]!r}; known keys: {', '.join(known)}")
            if key in found or len(found) == most:
                raise InvalidRequest(
                    f"the request names {key[:50]!r} twice, or has more than {most} entries in a table"
                )
            self.expect(":", "a colon")
            found[key] = value(key)
            if self.next() == "}":
                self._at += 1
                return found
            self.expect(",", "a comma")

    def string(self, what: str) -> str:
        self.expect('"', what)
        try:
            found: tuple[str, int] = scanstring(self._text, self._at, True)
        except ValueError as error:
            raise InvalidRequest(f"the request is not JSON: {error}") from None
        self._at = found[1]
        return found[0]

    def null(self) -> bool:
        if not self._text.startswith("null", self._at):
            return False
        self._at += 4
        return True

    def next(self) -> str:
        """Skip white space and return the next character; an empty string at the end."""
        space = _SPACE.match(self._text, self._at)
        assert space is not None
        self._at = space.end()
        return self._text[self._at : self._at + 1]

    def expect(self, character: str, what: str) -> None:
        if self.next() != character:
            raise InvalidRequest(f"the request is not JSON of a request: {what} must stand at position {self._at}")
        self._at += 1

    def end(self) -> None:
        if self.next():
            raise InvalidRequest(f"the request is not JSON: something follows it at position {self._at}")


def read_request_json(data: bytes, texts: Collection[str], table: str, most: int) -> tuple[dict[str, Text], Table]:
    """Parse a request. Returns the values of the keys ``texts`` (string or null) and the object under ``table``.

    Raises ``InvalidRequest`` for any other content, a repeated key, or more than ``most`` entries in the table.
    """
    try:
        reader = _Reader(data.decode())
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"the request is not JSON: it is not UTF-8 ({error.reason})") from None
    entries: Table = {}

    def value(key: str) -> Text:
        reader.next()
        if reader.null():
            return None
        if key == table:
            entries.update(reader.object(most, None, lambda name: reader.string(f"text for header {name[:50]!r}")))
            return None
        return reader.string(f"text or null for {key!r}")

    found = reader.object(len(texts) + 1, (*texts, table), value)
    reader.end()
    found.pop(table, None)
    return found, entries

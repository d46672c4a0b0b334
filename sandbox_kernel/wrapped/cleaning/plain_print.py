"""Finds printed text that needs no cleaning in the bytes of a message: a hundred megabytes are not decoded for it.

What is found is what decoding, cleaning and encoding would give, byte for byte: text without our mark, and without
control characters besides ends of lines and tabs. Everything else is left to the cleaner. Pure functions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from sandbox_kernel.receipt import unmarked

#: How a printed text begins and ends in JSON.
_BEGIN = re.compile(rb'\{"name": ?"(stdout|stderr)", ?"text": ?"')
_END = b'"}'
#: Bytes that stand in a text as they are. C2 begins the control characters from U+0080 on.
_HARMLESS = bytes({*range(0x20, 0x7F), *range(0x80, 0x100)} - {*b'"\\', 0xC2})
#: A backslash that is not the first half of an end of a line, a tab or a quote. Without one, none is a second half.
_OTHER_ESCAPE = re.compile(rb'\\(?![ntr"])')


@dataclass(frozen=True)
class PrintedText:
    """The content of a message with printed text: the name of its stream, and where its text begins and ends."""

    name: str
    content: bytes
    begin: int
    end: int

    def pieces(self, size: int) -> Iterator[tuple[int, bytes]]:
        """Yield the text, as long as it is plain, in pieces of about this size: where each ends, and it as JSON."""
        at = self.begin
        while at < self.end:
            cut = self._cut(at, min(at + size, self.end))
            piece = bytes(memoryview(self.content)[at:cut])
            if not is_plain(piece):
                return
            at = cut
            yield at, self._encoded(piece)

    def rest(self, at: int) -> bytes:
        """Return the content as JSON without the text before this place."""
        return self._encoded(memoryview(self.content)[at : self.end])

    def _encoded(self, text: bytes | memoryview) -> bytes:
        return b"".join((b'{"name":"', self.name.encode(), b'","text":"', text, _END))

    def _cut(self, at: int, end: int) -> int:
        """Return the last place up to ``end`` that is not inside an escape or a character."""
        if end == self.end:
            return end
        cut = next((cut for cut in range(end, max(at, end - 4), -1) if self.content[cut] & 0xC0 != 0x80), end)
        return cut - 1 if self.content[cut - 1] == ord("\\") and cut - 1 > at else cut


def printed_text(content: bytes) -> PrintedText | None:
    """Return where the text is in the content of a message; None when it is not written as usual."""
    begin = _BEGIN.match(content)
    end = len(content) - len(_END)
    if begin is None or begin.end() > end or not content.endswith(_END):
        return None
    return PrintedText(begin[1].decode(), content, begin.end(), end)


def is_plain(text: bytes) -> bool:
    """Whether the inside of a JSON text needs no cleaning, and encodes as it is."""
    left = text.translate(None, _HARMLESS)
    quotes, backslashes = left.count(b'"'), left.count(b"\\")
    if quotes + backslashes != len(left):
        return False
    if (backslashes and _OTHER_ESCAPE.search(text)) or (quotes and text.count(b'\\"') != quotes):
        return False
    return text.isascii() or _is_clean_text(text)


def _is_clean_text(text: bytes) -> bool:
    try:
        shown = text.decode()
    except UnicodeDecodeError:
        return False
    return unmarked(shown) == shown

"""Terminal text with colours and nothing else.

Escape sequences can set a terminal's title, write its clipboard, draw links that lie and move the cursor over what
stands above. Of all of them only SGR (colours and weight, ``ESC [ … m``) is kept. A sequence that is split between two
chunks is held back until its end arrives; what never ends is dropped after ``_LONGEST`` characters, so that an
unfinished sequence cannot swallow the rest of the output.
"""

from __future__ import annotations

import re

_LONGEST = 4096
_STRING_BODY = rf"[^\x07\x18\x1a\x1b\x9c\n]{{0,{_LONGEST}}}"
_COLOUR = r"\x1b\[[0-9;:]{0,64}m"
#: Every escape sequence, and every escape without one, that is no colour; many in a row are one match.
_NOT_COLOURS = re.compile(
    rf"(?:(?!{_COLOUR})(?:"
    rf"\x1b[\]PX^_]{_STRING_BODY}(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b\[[0-?]{0,64}[ -/]{0,8}[@-~]?"
    r"|\x1b[ -/]{0,8}[0-~]?))+"
)
_PARTIAL = re.compile(rf"\x1b(?:\[[0-?]{{0,64}}[ -/]{{0,8}}|[\]PX^_]{_STRING_BODY}\x1b?|[ -/]{{0,8}})?\Z")
_ANY_CONTROL = re.compile(r"[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f]")


#: A stray control character stays visible and does nothing; newline, return, tab, backspace and escapes stay.
_VISIBLE: dict[int, int | None] = {
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\b\t\n\r\x1b"},
    **dict.fromkeys(range(0x7F, 0xA0), 0xFFFD),
    0x07: None,
}


def only_colours(text: str) -> str:
    """The text without any escape sequence but SGR; newline, return, tab and backspace stay."""
    if not _ANY_CONTROL.search(text):
        return text
    return _NOT_COLOURS.sub("", text).translate(_VISIBLE)


def plain(text: str) -> str:
    """The text without any escape sequence at all, for places that draw no colours."""
    return re.sub(r"\x1b\[[0-9;:]*m", "", only_colours(text))


class ColourFilter:
    """``only_colours`` for text that arrives in chunks; one for each stream of a cell."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        """Return what may be shown now; the beginning of an unfinished sequence waits for the next chunk."""
        text = self._held + text
        self._held = ""
        start = text.rfind("\x1b")
        if start > 0 and text[start:] == "\x1b":  # this may be the first half of the terminator of a longer sequence
            before = text.rfind("\x1b", 0, start)
            start = before if before >= 0 and _PARTIAL.match(text, before) else start
        if start >= 0 and _PARTIAL.match(text, start):
            self._held, text = text[start:], text[:start]
        return only_colours(text)

    def close(self) -> str:
        """The stream has ended: whatever was held back never became a sequence and is dropped."""
        held, self._held = self._held, ""
        return only_colours(held)

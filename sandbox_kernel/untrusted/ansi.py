"""Removes escape sequences other than colours from terminal text.

Escape sequences can set a terminal's title, write its clipboard, show misleading links and overwrite earlier lines.
Only SGR sequences (colours and weight, ``ESC [ … m``) are kept. A sequence that is split between two chunks is held
back until its end arrives. At most ``_LONGEST`` characters of an unfinished sequence are removed, so that it cannot
hide the rest of the output.
"""

from __future__ import annotations

import re

_LONGEST = 4096
_STRING_BODY = rf"[^\x07\x18\x1a\x1b\x9c\n]{{0,{_LONGEST}}}"
_COLOUR = r"\x1b\[[0-9;:]{0,64}m"
#: Every escape sequence that is not a colour, and every lone escape; many in a row are one match.
_NOT_COLOURS = re.compile(
    rf"(?:(?!{_COLOUR})(?:"
    rf"\x1b[\]PX^_]{_STRING_BODY}(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b\[[0-?]{0,64}[ -/]{0,8}[@-~]?"
    r"|\x1b[ -/]{0,8}[0-~]?))+"
)
_PARTIAL = re.compile(rf"\x1b(?:\[[0-?]{{0,64}}[ -/]{{0,8}}|[\]PX^_]{_STRING_BODY}\x1b?|[ -/]{{0,8}})?\Z")
_ANY_CONTROL = re.compile(r"[\x00-\x07\x0b\x0c\x0e-\x1f\x7f-\x9f]")
#: Bytes of UTF-8 that are no control character and no part of one; C2 begins the control characters from U+0080 on.
_HARMLESS = bytes({*b"\b\t\n\r", *range(0x20, 0x7F), *range(0x80, 0x100)} - {0xC2})

#: Replaces control characters by visible symbols. Newline, return, tab, backspace and escape are kept; BEL is removed.
_VISIBLE: dict[int, int | None] = {
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\b\t\n\r\x1b"},
    **dict.fromkeys(range(0x7F, 0xA0), 0xFFFD),
    0x07: None,
}


def only_colours(text: str) -> str:
    """Return the text without escape sequences other than SGR. Newline, return, tab and backspace are kept."""
    # Taking bytes out is six times as quick as searching for them, and most text has none.
    if not text.encode("utf-8", "surrogatepass").translate(None, _HARMLESS) or not _ANY_CONTROL.search(text):
        return text
    return _NOT_COLOURS.sub("", text).translate(_VISIBLE)


def plain(text: str) -> str:
    """Return the text without any escape sequences, for places that show no colours."""
    return re.sub(r"\x1b\[[0-9;:]*m", "", only_colours(text))


class ColourFilter:
    """Does the work of ``only_colours`` for text in chunks. Each stream of a cell needs its own filter."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        """Return the text that can be shown now. The start of an unfinished sequence waits for the next chunk."""
        text = self._held + text
        self._held = ""
        start = text.rfind("\x1b")
        if start > 0 and text[start:] == "\x1b":  # this may be the first half of the terminator of a longer sequence
            before = text.rfind("\x1b", 0, start)
            start = before if before >= 0 and _PARTIAL.match(text, before) else start
        if start >= 0 and _PARTIAL.match(text, start):
            self._held, text = text[start:], text[:start]
        return only_colours(text)

    @property
    def holds(self) -> bool:
        """Whether text is held back."""
        return bool(self._held)

    def close(self) -> str:
        """Return what is left of the text that was held back. Called at the end of the stream."""
        held, self._held = self._held, ""
        return only_colours(held)


_SGR = re.compile(r"\x1b\[([0-9;:]*)m")
#: What each code that ends something ends; codes from 30 on are colours of the text or of its ground.
_ENDS = {22: {1, 2, 21}, 23: {3, 20}, 24: {4, 21}, 25: {5, 6}, 27: {7}, 28: {8}, 29: {9}, 39: {38}, 49: {48}, 55: {53}}


class OpenColours:
    """Knows whether text leaves colours on at its end, so that they are ended before text of ours."""

    def __init__(self) -> None:
        self._on: set[int] = set()

    def __bool__(self) -> bool:
        """Whether a colour is on."""
        return bool(self._on)

    def read(self, text: str) -> None:
        """Follow the colours of more text."""
        for sequence in _SGR.findall(text):
            self._follow([int(number or 0) for number in sequence.replace(":", ";")[:64].split(";")])

    def _follow(self, numbers: list[int]) -> None:
        at = 0
        while at < len(numbers):
            code = numbers[at]
            at += 1
            if code == 0:
                self._on.clear()
            elif code in _ENDS:
                self._on -= _ENDS[code]
            elif code in (38, 48):  # followed by 5;COLOUR or 2;RED;GREEN;BLUE
                self._on.add(code)
                at += {5: 2, 2: 4}.get(numbers[at] if at < len(numbers) else 0, len(numbers))
            else:
                ground = 40 <= code <= 47 or 100 <= code <= 107
                self._on.add(38 if 30 <= code <= 37 or 90 <= code <= 97 else 48 if ground else code)

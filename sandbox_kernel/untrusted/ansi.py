"""Removes escape sequences other than colours from terminal text.

Escape sequences can set a terminal's title, write its clipboard, show misleading links and overwrite earlier lines.
Only SGR sequences (colours and weight, ``ESC [ … m``) are kept, written anew from the codes on a list: none hides text,
and none gives text the colour of its background. A page makes an element for each change of colour, so their number is
bounded. A sequence that is split between two chunks is held back until its end arrives. At most ``_LONGEST`` characters
of an unfinished sequence are removed, so that it cannot hide the rest of the output.
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


#: Most changes of colour in one output, or in one stream of a cell.
MAX_CHANGES = 10_000
#: Ends all colours.
END = "\x1b[0m"
_SGR = re.compile(r"\x1b\[([0-9;:]*)m")
_WITH_COLONS = re.compile(r"(?<![0-9:])[34]8:(?:5:[0-9]+|2::?[0-9]+:[0-9]+:[0-9]+)(?![0-9:])")
#: What each code that ends something ends; codes from 30 on are colours of the text or of its ground.
_ENDS = {22: {1, 2, 21}, 23: {3}, 24: {4, 21}, 25: {5, 6}, 27: {7}, 29: {9}, 39: {38}, 49: {48}, 55: {53}}
_STYLES = frozenset((1, 2, 3, 4, 5, 6, 7, 9, 21, 53))


def only_colours(text: str) -> str:
    """Return the text without escape sequences other than SGR. Newline, return, tab and backspace are kept."""
    # Taking bytes out is six times as quick as searching for them, and most text has none.
    if not text.encode("utf-8", "surrogatepass").translate(None, _HARMLESS) or not _ANY_CONTROL.search(text):
        return text
    return ColourFilter().whole(text)


def plain(text: str) -> str:
    """Return the text without any escape sequences, for places that show no colours."""
    return _SGR.sub("", only_colours(text))


def few_colours(lines: list[str]) -> list[str]:
    """Return lines of one output, without colours if these change too often in all lines together."""
    return lines if sum(line.count("\x1b") for line in lines) <= MAX_CHANGES else [*map(plain, lines)]


class ColourFilter:
    """Does the work of ``only_colours`` for text in chunks. Each stream of a cell needs its own filter.

    ``most`` bounds the changes of colour. The text behind the last one is shown without colours, and a remark says so.
    None is for a terminal: it draws any number, and its two streams share their colours.
    """

    def __init__(self, most: int | None = MAX_CHANGES) -> None:
        self._held = ""
        self._most = most
        self._changes = 0
        #: What is on: a style, or 38 and 48 with the colour of the text and of its ground.
        self._on: dict[int, tuple[int, ...]] = {}

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
        return self.whole(text)

    @property
    def holds(self) -> bool:
        """Whether text is held back."""
        return bool(self._held)

    @property
    def is_on(self) -> bool:
        """Whether the text so far leaves a colour on."""
        return bool(self._on)

    def close(self) -> str:
        """Return what is left of the text that was held back. Called at the end of the stream."""
        held, self._held = self._held, ""
        return self.whole(held)

    def end_colours(self) -> str:
        """Return the sequence that ends the colours that are on, so that they do not go on in text of ours."""
        was_on, self._on = self._on, {}
        return END if was_on else ""

    def whole(self, text: str) -> str:
        """Return the text; a sequence that it leaves unfinished is removed."""
        if not _ANY_CONTROL.search(text):
            return text
        return _SGR.sub(self._written, _NOT_COLOURS.sub("", text).translate(_VISIBLE))

    def _written(self, sequence: re.Match[str]) -> str:
        """Return a sequence written anew; empty where it changes nothing, and behind the last change."""
        if self._most is not None and self._changes > self._most:
            return ""
        before = dict(self._on)
        codes = _WITH_COLONS.sub(lambda colour: colour[0].replace("::", ":").replace(":", ";"), sequence[1][:64])
        # Of other codes with colons nothing is kept: a terminal reads 38:5;8 as a broken colour and "hidden".
        kept = self._follow([int(code or 0) for code in codes.split(";") if ":" not in code])
        if (ground := self._on.get(48)) is not None and self._on.get(38) == ground:
            del self._on[48]
            kept.append(49)
        if self._on == before and self._most is not None:
            return ""
        self._changes += 1
        if self._most is not None and self._changes > self._most:
            return f"{self.end_colours()}[… more than {self._most} changes of colour: the rest has none]"
        return f"\x1b[{';'.join(map(str, kept))}m" if kept else ""

    def _follow(self, codes: list[int]) -> list[int]:
        """Turn on and off what the codes say; returns those that are on the list."""
        kept: list[int] = []
        at = 0
        while at < len(codes):
            code, start = codes[at], at
            at += 1
            if code == 0:
                self._on.clear()
            elif code in _ENDS:
                for ended in _ENDS[code]:
                    self._on.pop(ended, None)
            elif code in _STYLES:
                self._on[code] = ()
            elif code in (38, 48, 58):  # followed by 5;COLOUR or 2;RED;GREEN;BLUE; 58 is the colour of underlines
                at += {5: 2, 2: 4}.get(codes[at] if at < len(codes) else 0, len(codes))
                if at > len(codes) or code == 58 or max(codes[start + 2 : at]) > 255:
                    continue
                self._on[code] = tuple(codes[start + 1 : at])
            elif code in (*range(30, 38), *range(40, 48), *range(90, 98), *range(100, 108)):
                bright, shade = divmod(code, 10) if code < 90 else (code // 10 - 6, code % 10 + 8)
                self._on[38 if bright == 3 else 48] = (5, shade)
            else:
                continue
            kept += codes[start:at]
        return kept

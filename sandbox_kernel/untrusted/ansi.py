"""Removes escape sequences other than colours from terminal text.

Escape sequences can set a terminal's title, write its clipboard, show misleading links and overwrite earlier lines.
Only SGR sequences (colours and weight, ``ESC [ … m``) of codes on a list are kept; none hides text, or gives it the
colour of its ground. A page makes an element for each, so their number is bounded. A sequence that is split between two
chunks is held back until its end arrives. At most ``_LONGEST`` characters of an unfinished sequence are removed, so
that it cannot hide the rest of the output. What plain text costs a page is bounded too (``_Layout``).
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache

_LONGEST = 4096
_STRING_BODY = rf"[^\x07\x18\x1a\x1b\x9c\n]{{0,{_LONGEST}}}"
#: Not on the list: 8, which hides text, and what terminals read differently, such as 38:5;8.
_N = "[0-9]{1,3}"
_CODE = (
    rf"(?:[34]8(?:;5;{_N}|;2;{_N};{_N};{_N}|:5:{_N}|:2::?{_N}:{_N}:{_N})"
    "|0?[0-79]|2[1-579]|[34][0-79]|5[35]|9[0-7]|10[0-7])?"
)
_COLOUR = rf"\x1b\[{_CODE}(?:;{_CODE}){{0,15}}m"
#: Most colour sequences in one output, or in one stream of a cell.
MAX_COLOURS = 10_000
#: Most marks and invisible characters in a row.
MAX_MARKS = 8
#: Most work with returns and backspaces of one stream: each costs the width of its line, and a little.
MAX_RETURNS, _RETURN = 20_000_000, 100
#: Most stretches of letters from right to left in one text: Chromium takes time for them that grows with their square.
MAX_TURNS = 5000
#: Most different letters beyond ASCII of one text: Chromium looks for a font for each that its own lack, in 1 ms.
MAX_LETTERS = 5000
#: Most lines of one output, or of one stream of a cell: Chromium lays out 300 000 in 8 s.
MAX_LINES = 100_000
#: How many characters are cleaned at once.
_PIECE = 1 << 16
#: Ends all colours.
END = "\x1b[0m"
_SEQUENCE = (
    rf"(?:\x1b[\]PX^_]{_STRING_BODY}(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b\[[0-?]{0,64}[ -/]{0,8}[@-~]?"
    r"|\x1b[ -/]{0,8}[0-~]?)"
)
#: Every escape sequence and every lone escape, and those that are no colour; many in a row are one match.
_ALL, _NOT_COLOURS = re.compile(f"{_SEQUENCE}+"), re.compile(rf"(?:(?!{_COLOUR}){_SEQUENCE})+")
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
    # Most values are shown as one line of plain letters.
    return text if text.isascii() and text.isprintable() else ColourFilter().whole(text)


def plain(text: str) -> str:
    """Return the text without any escape sequences, for places that show no colours."""
    return _SGR.sub("", only_colours(text))


def few_colours(lines: list[str]) -> list[str]:
    """Return lines of one output, without colours or letters from right to left if these are too many together."""
    if sum(map(turns, lines)) > MAX_TURNS:
        lines = [_FROM_RIGHT.sub("\ufffd", line) for line in lines]
    return lines if sum(line.count("\x1b") for line in lines) <= MAX_COLOURS else [*map(plain, lines)]


def turns(text: str) -> int:
    """Return how many stretches of a text are written from right to left, or are set so."""
    return 0 if text.isascii() else sum(1 for _ in _STRETCH.finditer(text))


class ColourFilter:
    """Does the work of ``only_colours`` for one stream, in chunks. It keeps ``most`` colours; None is for terminals."""

    def __init__(self, most: int | None = MAX_COLOURS) -> None:
        self._held = ""
        self._most = most
        self._layout = None if most is None else _Layout()
        self._seen = 0
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
        return self._clean(text)

    def close(self) -> str:
        """Return what is left of the text that was held back. Called at the end of the stream."""
        held, self._held = self._held, ""
        return self._clean(held)

    def end_colours(self) -> str:
        """Return the sequence that ends the colours that are on, so that they do not go on in text of ours."""
        was_on, self._on = self._on, {}
        return END if was_on else ""

    def whole(self, text: str) -> str:
        """Return the text; a sequence that it leaves unfinished is removed."""
        # In pieces: what was too much in one costs little in the next.
        pieces = [self.feed(text[at : at + _PIECE]) for at in range(0, len(text), _PIECE)]
        return "".join([*pieces, self.close()])

    def _clean(self, text: str) -> str:
        # Taking bytes out is six times as quick as searching for them, and most text has none.
        if not text.encode("utf-8", "surrogatepass").translate(None, _HARMLESS) or not _ANY_CONTROL.search(text):
            shown = text
        else:
            if "\x1b" in text:
                # No colour is on any more when there were too many.
                too_many = self._most is not None and self._seen > self._most
                text = _ALL.sub("", text) if too_many else _SGR.sub(self._counted, _NOT_COLOURS.sub("", text))
            shown = text.translate(_VISIBLE)
        return shown if self._layout is None else self._layout.bounded(shown)

    def _counted(self, sequence: re.Match[str]) -> str:
        self._seen += 1
        if self._most is not None and self._seen > self._most:
            remark = f"[… more than {self._most} colours: the rest has none]" if self._seen == self._most + 1 else ""
            return self.end_colours() + remark
        self._follow([int(number or 0) for number in sequence[1].replace("::", ":").replace(":", ";").split(";")])
        if 48 in self._on and self._on.get(38) == self._on[48]:
            del self._on[48]
            return f"{sequence[0]}\x1b[49m"
        return sequence[0]

    def _follow(self, numbers: list[int]) -> None:
        at = 0
        while at < len(numbers):
            code = numbers[at]
            at += 1
            if code == 0:
                self._on.clear()
            elif code in _ENDS:
                for ended in _ENDS[code]:
                    self._on.pop(ended, None)
            elif code in (38, 48):  # followed by 5;COLOUR or 2;RED;GREEN;BLUE
                length = 2 if numbers[at] == 5 else 4
                self._on[code] = tuple(numbers[at : at + length])
                at += length
            elif code >= 30 and code != 53:
                self._on[38 if code < 40 or 90 <= code < 100 else 48] = (5, code % 10 + 8 * (code >= 90))
            else:
                self._on[code] = ()


class _Layout:
    """Bounds what laying out the text of one stream costs a page, over all its chunks."""

    def __init__(self) -> None:
        self._marks = ""
        self._column = self._width = self._returns = self._turns = self._lines = 0
        self._letters: set[str] = set()

    def bounded(self, text: str) -> str:
        """Return the text without what is too much: marks in a row, letters, changes of direction, returns, lines."""
        letters = "" if text.isascii() else "".join(set(text))
        if self._marks or any(unicodedata.category(one) in _UNSEEN for one in letters):
            marks, too_many = _marks()
            text = too_many.sub(r"\1", self._marks + text)[len(self._marks) :]
            end = (self._marks + text)[-MAX_MARKS:]
            self._marks = next((end[at:] for at in range(len(end)) if marks.fullmatch(end, at)), "")
        if letters:
            text = self._known(text, letters)
        if _FROM_RIGHT.search(letters):
            text = _STRETCH.sub(self._turned, text)
        if self._returns > MAX_RETURNS:
            text = text.replace("\b", "").replace("\r", "\n")
        if "\r" in text or "\b" in text:
            text = "".join(map(self._part, re.split("([\r\n])", text)))
        else:
            last = text.rfind("\n") + 1
            self._column = len(text) - last + (0 if last else self._column)
            self._width = self._column if last else max(self._width, self._column)
        before, self._lines = self._lines, self._lines + text.count("\n")
        if self._lines <= MAX_LINES:
            return text
        if before > MAX_LINES:
            return ""
        kept = [f"{line}\n" for line in text.split("\n", MAX_LINES - before)[:-1]]
        return "".join(kept) + f"{END}[… more than {MAX_LINES} lines: the rest is not shown]\n"

    def _known(self, text: str, letters: str) -> str:
        new = {letter for letter in letters if letter > "\x7f"} - self._letters
        kept = sorted(new)[: MAX_LETTERS - len(self._letters)]
        self._letters.update(kept)
        return text if len(kept) == len(new) else text.translate(dict.fromkeys(map(ord, new - self._letters), "\ufffd"))

    def _turned(self, stretch: re.Match[str]) -> str:
        self._turns += 1
        if self._turns <= MAX_TURNS:
            return stretch[0]
        remark = f"[… the direction changes more than {MAX_TURNS} times: letters from right to left are left out]"
        return (remark if self._turns == MAX_TURNS + 1 else "") + _FROM_RIGHT.sub("\ufffd", stretch[0])

    def _part(self, text: str) -> str:
        """Return a new line, a return, or text between them."""
        backspaces = text.count("\b")
        if text not in ("\n", "\r"):
            most = max(*map(len, text.split("\b")), len(text) - 2 * backspaces)
            self._width = max(self._width, self._column + most)
            self._column = max(0, self._column + len(text) - 2 * backspaces)
        self._returns += (backspaces + (text == "\r")) * (self._width + _RETURN)
        if self._returns > MAX_RETURNS:
            text = text.replace("\b", "").replace("\r", "\n")
        if text in ("\n", "\r"):
            self._column, self._width = 0, 0 if text == "\n" else self._width
        return text


#: Categories of marks and invisible characters.
_UNSEEN = ("Mn", "Mc", "Me", "Cf")


@cache
def _marks() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return what finds a run of marks and invisible characters, and one with too many; takes 50 ms to make."""
    known = [chr(code) for code in (*range(0x80, 0x20000), *range(0xE0000, 0xE0200))]
    marks = sorted(one for one in known if unicodedata.category(one) in _UNSEEN)
    low, high = ("".join(one for one in marks if (one > "\uffff") == is_high) for is_high in (False, True))
    # One class of both would be searched slowly, and the high ones are many ranges.
    one = f"(?:[{low}]|(?=[\U00010000-\U0010ffff])[{high}])"
    return re.compile(f"{one}+"), re.compile(f"({one}{{{MAX_MARKS}}}){one}+")


#: Letters that are written from right to left, and what sets a direction.
_LETTERS = "\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff\U00010800-\U00010fff\U0001e800-\U0001efff"
_SETTERS = "\u200e\u200f\u202a-\u202e\u2066-\u2069"
_RIGHT = _LETTERS + _SETTERS
_FROM_RIGHT = re.compile(f"[{_RIGHT}]")
#: One or several words of them in a line: signs between them take their direction, letters and digits do not.
# What stands between two letters is none of them: else each match would eat the rest of the text and give it back.
_STRETCH = re.compile(rf"[{_SETTERS}]|[{_LETTERS}]++(?:[^\w\n{_RIGHT}]++[{_LETTERS}]++)*+")
_SGR = re.compile(r"\x1b\[([0-9;:]*)m")
#: What each code that ends something ends; codes from 30 on are colours of the text or of its ground.
_ENDS = {22: {1, 2, 21}, 23: {3}, 24: {4, 21}, 25: {5, 6}, 27: {7}, 29: {9}, 39: {38}, 49: {48}, 55: {53}}

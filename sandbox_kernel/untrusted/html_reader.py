"""Reads HTML in one pass, in time linear in its length, and writes its allowed tags anew in their plainest form.

``nh3``, a full HTML parser, decides what is shown. But it takes long for hostile input (0.3.7: 12 s for 90 000
attributes of one tag, 7 s for 40 000 nested elements, gigabytes for formatting elements that are left open before many
paragraphs). So it gets only what was counted here, and no tag that would be read otherwise than it was counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Set
from html import escape, unescape

from sandbox_kernel.untrusted import ContentRefused

#: Most tags, attributes and character references of one output, together.
MAX_PARTS = 40_000
MAX_ATTRIBUTES = 64
MAX_DEPTH = 128
#: Most formatting elements that a parser has to repeat: each that is open is opened again in every paragraph.
MAX_REPEATED = 200_000
#: Most words and tags between the cells of tables: a parser moves each of them before its table, past all others.
MAX_MOVED = 2000

_MARKUP = re.compile(r"<(?=[A-Za-z/!?])")
_NAME = re.compile(r"[A-Za-z][^\s/>]*+")
_ATTRIBUTE = re.compile(
    r"[\s/]*+(?P<name>=?[^\s/>=]*+)"
    r"(?:\s*+=\s*+(?:\"(?P<double>[^\"]*+)(?:\"|(?P<open>\Z))|'(?P<single>[^']*+)(?:'|(?P<open2>\Z))|(?P<bare>[^\s>]*+)))?+"
)
_COMMENT_END = re.compile(r"--!?>")
_HANDLER = re.compile(r"on[A-Za-z]+\Z")


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Elements whose content is not markup; only their own end tag ends it.
_RAW = _names("script style textarea title xmp iframe noembed noframes noscript plaintext")
_VOID = _names("br col hr img input source")
_FORMATTING = _names("a b code em i s small strong tt u")
#: Elements that end without an end tag, so that they nest only inside of others.
_ENDED = _names("p li dt dd")
_CELLS = _names("td th caption")
_TABLE_PARTS = _CELLS | _names("thead tbody tfoot tr colgroup col")
#: End tags of these also close the blocks inside; end tags of others do not reach across a block.
_BLOCKS = _names("blockquote center details div dl figcaption figure h1 h2 h3 h4 h5 h6 ol pre section summary table ul")


class HtmlReader:
    """Reads one markup.

    Args:
        allowed: The attributes that are kept of each allowed element; they are not checked here.
        gone: Elements that are left out with their content.
        see: Gets the name and the attributes of each start tag; may change these.

    """

    def __init__(
        self,
        allowed: Mapping[str, Set[str]],
        gone: Set[str],
        see: Callable[[str, dict[str, str]], None] = lambda name, attributes: None,
    ) -> None:
        self._allowed = allowed
        self._gone = gone
        self._see = see
        #: The names of elements that were left out, ``on`` for reactions to events, ``img`` for pictures elsewhere.
        self.removed: set[str] = set()
        #: The texts of style elements.
        self.sheets: list[str] = []
        self._written: list[str] = []
        self._markup = ""
        self._at = self._parts = 0
        self._skipped, self._skip_depth = "", 0
        #: The open elements with the number of tables and cells around each: their end tags do not reach across these.
        self._open: list[tuple[str, int]] = []
        #: The cell that is open in each open table; empty between cells.
        self._tables: list[str] = []
        self._formatting = self._repeated = self._moved = 0

    def read(self, markup: str) -> str:
        """Return the allowed tags and all texts. Raises ``ContentRefused`` when it has too much of something."""
        self._markup = markup
        self._count(markup.count("<") + markup.count("&"))
        while (found := _MARKUP.search(markup, self._at)) is not None:
            self._text(markup[self._at : found.start()])
            self._at = found.end()
            self._tag()
        self._text(markup[self._at :])
        return "".join(self._written)

    # -- tokens ------------------------------------------------------------------------------------------------------

    def _tag(self) -> None:
        is_end = self._markup[self._at] == "/"
        found = _NAME.match(self._markup, self._at + is_end)
        if found is None:
            self._skip_declaration()
            return
        self._at = found.end()
        attributes = self._attributes()
        if attributes is None:  # the text ends inside the tag; browsers drop such a tag
            self._at = len(self._markup)
            return
        name = found[0].lower()
        if any(map(_HANDLER.match, attributes)):
            self.removed.add("on")
        if not is_end:
            self._see(name, attributes)
        if self._skipped:
            self._skip_depth += (-1 if is_end else 1) if name == self._skipped else 0
            self._skipped = self._skipped if self._skip_depth else ""
        elif name not in self._allowed:
            self.removed.add(name[:30])
            if name in self._gone and name not in _RAW and not is_end:
                self._skipped, self._skip_depth = name, 1
        elif is_end:
            self._end(name)
        else:
            self._start(name, attributes)
        if name in _RAW and not is_end:
            self._skip_raw(name)

    def _attributes(self) -> dict[str, str] | None:
        found: dict[str, str] = {}
        for _ in range(MAX_ATTRIBUTES):
            match = _ATTRIBUTE.match(self._markup, self._at)
            assert match is not None  # the pattern also matches empty text
            self._at = match.end()
            if match["open"] is not None or match["open2"] is not None or self._at >= len(self._markup):
                return None
            if match["name"]:
                value = match["double"] or match["single"] or match["bare"] or ""
                found.setdefault(match["name"].lower(), _resolved(value))
                self._count(1)
            if self._markup[self._at] == ">":
                self._at += 1
                return found
        raise ContentRefused(f"one of its tags has more than {MAX_ATTRIBUTES} attributes")

    def _skip_declaration(self) -> None:
        markup, at = self._markup, self._at
        if markup.startswith("!--", at) and not markup.startswith((">", "->"), at + 3):  # "<!-->" is a whole comment
            end = _COMMENT_END.search(markup, at + 3)
            self._at = end.end() if end else len(markup)
        else:
            self._at = markup.find(">", at) + 1 or len(markup)

    def _skip_raw(self, name: str) -> None:
        end = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(self._markup, self._at)
        if name == "style":
            self.sheets.append(self._markup[self._at : end.start() if end else None])
        if end is None or name == "plaintext":
            self._at = len(self._markup)
            return
        self._at = end.end()
        if self._attributes() is None:
            self._at = len(self._markup)

    def _count(self, parts: int) -> None:
        self._parts += parts
        if self._parts > MAX_PARTS:
            raise ContentRefused(f"it has more than {MAX_PARTS} tags, attributes and character references")

    # -- elements ----------------------------------------------------------------------------------------------------

    def _text(self, text: str) -> None:
        if text and not self._skipped:
            self._place(is_space=not text.strip(" \t\n\r\f"))
            self._written.append(escape(_resolved(text), quote=False))

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == "table":
            if self._tables and not self._tables[-1]:  # between cells, it ends the open table
                self._close_all(len(self._tables))
            else:
                self._tables.append("")
            self._tables[-1] = ""
        elif name in _TABLE_PARTS:
            if not self._tables:
                return
            self._close_all(len(self._tables))
            self._tables[-1] = name if name in _CELLS else ""
        else:
            self._place()
        if name not in _VOID and name not in _ENDED and name not in _TABLE_PARTS and name != "table":
            self._open.append((name, self._scope()))
            self._formatting += name in _FORMATTING
            if len(self._open) + len(self._tables) > MAX_DEPTH:
                raise ContentRefused(f"it is nested deeper than {MAX_DEPTH} elements")
        kept = self._allowed[name]
        pairs = "".join(f' {key}="{escape(value)}"' for key, value in attributes.items() if key in kept)
        self._written.append(f"<{name}{pairs}>")

    def _end(self, name: str) -> None:
        """Write an end tag unless a parser would not let it close an element that was counted."""
        if name == "table" and self._tables:
            self._close_all(len(self._tables))
            self._tables.pop()
        elif name in _TABLE_PARTS and self._tables and self._ends_cell(name):
            self._close_all(len(self._tables))
            self._tables[-1] = ""
        elif name in _ENDED:
            self._place()  # without a start tag, </p> is a paragraph
        elif name == "table" or name in _TABLE_PARTS or not self._close(name):
            return
        self._written.append(f"</{name}>")

    def _ends_cell(self, name: str) -> bool:
        cell = self._tables[-1]
        return name == cell if name in _CELLS else cell != "caption"

    def _scope(self) -> int:
        return len(self._tables) - (self._tables[-1:] == [""])

    def _place(self, *, is_space: bool = False) -> None:
        """Count what a parser has to do for text or an element at this place."""
        self._repeated += self._formatting
        self._moved += self._tables[-1:] == [""] and not is_space
        if self._repeated > MAX_REPEATED:
            raise ContentRefused("many of its formatting elements have no end")
        if self._moved > MAX_MOVED:
            raise ContentRefused(f"it has more than {MAX_MOVED} words between the cells of its tables")

    def _close_all(self, scope: int) -> None:
        """Forget all elements of a cell."""
        while self._open and self._open[-1][1] >= scope:
            self._formatting -= self._open.pop()[0] in _FORMATTING

    def _close(self, name: str) -> bool:
        """Close the nearest open element of this name, with those inside; False if a parser would not find it."""
        scope = self._scope()
        for at in range(len(self._open) - 1, -1, -1):
            found, level = self._open[at]
            if level < scope:
                return False
            if found == name:
                inside = self._open[at + 1 :]
                # A parser opens formatting elements again that were closed by another end tag.
                self._open[at:] = inside if name in _FORMATTING else [each for each in inside if each[0] in _FORMATTING]
                self._formatting -= name in _FORMATTING
                return True
            if found in _BLOCKS and name not in _BLOCKS and name not in _FORMATTING:
                return False
        return False


def _resolved(text: str) -> str:
    """Return text with the characters that its references stand for, without NUL."""
    if "&" in text:
        try:
            text = unescape(text)
        except ValueError:  # a number of thousands of digits
            raise ContentRefused("one of its character references is too long") from None
    return text.replace("\0", "")

"""Reads HTML in one pass, in time linear in its length, and writes its allowed tags anew, with all end tags.

``nh3``, a full HTML parser, decides what is shown. But it takes long for hostile input (0.3.7: 12 s for 90 000
attributes of one tag, 7 s for 40 000 nested elements, gigabytes for formatting elements that are left open before many
paragraphs). So it gets only what was counted here, and no tag that would be read otherwise than it was counted. Tags
close where a browser closes them, but formatting ends with the block that it began in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from html import escape, unescape

from sandbox_kernel.untrusted import ContentRefused
from sandbox_kernel.untrusted.css import names

#: Most tags, attributes and character references of one output, together.
MAX_PARTS = 40_000
MAX_ATTRIBUTES = 64
MAX_DEPTH = 128
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


#: Elements whose content is not markup; only their own end tag ends it.
_RAW = names("script style textarea title xmp iframe noembed noframes noscript plaintext")
_VOID = names("br col hr img")
_HEADINGS = names("h1 h2 h3 h4 h5 h6")
_LISTS = names("ol ul")
_BLOCKS = _HEADINGS | _LISTS | names("blockquote center details dl figcaption figure pre section summary table")
_ITEMS = names("li dt dd")
#: A start tag of these ends an open paragraph.
_ENDS_PARAGRAPH = _BLOCKS | _ITEMS | names("div hr p")
#: What a start tag ends besides: the nearest of these, unless one of those stands between.
_ENDS = {
    "li": (names("li"), _BLOCKS | names("dt dd")),
    "dt": (names("dt dd"), _BLOCKS | names("li")),
    "dd": (names("dt dd"), _BLOCKS | names("li")),
    "a": (names("a"), names("")),
}
_CELLS = names("td th caption")
_SECTIONS = names("thead tbody tfoot")
#: What the parts of tables stand in.
_PARENTS = {
    **dict.fromkeys(("td", "th"), _SECTIONS | names("tr table")),
    "tr": _SECTIONS | names("table"),
    "col": names("colgroup table"),
    **dict.fromkeys(("caption", "colgroup", *_SECTIONS), names("table")),
}
_BETWEEN_CELLS = _SECTIONS | names("table tr colgroup")
_TABLE, _PARAGRAPH, _NOTHING = names("table"), names("p"), names("")
_SCOPE = _CELLS | _TABLE
_ENDS_ITEM = _SCOPE | _LISTS


class HtmlReader:
    """Reads one markup: keeps the attributes of the ``allowed`` elements; those that are ``gone`` go with content."""

    def __init__(self, allowed: Mapping[str, Set[str]], gone: Set[str]) -> None:
        self._allowed = allowed
        self._gone = gone
        #: The names of elements that were left out, ``on`` for reactions to events, ``img`` for pictures elsewhere.
        self.removed: set[str] = set()
        self._written: list[str] = []
        self._markup = ""
        self._at = self._parts = self._moved = 0
        self._skipped, self._skip_depth = "", 0
        #: The open elements.
        self._open: list[str] = []

    def read(self, markup: str) -> str:
        """Return the allowed tags and all texts. Raises ``ContentRefused`` when it has too much of something."""
        self._markup = markup
        self._count(markup.count("<") + markup.count("&"))
        while (found := _MARKUP.search(markup, self._at)) is not None:
            self._text(markup[self._at : found.start()])
            self._at = found.end()
            self._tag()
        self._text(markup[self._at :])
        self._close(0)
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
        if attributes and any(map(_HANDLER.match, attributes)):
            self.removed.add("on")
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
            end = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(self._markup, self._at)
            self._at = len(self._markup) if end is None or name == "plaintext" else end.end()
            if self._attributes() is None:
                self._at = len(self._markup)

    def _attributes(self) -> dict[str, str] | None:
        found: dict[str, str] = {}
        if self._markup.startswith(">", self._at):  # as most tags, and half as much work
            self._at += 1
            return found
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

    def _count(self, parts: int) -> None:
        self._parts += parts
        if self._parts > MAX_PARTS:
            raise ContentRefused(f"it has more than {MAX_PARTS} tags, attributes and character references")

    # -- elements ----------------------------------------------------------------------------------------------------

    def _text(self, text: str) -> None:
        if text and not self._skipped:
            if text.strip(" \t\n\r\f"):
                self._note_moved()
            self._written.append(escape(_resolved(text), quote=False))

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        parents = _PARENTS.get(name)
        if parents is not None:
            if "table" not in self._open:
                return
            while self._open[-1] not in parents:
                self._close(len(self._open) - 1)
        elif name == "table" and self._open and self._open[-1] in _BETWEEN_CELLS:
            self._close_nearest(_TABLE, _NOTHING)  # there, it ends the open table
        else:
            self._note_moved()
            if name in _HEADINGS and self._open and self._open[-1] in _HEADINGS:
                self._close(len(self._open) - 1)
            if name in _ENDS:
                self._close_nearest(_ENDS[name][0], _SCOPE | _ENDS[name][1])
            if name in _ENDS_PARAGRAPH:
                self._close_nearest(_PARAGRAPH, _SCOPE)
        pairs = ""
        if attributes:
            kept = self._allowed[name]
            pairs = "".join(f' {key}="{escape(value)}"' for key, value in attributes.items() if key in kept)
        self._written.append(f"<{name}{pairs}>")
        if name not in _VOID:
            self._open.append(name)
            if len(self._open) > MAX_DEPTH:
                raise ContentRefused(f"it is nested deeper than {MAX_DEPTH} elements")

    def _end(self, name: str) -> None:
        is_of_table = name == "table" or name in _PARENTS
        stops = _TABLE if is_of_table else _ENDS_ITEM if name == "li" else _SCOPE
        self._close_nearest({name}, stops)

    def _note_moved(self) -> None:
        """Count what a parser moves because it stands between the cells of a table."""
        self._moved += bool(self._open) and self._open[-1] in _BETWEEN_CELLS
        if self._moved > MAX_MOVED:
            raise ContentRefused(f"it has more than {MAX_MOVED} words between the cells of its tables")

    def _close_nearest(self, names: Set[str], stops: Set[str]) -> None:
        """Close the nearest open element of these names, unless one of ``stops`` stands between."""
        for at in range(len(self._open) - 1, -1, -1):
            if self._open[at] in names:
                self._close(at)
                return
            if self._open[at] in stops:
                return

    def _close(self, at: int) -> None:
        self._written += [f"</{name}>" for name in reversed(self._open[at:])]
        del self._open[at:]


def _resolved(text: str) -> str:
    """Return text with the characters that its references stand for, without NUL."""
    if "&" in text:
        try:
            text = unescape(text)
        except ValueError:  # a number of thousands of digits
            raise ContentRefused("one of its character references is too long") from None
    return text.replace("\0", "")

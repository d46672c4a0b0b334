"""Splits HTML into tags and texts, in one pass that takes time linear in the input.

This is the first half of an HTML parser (the WHATWG tokenizer); ``html_tree`` is the second. We have our own because
available parsers can take quadratic time (nh3 0.3.7: 12 s for 90 000 attributes of one tag, 24 s for 60 000 words in a
table outside of its cells). This one counts tags and attributes, and refuses input with too many.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from html.entities import html5
from typing import NamedTuple

from sandbox_kernel.untrusted import ContentRefused

#: Most tags, attributes and character references of one output, together.
MAX_PARTS = 40_000
MAX_ATTRIBUTES = 64

_REFERENCE = re.compile(r"&(?:#[0-9]{1,9};?|#[xX][0-9a-fA-F]{1,8};?|[A-Za-z][A-Za-z0-9]{1,31};?)")
#: The longest name of a character that may stand without a semicolon, and with other letters behind it.
_LONGEST_OPEN_NAME = 6

_MARKUP = re.compile(r"<(?=[A-Za-z/!?])")
_PLAIN_TAG = re.compile(r"(/?)([A-Za-z][A-Za-z0-9]*+)>")
_NAME = re.compile(r"[A-Za-z][^\s/>]*+")
_ATTRIBUTE = re.compile(
    r"[\s/]*+(?P<name>=?[^\s/>=]*+)"
    r"(?:\s*+=\s*+(?:\"(?P<double>[^\"]*+)(?:\"|(?P<open>\Z))|'(?P<single>[^']*+)(?:'|(?P<open2>\Z))|(?P<bare>[^\s>]*+)))?+"
)
_COMMENT_END = re.compile(r"--!?>")
#: Elements whose content is not markup; only their own end tag ends it.
_RAW_NAMES = "script style textarea title xmp iframe noembed noframes noscript plaintext"
_RAW = frozenset(_RAW_NAMES.split())


class Start(NamedTuple):
    """A start tag. Names are lower case, character references are resolved, the first of equal attributes counts."""

    name: str
    attributes: dict[str, str]


class End(NamedTuple):
    """An end tag."""

    name: str


#: A tag, or text between tags with its character references resolved.
Token = Start | End | str


def tokens(markup: str, sheets: list[str] | None = None) -> Iterator[Token]:
    """Yield the tokens of HTML, without comments, declarations and the content of scripts and styles.

    Args:
        markup: the HTML.
        sheets: gets the content of each style element, in order.

    """
    return _Tokenizer(markup, sheets).run()


class _Tokenizer:
    def __init__(self, markup: str, sheets: list[str] | None) -> None:
        self._markup = markup
        self._sheets = sheets
        self._parts = 0
        self._at = 0

    def run(self) -> Iterator[Token]:
        markup = self._markup
        self._count(markup.count("<") + markup.count("&"))
        while (found := _MARKUP.search(markup, self._at)) is not None:
            if found.start() > self._at:
                yield self._text(markup[self._at : found.start()])
            self._at = found.end()
            plain = _PLAIN_TAG.match(markup, self._at)
            if plain is not None:  # a shortcut for tags without attributes; the rest of the loop does the same
                self._at = plain.end()
                name = plain[2].lower()
                yield End(name) if plain[1] else Start(name, {})
                if not plain[1] and name in _RAW:
                    yield from self._skip_raw(name)
                continue
            token = self._tag()
            if token is None:
                continue
            yield token
            if isinstance(token, Start) and token.name in _RAW:
                yield from self._skip_raw(token.name)
        if self._at < len(markup):
            yield self._text(markup[self._at :])

    def _tag(self) -> Token | None:
        """Return the tag that starts here; None for a comment, a declaration or "</" without a name."""
        is_end = self._markup[self._at] == "/"
        name = _NAME.match(self._markup, self._at + is_end)
        if name is None:
            self._skip_declaration()
            return None
        self._at = name.end()
        attributes = self._attributes()
        if attributes is None:  # the text ends inside the tag; browsers drop such a tag
            self._at = len(self._markup)
            return None
        return End(name[0].lower()) if is_end else Start(name[0].lower(), attributes)

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
                found.setdefault(match["name"].lower(), self._text(value))
                self._count(1)
            if self._markup[self._at] == ">":
                self._at += 1
                return found
        raise ContentRefused(f"one of its tags has more than {MAX_ATTRIBUTES} attributes")

    def _skip_declaration(self) -> None:
        markup, at = self._markup, self._at
        if markup.startswith("!--", at):
            if markup.startswith((">", "->"), at + 3):  # "<!-->" is a whole comment
                self._at = markup.index(">", at) + 1
                return
            end = _COMMENT_END.search(markup, at + 3)
            self._at = end.end() if end else len(markup)
            return
        end_at = markup.find(">", at)
        self._at = end_at + 1 if end_at >= 0 else len(markup)

    def _skip_raw(self, name: str) -> Iterator[Token]:
        end = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(self._markup, self._at)
        if name == "style" and self._sheets is not None:
            self._sheets.append(self._markup[self._at : end.start() if end else None])
        if end is None or name == "plaintext":
            self._at = len(self._markup)
            return
        self._at = end.end()
        if self._attributes() is None:
            self._at = len(self._markup)
        yield End(name)

    def _text(self, text: str) -> str:
        return (_REFERENCE.sub(_character, text) if "&" in text else text).replace("\0", "")

    def _count(self, parts: int) -> None:
        self._parts += parts
        if self._parts > MAX_PARTS:
            raise ContentRefused(f"it has more than {MAX_PARTS} tags, attributes and character references")


def _character(found: re.Match[str]) -> str:
    """Return the character that a reference stands for, or the reference itself if it stands for none.

    ``html.unescape`` does the same, but tries every prefix of an unknown name: a third of a second for 1 MB.
    """
    text = found[0]
    if text[1] == "#":
        return unescape(text)
    name = text[1:]
    if name in html5:
        return html5[name]
    for length in range(min(len(name), _LONGEST_OPEN_NAME), 1, -1):
        if name[:length] in html5:
            return html5[name[:length]] + name[length:]
    return text

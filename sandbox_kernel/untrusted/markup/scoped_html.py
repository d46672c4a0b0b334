"""Cleans HTML that needs styles or sound but no scripts, such as tables of pandas' Styler, for the page itself.

The markup is cleaned as in ``html``, with a few more elements: sound and video from ``data:`` URLs (``media``), and
checkboxes with labels, which sheets use to unfold things. Its style sheets are scoped (``styles``). Classes and ids get
the prefix of the output, as in the sheets, so none of the page's own are used. Either all of the markup is kept, or it
is ``NotScoped``, and its place is a frame.
"""

from __future__ import annotations

import re
from base64 import b32encode
from collections.abc import Iterator
from hashlib import sha256

from sandbox_kernel.untrusted import ContentRefused
from sandbox_kernel.untrusted.markup.html import (
    ATTRIBUTES,
    GONE_WITH_CONTENT,
    MAX_HTML,
    TAGS,
    HtmlReader,
    parsed_again,
)
from sandbox_kernel.untrusted.markup.html_tokens import Start, Token, tokens
from sandbox_kernel.untrusted.markup.styles import NotScoped
from sandbox_kernel.untrusted.markup.styles.selectors import NAME
from sandbox_kernel.untrusted.markup.styles.sheet import scoped_sheet
from sandbox_kernel.untrusted.markup.table_style import TABLE_STYLE
from sandbox_kernel.untrusted.markup.tex import may_be_typeset
from sandbox_kernel.untrusted.media import MAX_MEDIA_BYTES, check_media_url
from sandbox_kernel.untrusted.taken_out import in_words, is_worth_a_word

_MORE_TAGS = frozenset(("label", "input", "audio", "video", "source"))
_TAGS = TAGS | _MORE_TAGS
_GONE = GONE_WITH_CONTENT - _MORE_TAGS
_PLAYER = {"controls", "autoplay", "loop", "muted", "preload", "src", "width", "height"}
_ATTRIBUTES = {
    **ATTRIBUTES,
    "*": ATTRIBUTES["*"] | {"class", "id", "hidden"},
    "label": {"for"},
    "input": {"type", "checked"},
    "audio": _PLAYER,
    "video": _PLAYER,
    "source": {"src", "type"},
}
_KEPT = {tag: _ATTRIBUTES["*"] | _ATTRIBUTES.get(tag, set()) for tag in _TAGS}
#: Sound and video are put aside while the markup is read: parsers take long for megabytes of base64.
_MEDIA = re.compile(r"\ssrc=(?:\"(data:(?:audio|video)/[^\"<>]*+)\"|'(data:(?:audio|video)/[^'<>]*+)')")
_ASIDE = re.compile(r' src="data:,([0-9]{1,4})"')
_STYLE_ATTRIBUTES = frozenset(("type", "scoped", "id"))
#: Removed without a frame: such a sound plays when the user wants it.
_AUTOPLAY = "autoplay"
_MOST_CLASSES = 32


def scoped_html(markup: str) -> tuple[str, tuple[str, ...]]:
    """Return clean HTML with scoped styles, and a description of what was removed.

    Raises:
        NotScoped: some of it would be lost, or cannot be scoped.
        ContentRefused: it is too large.

    """
    media: list[str] = []

    def aside(match: re.Match[str]) -> str:
        media.append(match[1] or match[2])
        return f' src="data:,{len(media) - 1}"'

    markup = TABLE_STYLE.sub("", _MEDIA.sub(aside, markup))
    if len(markup) > MAX_HTML or sum(map(len, media)) > MAX_MEDIA_BYTES * 3 // 2:
        raise ContentRefused(f"it is larger than {MAX_HTML >> 20} MB")
    name = _name(markup)
    reader = _ScopedReader(name, media, typeset=may_be_typeset(markup))
    written = reader.read(markup)
    if reader.typeset and not may_be_typeset(written):
        raise NotScoped("too many formulas")
    lost = {tag for tag in reader.tags - {"style", _AUTOPLAY} if is_worth_a_word(tag)}
    if lost or reader.handlers:
        raise NotScoped(f"it would lose {', '.join(sorted(lost | reader.handlers))}")
    sheet = scoped_sheet("\n".join(reader.sheets), name, markup.count("<")) if reader.sheets else ""
    cleaned = parsed_again(written, _TAGS, _GONE, {tag: set(names) for tag, names in _ATTRIBUTES.items()})
    cleaned = _ASIDE.sub(reader.put_back, cleaned)
    words = in_words(reader.tags & {_AUTOPLAY}, (), reader.pictures)
    if not sheet:
        return cleaned, words
    return f'<div class="{name}"><style>{sheet}</style>{cleaned}</div>', words


def _name(markup: str) -> str:
    """Return a class that no other output has, the same at every run. It stands before each name, so it is short."""
    digest = sha256(markup.encode("utf-8", "replace")).digest()
    return f"sk{b32encode(digest).decode().lower()[:12]}"


class _ScopedReader(HtmlReader):
    """Reads markup with style sheets, which it collects in ``sheets``."""

    allowed = _TAGS
    gone = _GONE
    kept = _KEPT

    def __init__(self, name: str, media: list[str], *, typeset: bool) -> None:
        super().__init__(typeset=typeset)
        self.sheets: list[str] = []
        #: The checked URLs of sound and video, by their number in ``media``.
        self.checked: dict[int, str] = {}
        self._name = name
        self._media = media

    def split(self, markup: str) -> Iterator[Token]:
        for token in tokens(markup, self.sheets):
            if isinstance(token, Start):
                self._note_losses(token)
            yield token

    def _note_losses(self, token: Start) -> None:
        """Note the elements that are allowed but would lose something here."""
        found = token.attributes
        if token.name == "style" and not set(found) <= _STYLE_ATTRIBUTES:
            self.tags.add("style with conditions")
        elif token.name == "input" and found.get("type", "").lower() != "checkbox":
            self.tags.add("input")
        elif token.name in ("audio", "video"):
            if "controls" not in found:
                self.tags.add(token.name)
            if _AUTOPLAY in found and token.name == "audio":
                self.tags.add(_AUTOPLAY)
                del found[_AUTOPLAY]
            elif _AUTOPLAY in found:
                found["muted"] = ""

    def attribute(self, tag: str, name: str, value: str) -> str | None:
        if name in ("id", "for"):
            return f"{self._name}-{value}" if NAME.match(value) else None
        if name == "class":
            return self._classes(tag, value)
        if name == "src" and tag != "img":
            return self._source(value)
        if name == "type" and tag == "source":
            return value if re.fullmatch(r"(?:audio|video)/[a-z0-9.+-]{1,20}", value) else None
        return super().attribute(tag, name, value)

    def put_back(self, match: re.Match[str]) -> str:
        """Return the attribute for one that was put aside."""
        url = self.checked.get(int(match[1]))
        return match[0] if url is None else f' src="{url}"'

    def _source(self, value: str) -> str | None:
        number = re.fullmatch(r"data:,([0-9]{1,4})", value)
        index = int(number[1]) if number else len(self._media)
        url = check_media_url(self._media[index]) if index < len(self._media) else None
        if url is None:
            self.tags.add("video")
            return None
        self.checked[index] = url
        return value

    def _classes(self, tag: str, value: str) -> str | None:
        names = [f"{self._name}-{part}" for part in value.split()[:_MOST_CLASSES] if NAME.match(part)]
        if tag == "table" and "dataframe" in value.split():
            names.append("dataframe")
        return " ".join(names) or None

"""Cleans HTML that needs styles or sound but no scripts, such as tables of pandas' Styler, for the page itself.

The markup is cleaned as in ``html``, with a few more elements: sound and video from ``data:`` URLs (``media``), and
checkboxes with labels, which sheets use to unfold things. Its style sheets are scoped (``styles``). Classes and ids get
the prefix of the output, as in the sheets, so none of the page's own are used. Either all of the markup is kept, or it
is ``NotScoped``, and its place is a frame.
"""

from __future__ import annotations

import re
from base64 import b32encode
from hashlib import sha256

from sandbox_kernel.untrusted import ContentRefused
from sandbox_kernel.untrusted.css import TABLE_STYLE
from sandbox_kernel.untrusted.html import (
    ATTRIBUTES,
    GONE_WITH_CONTENT,
    MAX_HTML,
    QUIET,
    TAGS,
    HtmlCleaner,
    clean_attribute,
    in_words,
)
from sandbox_kernel.untrusted.media import MAX_MEDIA_BYTES, check_data_url
from sandbox_kernel.untrusted.style_sheet import NAME, NotScoped, scoped_sheet

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
    return _ScopedHtml().clean(markup)


class _ScopedHtml:
    """Cleans one markup."""

    def __init__(self) -> None:
        self._cleaner = HtmlCleaner(_TAGS, _GONE, _ATTRIBUTES, self._attribute, self._see)
        self._lost = self._cleaner.removed
        #: The prefix of classes and ids.
        self._name = ""
        #: Sound and video that were put aside, and their checked URLs by number.
        self._media: list[str] = []
        self._checked: dict[int, str] = {}

    def clean(self, markup: str) -> tuple[str, tuple[str, ...]]:
        markup = TABLE_STYLE.sub("", _MEDIA.sub(self._put_aside, markup))
        if sum(map(len, self._media)) > MAX_MEDIA_BYTES * 3 // 2:
            raise ContentRefused(f"it is larger than {MAX_HTML >> 20} MB")
        # A class that no other output has, the same at every run. It stands before each name, so it is short.
        digest = sha256(markup.encode("utf-8", "replace")).digest()
        self._name = f"sk{b32encode(digest).decode().lower()[:12]}"
        cleaned = self._cleaner.clean(markup)
        if lost := self._lost - QUIET - {"style", "img", _AUTOPLAY}:
            raise NotScoped(f"it would lose {', '.join(sorted(lost))}")
        sheet = scoped_sheet("\n".join(self._cleaner.sheets), self._name, markup.count("<"))
        cleaned = _ASIDE.sub(self._put_back, cleaned)
        words = in_words(self._lost & {"img", _AUTOPLAY})
        return (f'<div class="{self._name}"><style>{sheet}</style>{cleaned}</div>' if sheet else cleaned), words

    def _put_aside(self, match: re.Match[str]) -> str:
        self._media.append(match[1] or match[2])
        return f' src="data:,{len(self._media) - 1}"'

    def _put_back(self, match: re.Match[str]) -> str:
        url = self._checked.get(int(match[1]))
        return match[0] if url is None else f' src="{url}"'

    def _see(self, tag: str, attributes: dict[str, str]) -> None:
        """Note the elements that are allowed but would lose something here."""
        if tag == "style" and not set(attributes) <= _STYLE_ATTRIBUTES:
            self._lost.add("style with conditions")
        elif tag == "input" and attributes.get("type", "").lower() != "checkbox":
            self._lost.add("input")
        elif tag in ("audio", "video"):
            if "controls" not in attributes:
                self._lost.add(tag)
            if _AUTOPLAY in attributes and tag == "audio":
                self._lost.add(_AUTOPLAY)
                del attributes[_AUTOPLAY]
            elif _AUTOPLAY in attributes:
                attributes["muted"] = ""
        if tag in ("audio", "video", "source") and "src" in attributes and not self._is_media(attributes["src"]):
            self._lost.add("video")

    def _attribute(self, tag: str, name: str, value: str) -> str | None:
        if name in ("id", "for"):
            return f"{self._name}-{value}" if NAME.match(value) else None
        if name == "class":
            return self._classes(tag, value)
        if name == "src" and tag != "img":
            return value  # the place of a sound or video, else the markup is refused
        if name == "type" and tag == "source":
            return value if re.fullmatch(r"(?:audio|video)/[a-z0-9.+-]{1,20}", value) else None
        return clean_attribute(tag, name, value)

    def _is_media(self, source: str) -> bool:
        """Whether a source stands for sound or video that was put aside, and that is what it says."""
        number = re.fullmatch(r"data:,([0-9]{1,4})", source)
        index = int(number[1]) if number else len(self._media)
        url = check_data_url(self._media[index], "audio", "video") if index < len(self._media) else None
        if url is not None:
            self._checked[index] = url
        return url is not None

    def _classes(self, tag: str, value: str) -> str | None:
        names = [f"{self._name}-{part}" for part in value.split()[:_MOST_CLASSES] if NAME.match(part)]
        if tag == "table" and "dataframe" in value.split():
            names.append("dataframe")
        return " ".join(names) or None

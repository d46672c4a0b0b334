"""Cleans SVG drawings made of a few plain things: shapes, text and groups with flat paint, clips of one rectangle.

Nearly everything else in SVG can keep a browser busy (dashes, markers, masks, filters, unions of clips, gradients), so
every other drawing is refused here and stands in a frame, whose process is its own (``frames.frame_output``). Pages
insert an SVG into the page or into an ``<img>``: it must be harmless in the first and well-formed XML in the second.
Expat parses it in one pass; elements and attributes on the lists below are written anew.
"""

from __future__ import annotations

import re
from html import escape
from itertools import islice
from xml.parsers import expat

from sandbox_kernel.untrusted import ContentRefused
from sandbox_kernel.untrusted.css import LOCAL_URL, SVG_PROPERTIES, clean_font, clean_style, names
from sandbox_kernel.untrusted.tex import defused, may_be_typeset

#: Most work of drawing after references are followed: a shape, which may cover all, counts 2, a letter 1.
MAX_DRAWN = 1000
_MAX_CHAIN = 50
#: The longest plain drawing: its shapes and letters are few, and each step of reading it is a short one.
MAX_SVG = 1 << 20
MAX_PARTS = 40_000
MAX_ATTRIBUTES = 64
MAX_DEPTH = 100

_SVG = "http://www.w3.org/2000/svg"
_XLINK = "http://www.w3.org/1999/xlink"
_TAGS = names("svg g defs symbol use path rect circle ellipse line polyline polygon text tspan clipPath")
_SHAPES, _APART = names("path rect circle ellipse line polyline polygon"), 10
#: These draw nothing; title and desc may contain HTML.
_GONE_WITH_CONTENT = names("metadata title desc")
_ATTRIBUTES = SVG_PROPERTIES | names(
    "x y x1 y1 x2 y2 cx cy r rx ry dx dy width height d points viewBox preserveAspectRatio transform id style"
)
#: These change nothing in a drawing without style sheets.
_NO_PAINT = re.compile(
    r"xmlns|class|role|version|baseProfile|enable-background|cursor|pointer-events|white-space|(?!xlink:href).*:.*"
    r"|(?:aria|data)-.*"
)
#: What properties say that are on no list when they are not used.
_UNUSED = names(
    "opacity:1 stroke-dasharray:none stroke-dasharray: stroke-dashoffset:0 stroke-dashoffset:0px vector-effect:none "
    "font-variant:normal font-stretch:normal text-rendering:auto letter-spacing:normal word-spacing:normal "
    "text-decoration:none mask:none filter:none writing-mode:lr-tb"
)
_NUMBER = re.compile(r"[0-9]+\.?[0-9]*|\.[0-9]+")
_PLAIN = re.compile(r"[^<>\\&{}@;]*\Z")
_URL = re.compile(r"url\s*\(|javascript|expression|image-set|import", re.IGNORECASE)
_FRAGMENT = re.compile(r"#[A-Za-z0-9_.:-]{1,128}\Z")
_CLIP = re.compile(r"url\(['\"]?#([A-Za-z0-9_.:-]{1,128})")
#: The only style sheet of matplotlib. It is removed; attributes of the root element replace it.
_MATPLOTLIB_STYLE = re.compile(
    r'<style type="text/css">\s*\*\{stroke-linejoin: round; stroke-linecap: butt\}\s*</style>'
)


def clean_svg(markup: str) -> tuple[str, int]:
    """Return a plain drawing, safe in a page and well-formed in an image, and its work. Raises ``ContentRefused``."""
    if len(markup) > MAX_SVG:
        raise ContentRefused(f"it is larger than {MAX_SVG >> 20} MB")
    if markup.count("<") + markup.count("&") > 2 * MAX_PARTS:
        raise ContentRefused(f"it has more than {MAX_PARTS} elements")
    may_be_typeset(markup)
    start, styles = _MATPLOTLIB_STYLE.subn("", markup[:20000], count=1)
    joins = ' stroke-linejoin="round" stroke-linecap="butt"' if styles else ""
    # A byte order mark and blanks before the declaration are common, but not allowed in XML.
    return _Writer(joins).read((start + markup[20000:]).lstrip("\ufeff \t\r\n").replace("&nbsp;", "&#160;"))


class _Writer:
    """Receives the events of expat and writes the allowed elements."""

    def __init__(self, root_attributes: str) -> None:
        self._root_attributes = root_attributes
        self._written: list[str] = []
        self._open: list[str] = []
        self._skipping = 0
        self._parts = 0
        #: Whether the clip that is open has its rectangle.
        self._is_clip_full = False
        #: The ids of the open elements, from the root; the work of drawing each; and what each draws.
        self._names: list[str] = [""]
        self._work: dict[str, int] = {"": 0}
        self._uses: dict[str, list[str]] = {}

    def read(self, text: str) -> tuple[str, int]:
        parser = expat.ParserCreate("utf-8")
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.EntityDeclHandler = parser.AttlistDeclHandler = self._declared
        try:
            parser.Parse(re.sub(r"\A<\?xml[^>]{0,200}\?>", "", text).encode(), True)
        except expat.ExpatError as error:
            raise ContentRefused(f"it is not well-formed ({error})") from None
        if not self._written:
            raise ContentRefused("there is no <svg> in it")
        work = self._drawn("", {}, 0)
        if work > MAX_DRAWN:
            raise ContentRefused("it is more than a few hundred shapes and letters")
        return "".join(self._written), work

    def _drawn(self, name: str, known: dict[str, int], chain: int) -> int:
        """Return the work of drawing an element with all that it contains and uses."""
        if known.get(name, 0) < 0:
            # What is inside of a circle would be counted, and kept, without the rest of it.
            raise ContentRefused("one of its parts uses itself")
        if name in known:
            return known[name]
        if chain > _MAX_CHAIN:
            raise ContentRefused(f"its parts refer to each other along more than {_MAX_CHAIN} steps")
        known[name] = -1
        total = self._work.get(name, 0)
        for used in self._uses.get(name, ()):
            total = min(total + self._drawn(used, known, chain + 1), MAX_DRAWN + 1)
        known[name] = total
        return total

    def _weigh(self, work: int) -> None:
        """Add to the work of drawing the current element."""
        self._work[self._names[-1]] = self._work.get(self._names[-1], 0) + work

    def _declared(self, *_: object) -> None:
        """Refuse values of entities and defaults of attributes: they multiply, from kilobytes to gigabytes."""
        raise ContentRefused("it declares entities or attributes")

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._parts += 1 + len(attributes)
        if self._parts > MAX_PARTS:
            raise ContentRefused(f"it has more than {MAX_PARTS} elements and attributes")
        if len(attributes) > MAX_ATTRIBUTES:
            raise ContentRefused(f"one of its elements has more than {MAX_ATTRIBUTES} attributes")
        if len(self._open) + self._skipping >= MAX_DEPTH:
            raise ContentRefused(f"it is nested deeper than {MAX_DEPTH} elements")
        whole, name = name, name.rpartition(":")[2]
        if not self._open and name != "svg":
            raise ContentRefused("there is no <svg> in it")
        if self._skipping or name in _GONE_WITH_CONTENT:
            self._skipping += 1
            return
        if name not in _TAGS:
            raise ContentRefused(f"<{whole[:40]}> is not plain")
        if name == "clipPath":
            self._is_clip_full = False
        if self._open and self._open[-1] == "clipPath":
            if name != "rect" or self._is_clip_full:
                raise ContentRefused("one of its clips is not one rectangle")
            self._is_clip_full = True
        written = self._attributes(name, attributes)
        if not self._open:
            written = f' xmlns="{_SVG}" xmlns:xlink="{_XLINK}"{self._root_attributes}{written}'
        self._open.append(name)
        self._written.append(f"<{name}{written}>")

    def _end(self, name: str) -> None:
        if self._skipping:
            self._skipping -= 1
            return
        self._names.pop()
        self._written.append(f"</{self._open.pop()}>")

    def _text(self, text: str) -> None:
        if not self._skipping and self._open:
            self._weigh(len(text.strip(" \t\n")))  # a page draws all other blanks
            self._written.append(escape(defused(text)))

    def _attributes(self, tag: str, attributes: dict[str, str]) -> str:
        name, inside = attributes.get("id", ""), self._names[-1]
        if name and name != inside:
            self._uses.setdefault(inside, []).append(name)
        self._names.append(name or inside)
        self._weigh(1 + (tag in _SHAPES) + _points(attributes))
        written = ""
        for key, value in attributes.items():
            if _NO_PAINT.fullmatch(key) or _is_unused(key, value):
                continue
            if key in ("href", "xlink:href") and tag == "use":
                clean, key = value if _FRAGMENT.match(value) else None, "xlink:href"
                self._uses.setdefault(self._names[-1], []).append(value[1:])
            elif key == "style":
                clean = self._style(tag, value)
            else:
                clean = self._value(tag, key, value)
            if clean is None:
                raise ContentRefused(f"{key[:40]} of one of its elements is not plain")
            if clean and f" {key}=" not in written:
                written += f' {key}="{escape(clean)}"'
        return written

    def _style(self, tag: str, style: str) -> str | None:
        """Return a style of plain properties, None for any other."""
        pairs = [pair.partition(":")[::2] for pair in style.split(";") if pair.strip()]
        pairs = [(name.strip().lower(), value.strip()) for name, value in pairs]
        pairs = [pair for pair in pairs if not _NO_PAINT.fullmatch(pair[0]) and not _is_unused(*pair)]
        if len(style) > 4096 or any(self._value(tag, *pair) is None for pair in pairs):
            return None
        return clean_style(";".join(f"{name}:{value}" for name, value in pairs), SVG_PROPERTIES) or ""

    def _value(self, tag: str, key: str, value: str) -> str | None:
        """Return a plain value of an attribute or a property, None for any other."""
        if key not in _ATTRIBUTES or (key == "clip-path" and tag == "clipPath"):
            return None
        if key == "opacity":  # what is drawn apart; of groups any number may lie over each other
            if tag not in _SHAPES:
                return None
            self._weigh(_APART)
        if key == "clip-path" and LOCAL_URL.match(value):
            self._uses.setdefault(self._names[-1], []).extend(_CLIP.findall(value))
            return value
        if not _PLAIN.match(value) or _URL.search(value):
            return None
        return clean_font(key, value) or ""


def _is_unused(name: str, value: str) -> bool:
    return f"{name}:{value.strip()}" in _UNUSED or (name == "opacity" and value.strip() in ("1.0", "1.00"))


def _points(attributes: dict[str, str]) -> int:
    """Return the work of the numbers; sides that cross each other cost with the square of their number."""
    numbers = sum(1 for _ in islice(_NUMBER.finditer(" ".join(attributes.values())), 10 * MAX_DRAWN))
    return numbers // 50 + (numbers // 250) ** 2

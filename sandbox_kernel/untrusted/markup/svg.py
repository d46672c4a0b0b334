"""SVG drawings: shapes, gradients, clips and text; references only to the drawing itself.

Notebook pages put an SVG into the page or into an ``<img>``; it must be harmless in the first and well-formed XML for
the second. Expat, which reads XML in one pass, reads it; elements and attributes on the list below are written anew.
"""

from __future__ import annotations

import re
from html import escape
from xml.parsers import expat

from sandbox_kernel.untrusted import ContentRefused
from sandbox_kernel.untrusted.images import check_data_url
from sandbox_kernel.untrusted.markup.css import SVG_PROPERTIES, clean_style, is_local_url
from sandbox_kernel.untrusted.markup.svg_references import References
from sandbox_kernel.untrusted.markup.tex import defused, may_be_typeset

MAX_SVG = 8 << 20
MAX_PARTS = 40_000
MAX_ATTRIBUTES = 64
MAX_DEPTH = 100

_SVG = "http://www.w3.org/2000/svg"
_XLINK = "http://www.w3.org/1999/xlink"
#: Not here: script, style, foreignObject, a; animate* and set change attributes later; title and desc hold HTML.
_TAG_NAMES = (
    "svg g defs symbol use path rect circle ellipse line polyline polygon text tspan textPath clipPath mask marker "
    "pattern linearGradient radialGradient stop image filter feGaussianBlur feOffset feBlend feColorMatrix feFlood "
    "feComposite feMerge feMergeNode feMorphology"
)
_GONE_WITH_CONTENT_NAMES = "script style foreignObject metadata title desc iframe object embed math"
_GONE_WITH_CONTENT = frozenset(_GONE_WITH_CONTENT_NAMES.split())
_TAGS = frozenset(_TAG_NAMES.split())
_GEOMETRY = (
    "x y x1 y1 x2 y2 cx cy r rx ry dx dy fx fy width height d points viewBox preserveAspectRatio transform rotate "
    "offset version baseProfile textLength lengthAdjust startOffset pathLength gradientUnits gradientTransform "
    "spreadMethod patternUnits patternContentUnits patternTransform clipPathUnits maskUnits maskContentUnits "
    "filterUnits primitiveUnits markerWidth markerHeight markerUnits refX refY orient stdDeviation in in2 "
    "result mode type values operator k1 k2 k3 k4 radius flood-color flood-opacity id"
)
_ATTRIBUTES = frozenset(_GEOMETRY.split()) | SVG_PROPERTIES | {"style"}
_REFERENCING = frozenset({"use", "textPath", "linearGradient", "radialGradient", "pattern", "image"})
_PLAIN = re.compile(r"[^<>\\&{}@;]*\Z")
_URL = re.compile(r"url\s*\(|javascript|expression|image-set|import", re.IGNORECASE)
_FRAGMENT = re.compile(r"#[A-Za-z0-9_.:-]{1,128}\Z")
_TARGET = re.compile(r"#([A-Za-z0-9_.:-]{1,128})")
#: matplotlib's only style sheet, which is taken out; the root element can say the same.
_MATPLOTLIB_STYLE = re.compile(r"\*\{stroke-linejoin: round; stroke-linecap: butt\}")


def clean_svg(markup: str) -> str:
    """Return a drawing that is safe in a page and well-formed in an image, or refuse it."""
    if len(markup) > MAX_SVG:
        raise ContentRefused(f"it is larger than {MAX_SVG >> 20} MB")
    if markup.count("<") + markup.count("&") > 2 * MAX_PARTS:
        raise ContentRefused(f"it has more than {MAX_PARTS} elements")
    may_be_typeset(markup)
    joins = ' stroke-linejoin="round" stroke-linecap="butt"' if _MATPLOTLIB_STYLE.search(markup[:20000]) else ""
    writer = _Writer(joins)
    # A byte order mark and blanks before the declaration are common, and no XML.
    text = markup.lstrip("\ufeff \t\r\n").replace("&nbsp;", "&#160;")
    return writer.read(text)


class _Writer:
    """Takes what expat reads and writes what is kept."""

    def __init__(self, root_attributes: str) -> None:
        self._root_attributes = root_attributes
        self._written: list[str] = []
        #: The elements that are open; None for one that is left out and whose content stays.
        self._open: list[str | None] = []
        self._skipping = 0
        self._parts = 0
        self._references = References()

    def read(self, text: str) -> str:
        parser = expat.ParserCreate("utf-8")
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        parser.EntityDeclHandler = _refuse_entities
        try:
            parser.Parse(re.sub(r"\A<\?xml[^>]{0,200}\?>", "", text).encode(), True)
        except expat.ExpatError as error:
            raise ContentRefused(f"it is not well-formed ({error})") from None
        if not self._written:
            raise ContentRefused("there is no <svg> in it")
        self._references.check()
        return "".join(self._written)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._parts += 1 + len(attributes)
        if self._parts > MAX_PARTS:
            raise ContentRefused(f"it has more than {MAX_PARTS} elements and attributes")
        if len(attributes) > MAX_ATTRIBUTES:
            raise ContentRefused(f"one of its elements has more than {MAX_ATTRIBUTES} attributes")
        if len(self._open) + self._skipping >= MAX_DEPTH:
            raise ContentRefused(f"it is nested deeper than {MAX_DEPTH} elements")
        name = name.rpartition(":")[2]
        if not self._open and name != "svg":
            raise ContentRefused("there is no <svg> in it")
        if self._skipping or name in _GONE_WITH_CONTENT:
            self._skipping += 1
        elif name not in _TAGS:
            self._open.append(None)
        else:
            written = self._attributes(name, attributes)
            if not self._open:
                written = f' xmlns="{_SVG}" xmlns:xlink="{_XLINK}"{self._root_attributes}{written}'
            self._open.append(name)
            self._written.append(f"<{name}{written}>")

    def _end(self, name: str) -> None:
        if self._skipping:
            self._skipping -= 1
            return
        opened = self._open.pop()
        if opened is not None:
            self._references.leave()
            self._written.append(f"</{opened}>")

    def _text(self, text: str) -> None:
        if not self._skipping and self._open:
            self._written.append(escape(defused(text)))

    def _attributes(self, tag: str, attributes: dict[str, str]) -> str:
        self._references.enter(attributes.get("id", ""))
        written = ""
        for key, value in attributes.items():
            name = key.rpartition(":")[2]
            if name == "href" and key in ("href", "xlink:href") and tag in _REFERENCING:
                clean = check_data_url(value) if tag == "image" else value if _FRAGMENT.match(value) else None
                key = "xlink:href"
            elif key in _ATTRIBUTES:
                clean = _filter(key, value)
            else:
                continue
            if clean is None or f" {key}=" in written:
                continue
            if "#" in clean and key not in ("id", "d", "points"):
                self._references.refer(_TARGET.findall(clean[:5000]))
            written += f' {key}="{escape(clean)}"'
        return written


def _filter(name: str, value: str) -> str | None:
    if name == "style":
        return clean_style(value, SVG_PROPERTIES)
    if is_local_url(value) or (_PLAIN.match(value) and not _URL.search(value)):
        return value
    return None


def _refuse_entities(*_: object) -> None:
    raise ContentRefused("it defines entities")

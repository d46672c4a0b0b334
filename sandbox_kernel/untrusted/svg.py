"""Cleans SVG drawings: keeps shapes, gradients, clips and text, and references within the drawing.

Notebook pages insert an SVG into the page or into an ``<img>``: it must be harmless in the first and well-formed XML in
the second. Expat parses it in one pass; elements and attributes on the lists below are written anew.
"""

from __future__ import annotations

import re
from html import escape
from xml.parsers import expat

from sandbox_kernel.untrusted import ContentRefused
from sandbox_kernel.untrusted.css import LOCAL_URL, SVG_PROPERTIES, clean_style, names
from sandbox_kernel.untrusted.media import check_data_url
from sandbox_kernel.untrusted.tex import defused, may_be_typeset

#: Most work of drawing, in simple shapes, after references are followed: ten elements that each use the next one ten
#: times are a few bytes, but ten thousand million shapes for a browser. So is a marker at each point of a line.
MAX_DRAWN = 200_000
_MAX_CHAIN = 50
MAX_SVG = 8 << 20
MAX_PARTS = 40_000
MAX_ATTRIBUTES = 64
MAX_DEPTH = 100

_SVG = "http://www.w3.org/2000/svg"
_XLINK = "http://www.w3.org/1999/xlink"
#: Left out: script, style, foreignObject and a; animate* and set, which change attributes later; title and desc, which
#: may contain HTML; feMorphology, which looks at a million points for each.
_TAGS = names(
    "svg g defs symbol use path rect circle ellipse line polyline polygon text tspan textPath clipPath mask marker "
    "pattern linearGradient radialGradient stop image filter feGaussianBlur feOffset feBlend feColorMatrix feFlood "
    "feComposite feMerge feMergeNode"
)
_GONE_WITH_CONTENT = names("script style foreignObject metadata title desc iframe object embed math")
_ATTRIBUTES = SVG_PROPERTIES | names(
    "x y x1 y1 x2 y2 cx cy r rx ry dx dy fx fy width height d points viewBox preserveAspectRatio transform rotate "
    "offset version baseProfile textLength lengthAdjust startOffset pathLength gradientUnits gradientTransform "
    "spreadMethod patternUnits patternContentUnits patternTransform clipPathUnits maskUnits maskContentUnits "
    "filterUnits primitiveUnits markerWidth markerHeight markerUnits refX refY orient stdDeviation in in2 "
    "result mode type values operator k1 k2 k3 k4 radius flood-color flood-opacity id "
    "style"
)
_REFERENCING = names("use textPath linearGradient radialGradient pattern image")
#: Only these have markers, which would otherwise be inherited by any number of lines.
_MARKED = names("path line polyline polygon")
_UNMARKED_PROPERTIES = SVG_PROPERTIES - {"marker-start", "marker-mid", "marker-end"}
#: Each number or command of a line may be a point of it.
_POINT = re.compile(r"[0-9]+\.?[0-9]*|\.[0-9]+|[A-Za-z]")
#: The work of a mask or of a step of a filter, which touch a whole area, and of dashes, in simple shapes. Dashes that
#: are shorter than half a unit may be thousands to a line.
_LAYER, _DASHES, _SHORT_DASHES = 1000, 20, 1000
_IS_LAYER = re.compile(r"\b(?:mask|filter):")
_IS_DASHED = re.compile(r"stroke-dasharray:\s*([0-9.][^;]*)")
_PLAIN = re.compile(r"[^<>\\&{}@;]*\Z")
_URL = re.compile(r"url\s*\(|javascript|expression|image-set|import", re.IGNORECASE)
_FRAGMENT = re.compile(r"#[A-Za-z0-9_.:-]{1,128}\Z")
_TARGET = re.compile(r"#([A-Za-z0-9_.:-]{1,128})")
#: The only style sheet of matplotlib. It is removed; attributes of the root element replace it.
_MATPLOTLIB_STYLE = re.compile(r"\*\{stroke-linejoin: round; stroke-linecap: butt\}")


def clean_svg(markup: str) -> str:
    """Return a drawing that is safe in a page and well-formed in an image, or raise ``ContentRefused``."""
    if len(markup) > MAX_SVG:
        raise ContentRefused(f"it is larger than {MAX_SVG >> 20} MB")
    if markup.count("<") + markup.count("&") > 2 * MAX_PARTS:
        raise ContentRefused(f"it has more than {MAX_PARTS} elements")
    may_be_typeset(markup)
    joins = ' stroke-linejoin="round" stroke-linecap="butt"' if _MATPLOTLIB_STYLE.search(markup[:20000]) else ""
    # A byte order mark and blanks before the declaration are common, but not allowed in XML.
    return _Writer(joins).read(markup.lstrip("\ufeff \t\r\n").replace("&nbsp;", "&#160;"))


class _Writer:
    """Receives the events of expat and writes the allowed elements."""

    def __init__(self, root_attributes: str) -> None:
        self._root_attributes = root_attributes
        self._written: list[str] = []
        #: The open elements; None for one that is left out while its content is kept.
        self._open: list[str | None] = []
        self._skipping = 0
        self._parts = 0
        #: The ids of the open elements, from the root; the work of drawing each; and what each draws, how many times.
        self._names: list[str] = [""]
        self._work: dict[str, int] = {"": 0}
        self._uses: dict[str, list[tuple[str, int]]] = {}

    def read(self, text: str) -> str:
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
        if self._drawn("", {}, 0) > MAX_DRAWN:
            raise ContentRefused(f"to draw it is the work of more than {MAX_DRAWN} shapes")
        return "".join(self._written)

    def _drawn(self, name: str, known: dict[str, int], chain: int) -> int:
        """Return the work of drawing an element with all that it contains and uses."""
        if name in known:
            return known[name]
        if chain > _MAX_CHAIN:
            raise ContentRefused(f"its parts refer to each other along more than {_MAX_CHAIN} steps")
        known[name] = 1  # an element that uses itself is drawn once, as in browsers
        total = self._work.get(name, 0)
        for used, times in self._uses.get(name, ()):
            total = min(total + times * self._drawn(used, known, chain + 1), MAX_DRAWN + 1)
        known[name] = total
        return total

    def _weigh(self, work: int) -> None:
        """Add to the work of drawing the current element; 1 is a simple shape."""
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
            self._names.pop()
            self._written.append(f"</{opened}>")

    def _text(self, text: str) -> None:
        if not self._skipping and self._open:
            self._weigh(len(text) // 4)
            self._written.append(escape(defused(text)))

    def _attributes(self, tag: str, attributes: dict[str, str]) -> str:
        name, inside = attributes.get("id", ""), self._names[-1]
        if name and name != inside:
            self._uses.setdefault(inside, []).append((name, 1))
        self._names.append(name or inside)
        points = len(_POINT.findall(attributes.get("d", "") + attributes.get("points", "")))
        self._weigh(1 + points // 4 + (_LAYER if tag.startswith("fe") else 0))
        properties = SVG_PROPERTIES if tag in _MARKED else _UNMARKED_PROPERTIES
        written = ""
        for key, value in attributes.items():
            if key in ("href", "xlink:href") and tag in _REFERENCING:
                clean = check_data_url(value) if tag == "image" else value if _FRAGMENT.match(value) else None
                key = "xlink:href"
            elif key in _ATTRIBUTES and (key not in SVG_PROPERTIES or key in properties):
                is_safe = LOCAL_URL.match(value) or (_PLAIN.match(value) and not _URL.search(value))
                clean = clean_style(value, properties) if key == "style" else value if is_safe else None
            else:
                continue
            if clean is None or f" {key}=" in written:
                continue
            said = clean if key == "style" else f"{key}:{clean[:200]}"
            self._weigh(_LAYER * len(_IS_LAYER.findall(said)) + _dashes(said))
            if "#" in clean and key not in ("id", "d", "points"):
                times = max(1, points) if "marker-mid" in said else 1
                used = [(target, times) for target in _TARGET.findall(clean[:5000])]
                self._uses.setdefault(self._names[-1], []).extend(used)
            written += f' {key}="{escape(clean)}"'
        return written


def _dashes(said: str) -> int:
    """Return the work of the dashes in a style."""
    dashes = _IS_DASHED.search(said)
    if dashes is None:
        return 0
    lengths = re.findall(r"[0-9.]+(?:[eE][+-]?[0-9]+)?", dashes[1])
    try:
        return _SHORT_DASHES if sum(map(float, lengths)) < len(lengths) / 2 else _DASHES
    except ValueError:
        return _SHORT_DASHES

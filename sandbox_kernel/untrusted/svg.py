"""Cleans SVG drawings: keeps shapes, gradients, clips and text, and references within the drawing.

Notebook pages insert an SVG into the page or into an ``<img>``: it must be harmless in the first and well-formed XML in
the second. Expat parses it in one pass; elements and attributes on the lists below are written anew.
"""

from __future__ import annotations

import re
from html import escape
from xml.parsers import expat

from sandbox_kernel.untrusted import ContentRefused
from sandbox_kernel.untrusted.css import LOCAL_URL, SVG_PROPERTIES, clean_font, clean_style, names
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
#: And only these have dashes.
_OUTLINED = _MARKED | names("rect circle ellipse")
_INHERITED_BY_NONE = {"marker-start", "marker-mid", "marker-end", "stroke-dasharray"}
#: What an outline's length comes from; lines that are straight or bent towards points that are given as they are.
_SIZES = ("x1", "y1", "x2", "y2", "width", "height", "r", "rx", "ry", "pathLength")
_POINT_TO_POINT = re.compile(r"[MLCQZ0-9.eE+,\s-]*")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_PLAIN_SIZE = re.compile(rf"\s*(?:{_NUMBER.pattern}(?:px)?)?\s*")
#: Each number or command of a line may be a point of it.
_POINT = re.compile(r"[0-9]+\.?[0-9]*|\.[0-9]+|[A-Za-z]")
#: The work of a mask or of a step of a filter, which touch a whole area, in simple shapes. And that of an outline with
#: dashes, the dashes that are as much as a shape, and the most that browsers draw for one outline.
_LAYER, _DASHED, _DASHES_OF_A_SHAPE, _MOST_DASHES = 1000, 20, 10, 1_000_000
_IS_LAYER = re.compile(r"\b(?:mask|filter):")
#: A gradient, or shapes that are drawn apart because they are transparent together; and a text, which may be large.
_IS_AREA = re.compile(r"\b(?:fill|stroke):\s*url|(?<![-\w])opacity:(?!\s*1(?:\.0*)?\s*(?:;|\Z))")
_AREA, _LETTERS = 100, 30
_IS_DASHED = re.compile(r"stroke-dasharray:\s*(?!none\s*(?:;|\Z))([^;]*)")
_PLAIN = re.compile(r"[^<>\\&{}@;]*\Z")
_URL = re.compile(r"url\s*\(|javascript|expression|image-set|import", re.IGNORECASE)
_FRAGMENT = re.compile(r"#[A-Za-z0-9_.:-]{1,128}\Z")
_TARGET = re.compile(r"#([A-Za-z0-9_.:-]{1,128})")
#: The only style sheet of matplotlib. It is removed; attributes of the root element replace it.
_MATPLOTLIB_STYLE = re.compile(r"\*\{stroke-linejoin: round; stroke-linecap: butt\}")


def clean_svg(markup: str) -> tuple[str, int]:
    """Return a drawing that is safe in a page and well-formed in an image, and the work to draw it, in simple shapes.

    Raises ``ContentRefused``.
    """
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
            raise ContentRefused(f"to draw it is the work of more than {MAX_DRAWN} shapes")
        return "".join(self._written), work

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
        extra = _LAYER if tag.startswith("fe") else _LETTERS if tag in ("text", "tspan", "textPath") else 0
        self._weigh(1 + points // 4 + extra)
        properties = SVG_PROPERTIES - _INHERITED_BY_NONE
        properties |= _INHERITED_BY_NONE if tag in _MARKED else {"stroke-dasharray"} if tag in _OUTLINED else set()
        written = ""
        for key, value in attributes.items():
            if key in ("href", "xlink:href") and tag in _REFERENCING:
                clean = check_data_url(value) if tag == "image" else value if _FRAGMENT.match(value) else None
                key = "xlink:href"
            elif key in _ATTRIBUTES and (key not in SVG_PROPERTIES or key in properties):
                is_safe = LOCAL_URL.match(value) or (_PLAIN.match(value) and not _URL.search(value))
                plain = clean_font(key, value) if is_safe else None
                clean = clean_style(value, properties) if key == "style" else plain
            else:
                continue
            if clean is None or f" {key}=" in written:
                continue
            said = clean if key == "style" else f"{key}:{clean[:200]}"
            areas = [found for found in _IS_AREA.findall(said) if tag not in _OUTLINED or found != "opacity:"]
            self._weigh(_LAYER * len(_IS_LAYER.findall(said)) + _AREA * len(areas) + _dashes(said, attributes))
            if "#" in clean and key not in ("id", "d", "points"):
                times = max(1, points) if "marker-mid" in said else 1
                used = [(target, times) for target in _TARGET.findall(clean[:5000])]
                self._uses.setdefault(self._names[-1], []).extend(used)
            written += f' {key}="{escape(clean)}"'
        return written


def _dashes(said: str, attributes: dict[str, str]) -> int:
    """Return the work of the dashes in a style, on the outline of an element."""
    work = 0
    for dashes in _IS_DASHED.findall(said):
        parts = re.split(r"[\s,]+", dashes.strip())
        # A share of the drawing, or of a font, may be as small as one likes.
        period = sum(_numbers(dashes)) if all(map(_PLAIN_SIZE.fullmatch, parts)) else 0.0
        count = min(_MOST_DASHES, _longest(attributes) / period) if period > 0 else _MOST_DASHES
        work += _DASHED + int(count) // _DASHES_OF_A_SHAPE
    return work


def _longest(attributes: dict[str, str]) -> float:
    """Return a length that an outline does not exceed, in units of its element."""
    sizes = [attributes.get(key, "") for key in _SIZES]
    if not all(map(_PLAIN_SIZE.fullmatch, sizes)):
        return float("inf")
    total = 8 * sum(abs(number) for size in sizes for number in _numbers(size))
    for points in (attributes.get("d", ""), attributes.get("points", "")):
        numbers = _numbers(points)
        if _POINT_TO_POINT.fullmatch(points):
            total += 2 * sum(abs(one - other) for one, other in zip(numbers, numbers[2:], strict=False))
        else:
            # Each T goes on to the mirrored point of the one before, which may be further away each time.
            total += 8 * sum(map(abs, numbers)) * (len(numbers) if "t" in points.lower() else 1)
    return total


def _numbers(text: str) -> list[float]:
    return [max(-1e9, min(float(number), 1e9)) for number in _NUMBER.findall(text)]

"""SVG drawings: shapes, gradients, clips and text; references only to the drawing itself.

Notebook pages put an SVG into the page or into an ``<img>``; it must be harmless in the first and well-formed XML for
the second. ``nh3`` keeps a list of elements and attributes, and the result is then read once more by an XML parser that
holds the same list: two parsers must agree before anything is shown.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree

import nh3

from sandbox_kernel.untrusted import Refused
from sandbox_kernel.untrusted.css import SVG_PROPERTIES, clean_style, is_local_url
from sandbox_kernel.untrusted.images import check_data_url
from sandbox_kernel.untrusted.nesting import check_nesting

MAX_SVG = 8 << 20

_SVG = "http://www.w3.org/2000/svg"
_XLINK = "http://www.w3.org/1999/xlink"
#: Not here: script, style, foreignObject, a; animate* and set change attributes later; title and desc hold HTML.
_TAG_NAMES = (
    "svg g defs symbol use path rect circle ellipse line polyline polygon text tspan textPath clipPath mask marker "
    "pattern linearGradient radialGradient stop image filter feGaussianBlur feOffset feBlend feColorMatrix feFlood "
    "feComposite feMerge feMergeNode feMorphology"
)
_GONE_WITH_CONTENT = "script style foreignObject metadata title desc iframe object embed math"
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
#: matplotlib's only style sheet, which nh3 takes out; the root element can say the same.
_MATPLOTLIB_STYLE = re.compile(r"\*\{stroke-linejoin: round; stroke-linecap: butt\}")


def clean_svg(markup: str) -> str:
    """Return a drawing that is safe in a page and well-formed in an image, or refuse it."""
    if len(markup) > MAX_SVG:
        raise Refused(f"larger than {MAX_SVG >> 20} MB")
    check_nesting(markup, is_xml=True)
    cleaned = nh3.clean(
        markup,
        tags=set(_TAGS),
        clean_content_tags=set(_GONE_WITH_CONTENT.split()),
        attributes={"*": set(_ATTRIBUTES), **{tag: {"href"} for tag in _REFERENCING}},
        attribute_filter=_filter,
        url_schemes={"data"},
        link_rel=None,
        strip_comments=True,
    )
    start, end = cleaned.find("<svg"), cleaned.rfind("</svg>")
    if start < 0 or end < 0:
        raise Refused("there is no <svg> in it")
    rest = cleaned[start + 4 : end]
    joins = ' stroke-linejoin="round" stroke-linecap="butt"' if _MATPLOTLIB_STYLE.search(markup[:20000]) else ""
    # nh3 writes HTML: the namespaces are implied there, and &nbsp; is known there.
    text = f'<svg xmlns="{_SVG}" xmlns:xlink="{_XLINK}"{joins}{rest}</svg>'.replace("&nbsp;", "&#160;")
    _check_again(text)
    return text


def _filter(tag: str, name: str, value: str) -> str | None:
    if name == "style":
        return clean_style(value, SVG_PROPERTIES)
    if name == "href":
        if tag == "image":
            return check_data_url(value)
        return value if _FRAGMENT.match(value) else None
    if is_local_url(value) or (_PLAIN.match(value) and not _URL.search(value)):
        return value
    return None


def _check_again(text: str) -> None:
    """Read the result as a browser's XML parser will, and hold it against the same lists."""
    try:
        root = ElementTree.fromstring(text)  # noqa: S314 - nh3 has taken out document types and entities
    except (ElementTree.ParseError, ValueError) as error:
        raise Refused(f"not well-formed ({error})") from None
    for element in root.iter():
        space, _, name = element.tag.rpartition("}")
        if space != "{" + _SVG or name not in _TAGS:
            raise Refused(f"it holds <{name[:30]}>")
        for key, value in element.attrib.items():
            plain = key.rpartition("}")[2]
            if plain == "href":
                if _filter(name, "href", value) is None:
                    raise Refused("it refers to something outside")
            elif plain not in _ATTRIBUTES:
                raise Refused(f"it holds the attribute {plain[:30]}")

"""Cleans HTML: keeps text, tables, lists and embedded pictures; removes all that acts, loads or covers other output.

``html_reader`` counts the markup and writes its tags in their plainest form; ``nh3``, a full HTML parser, keeps the
elements and attributes on the lists below. ``id`` is removed, and so is every ``class`` but those of pandas' tables and
JupyterLab's coloured boxes, because classes give access to the page's styles and commands. Styles are cleaned by
``css``, formulas by ``tex``. A picture must be a ``data:`` URL: a remote one would report when it is viewed, so a word
stands in its place. Links must be http, https or mailto: a relative one could send a request to the Jupyter server.
"""

from __future__ import annotations

import math
import re
from html import unescape

import nh3

from sandbox_kernel.untrusted import ContentRefused
from sandbox_kernel.untrusted.ansi import MAX_LINES
from sandbox_kernel.untrusted.css import HTML_PROPERTIES, TABLE_STYLE, clean_style, names
from sandbox_kernel.untrusted.html_reader import HtmlReader
from sandbox_kernel.untrusted.media import check_data_url
from sandbox_kernel.untrusted.tex import MAX_TOKENS, TAG, as_html, may_be_typeset, tokens

MAX_HTML = 4 << 20
MAX_ELEMENTS = 50_000
#: Most places that the cells and columns of tables span together.
MAX_SPANNED = 100_000

TAGS = names(
    "a abbr b bdi bdo blockquote br caption center cite code col colgroup dd del details dfn div dl dt em figcaption "
    "figure h1 h2 h3 h4 h5 h6 hr i img ins kbd li mark ol p pre progress q s samp section small span strong sub "
    "summary sup table tbody td tfoot th thead tr tt u ul var"
)
_GONE_WITH_CONTENT = names(
    "script style iframe frameset noframes noscript noembed template title textarea xmp plaintext svg math object "
    "applet select datalist audio video canvas head"
)
ATTRIBUTES = {
    # Not lang: for each language a browser looks for fonts anew.
    "*": {"style", "title", "dir", "align", "valign"},
    "a": {"href"},
    "img": {"src", "alt", "width", "height"},
    "div": {"class"},
    "table": {"border", "cellpadding", "cellspacing", "width", "summary", "class"},
    "th": {"colspan", "rowspan", "scope", "width"},
    "td": {"colspan", "rowspan", "width"},
    "col": {"span", "width"},
    "colgroup": {"span", "width"},
    "ol": {"start", "type", "reversed"},
    "progress": {"value", "max"},
    "details": {"open"},
}
#: The classes that are kept: pandas' tables and the boxes that JupyterLab colours.
CLASSES = {"table": {"dataframe"}, "div": {"alert", "alert-info", "alert-success", "alert-warning", "alert-danger"}}
_SPANS = names("colspan rowspan span")
_SPAN = re.compile(r"[1-9][0-9]{0,4}\Z", re.ASCII)
_SPANNED = re.compile(r'span="([0-9]+)"')
_SHORT = re.compile(r"[\w .,%-]{0,32}\Z")
_LINK = re.compile(r"(?:https?://|mailto:)[^\s\\\x00-\x1f]{1,2000}\Z", re.IGNORECASE)
#: A picture that would have to be loaded, in what the reader wrote.
_ELSEWHERE = re.compile(r'<img (?=[^>]*src="(?!\s*data:)[^"]+")[^>]*>', re.IGNORECASE)
_ALT = re.compile(r' alt="([^"]{0,1000})')
_KINDS = {
    "scripts": "script noscript template",
    "style sheets": "style link",
    "embedded pages": "iframe frame frameset object embed applet portal",
    "forms and buttons": "form input button select option textarea fieldset legend label datalist",
    "sound and video": "audio video source track",
    "drawings inside HTML (display them as SVG)": "svg",
    "MathML formulas": "math",
    "canvases": "canvas",
    "reactions to events": "on",
    "pictures from elsewhere": "img",
}
_KIND_OF = {tag: kind for kind, tags in _KINDS.items() for tag in tags.split()}
#: Elements that are removed without a note, because their content is still shown.
_QUIET = names(
    "html body head article main header footer nav aside hgroup address font wbr optgroup big nobr time data output "
    "ruby rb rt rp rtc strike acronym dir title meta picture search meter"
)
#: The end of a line before an empty one, with which Markdown ends HTML: notebooks are converted to it.
_LINE_END = re.compile(r"([\n\r])(?=[^\S\n\r]*[\n\r])")
_MOST_WORDS = 8


def clean_html(markup: str) -> tuple[str, tuple[str, ...]]:
    """Return clean HTML, and the kinds of what was removed; raises ``ContentRefused`` for too much work for a page."""
    if len(markup) > MAX_HTML:
        raise ContentRefused(f"it is larger than {MAX_HTML >> 20} MB")
    reader = HtmlReader({tag: ATTRIBUTES["*"] | ATTRIBUTES.get(tag, set()) for tag in TAGS}, _GONE_WITH_CONTENT)

    def in_place(picture: re.Match[str]) -> str:
        reader.removed.add("img")
        alt = _ALT.search(picture[0])
        return f"[{alt[1] if alt and alt[1] else 'picture'}]"

    cleaned = nh3.clean(
        _ELSEWHERE.sub(in_place, reader.read(TABLE_STYLE.sub("", markup))),
        tags=set(TAGS),
        clean_content_tags=set(_GONE_WITH_CONTENT),
        attributes=ATTRIBUTES,
        attribute_filter=_value,
        url_schemes={"http", "https", "mailto", "data"},
        url_relative="deny",
        link_rel="noopener noreferrer nofollow",
        strip_comments=True,
    )
    # nh3 adds elements to tables and writes a blank as six characters.
    if len(cleaned) > 2 * MAX_HTML or cleaned.count("<") > 2 * MAX_ELEMENTS:
        raise ContentRefused(f"it has more than {MAX_ELEMENTS} elements or {MAX_HTML >> 19} MB once it is written out")
    if cleaned.count("\n") > MAX_LINES:
        raise ContentRefused(f"it has more than {MAX_LINES} lines")
    spans = [_SPANNED.findall(tag) for tag in TAG.findall(cleaned)] if "span=" in cleaned else []
    if sum(math.prod(map(int, numbers)) for numbers in spans if numbers) > MAX_SPANNED:
        raise ContentRefused(f"the cells of its tables span more than {MAX_SPANNED} places")
    kinds = {_KIND_OF.get(tag, f"<{tag}>") for tag in reader.removed if tag not in _QUIET}
    one = _LINE_END.sub(lambda end: f"&#{ord(end[1])};", _with_formulas(cleaned))
    return one, tuple(sorted(kinds)[:_MOST_WORDS])


def _with_formulas(cleaned: str) -> str:
    """Return clean HTML in which formulas only draw, and are no longer together than one of ``text/latex``."""
    typeset, drawn = may_be_typeset(cleaned), 0
    if not any(sign in cleaned for sign in ("$", "\\", "^^")):
        return cleaned
    pieces = TAG.split(cleaned)
    for at in range(0, len(pieces), 2):  # the texts between the tags
        text = unescape(pieces[at])
        drawn += tokens(text) if "$" in text or "\\" in text else 0
        pieces[at] = as_html(text, typeset=typeset and drawn <= MAX_TOKENS)
    return "".join(pieces)


def _value(tag: str, name: str, value: str) -> str | None:
    if name == "rel":  # of nh3 itself
        return value
    try:
        if name == "class":
            return " ".join(dict.fromkeys(word for word in value.split() if word in CLASSES[tag])) or None
        if name == "style":
            return clean_style(value, HTML_PROPERTIES)
        if name == "src":
            return check_data_url(value)
        if name == "href":
            return value.strip() if _LINK.match(value.strip()) else None
        if name in ("title", "alt", "summary"):
            return value[:1000]
        return value if (_SPAN if name in _SPANS else _SHORT).match(value) else None
    except Exception:  # nh3 keeps the value of a function that raises
        return None

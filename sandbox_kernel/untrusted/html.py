"""HTML for an output area: tables, text, lists, pictures that carry themselves; nothing that acts, loads or overlays.

``nh3`` (a real HTML parser) keeps a list of tags and attributes. Beyond what it does: no ``id`` and no ``class`` but
pandas' own (a class is how a page's own look and commands are reached), styles through ``css``, pictures only as
checked ``data:`` URLs (a remote one would tell somebody that and when it was seen), links only to http, https and
mailto. Formulas are defused by ``tex``.
"""

from __future__ import annotations

import re

import nh3

from sandbox_kernel.untrusted import Refused
from sandbox_kernel.untrusted.css import HTML_PROPERTIES, clean_style
from sandbox_kernel.untrusted.images import check_data_url
from sandbox_kernel.untrusted.nesting import check_nesting
from sandbox_kernel.untrusted.tex import defused

MAX_HTML = 4 << 20

_TAG_NAMES = (
    "a abbr b bdi bdo blockquote br caption center cite code col colgroup dd del details dfn div dl dt em figcaption "
    "figure h1 h2 h3 h4 h5 h6 hr i img ins kbd li mark ol p pre progress q s samp section small span strong sub "
    "summary sup table tbody td tfoot th thead tr tt u ul var"
)
_GONE_WITH_CONTENT = (
    "script style iframe frame frameset noframes noscript noembed template title textarea xmp plaintext svg math "
    "object embed applet select datalist audio video canvas head"
)
_TAGS = frozenset(_TAG_NAMES.split())
_ATTRIBUTES = {
    "*": {"style", "title", "dir", "lang", "align", "valign"},
    "a": {"href"},
    "img": {"src", "alt", "width", "height"},
    "table": {"border", "cellpadding", "cellspacing", "width", "summary"},
    "th": {"colspan", "rowspan", "scope", "width"},
    "td": {"colspan", "rowspan", "width"},
    "col": {"span", "width"},
    "colgroup": {"span", "width"},
    "ol": {"start", "type", "reversed"},
    "li": {"value"},
    "progress": {"value", "max"},
    "details": {"open"},
}
_SCHEMES = {"http", "https", "mailto", "data"}
_SHORT = re.compile(r"[\w .,%-]{0,32}\Z")
_LINK = re.compile(r"(?:https?://|mailto:)[^\s\\\x00-\x1f]{1,2000}\Z", re.IGNORECASE)
_OPENING = re.compile(r"<([A-Za-z][A-Za-z0-9:-]{0,30})")
_HANDLER = re.compile(r"<[a-z][^<>]{0,2000}?[\s\"'/](on[a-z]{3,30})\s*=", re.IGNORECASE)
#: pandas and polars put this into every table; it only aligns, and its loss is not worth a word.
_TABLE_STYLE = re.compile(r"<style(?: scoped)?>\s*\.dataframe [^<@]{0,800}</style>")


def clean_html(markup: str) -> tuple[str, tuple[str, ...]]:
    """Return the safe form and the names of what was taken out (tags and handlers, for the user)."""
    if len(markup) > MAX_HTML:
        raise Refused(f"larger than {MAX_HTML >> 20} MB")
    markup = _TABLE_STYLE.sub("", markup)
    check_nesting(markup, is_xml=False)
    cleaned = nh3.clean(
        markup,
        tags=set(_TAGS),
        clean_content_tags=set(_GONE_WITH_CONTENT.split()),
        attributes={tag: set(names) for tag, names in _ATTRIBUTES.items()},
        attribute_filter=_filter,
        allowed_classes={"table": {"dataframe"}},
        url_schemes=_SCHEMES,
        url_relative="deny",
        link_rel="noopener noreferrer nofollow",
        strip_comments=True,
    )
    if len(cleaned) > 2 * MAX_HTML:
        raise Refused(f"larger than {2 * MAX_HTML >> 20} MB once its tags are closed")
    return defused(cleaned), _taken_out(markup)


def _filter(tag: str, name: str, value: str) -> str | None:
    if name == "style":
        return clean_style(value, HTML_PROPERTIES)
    if name == "src":
        return check_data_url(value)
    if name == "href":
        return value if _LINK.match(value.strip()) else None
    if name in ("title", "alt", "summary", "class", "rel", "target"):
        return value[:1000]
    return value if _SHORT.match(value) else None


def _taken_out(markup: str) -> tuple[str, ...]:
    """A courtesy to the reader, not part of the defence: what the source seemed to hold that is not shown."""
    tags = {match[1].lower() for match in _OPENING.finditer(markup)} - _TAGS - {"html", "body"}
    handlers = {match[1].lower() for match in _HANDLER.finditer(markup)}
    return tuple([f"<{name}>" for name in sorted(tags)[:8]] + sorted(handlers)[:8])

"""Cleans HTML: keeps text, tables, lists and embedded pictures; removes all that acts, loads or covers other output.

``html_tokens`` reads the markup once, and ``html_tree`` writes the elements and attributes on the lists below anew.
``nh3``, a full HTML parser with the same lists, then cleans the result: only what both keep is shown. ``id`` is
removed, and so is every ``class`` but those of pandas' tables and JupyterLab's coloured boxes, because classes give
access to the page's styles and commands. Styles are cleaned by ``css``. Pictures must be ``data:`` URLs: a remote
picture would report when it is viewed, so a word stands in its place. Links must be http, https or mailto: a relative
link could send a request to the Jupyter server. Formulas are checked by ``tex``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Set
from html import escape

import nh3

from sandbox_kernel.untrusted import ContentRefused
from sandbox_kernel.untrusted.images import check_data_url
from sandbox_kernel.untrusted.markup.css import HTML_PROPERTIES, clean_style
from sandbox_kernel.untrusted.markup.html_tokens import End, Start, Token, tokens
from sandbox_kernel.untrusted.markup.html_tree import Tree
from sandbox_kernel.untrusted.markup.table_style import TABLE_STYLE
from sandbox_kernel.untrusted.markup.tex import MAX_LATEX, as_html, may_be_typeset
from sandbox_kernel.untrusted.taken_out import in_words

MAX_HTML = 4 << 20
#: Most places that the cells and columns of tables span together.
MAX_SPANNED = 100_000

_TAG_NAMES = (
    "a abbr b bdi bdo blockquote br caption center cite code col colgroup dd del details dfn div dl dt em figcaption "
    "figure h1 h2 h3 h4 h5 h6 hr i img ins kbd li mark ol p pre progress q s samp section small span strong sub "
    "summary sup table tbody td tfoot th thead tr tt u ul var"
)
_GONE_WITH_CONTENT_NAMES = (
    "script style iframe frameset noframes noscript noembed template title textarea xmp plaintext svg math object "
    "applet select datalist audio video canvas head"
)
TAGS = frozenset(_TAG_NAMES.split())
GONE_WITH_CONTENT = frozenset(_GONE_WITH_CONTENT_NAMES.split())
ATTRIBUTES = {
    "*": {"style", "title", "dir", "lang", "align", "valign"},
    "a": {"href"},
    "img": {"src", "alt", "width", "height"},
    "div": {"class"},
    "table": {"border", "cellpadding", "cellspacing", "width", "summary", "class"},
    "th": {"colspan", "rowspan", "scope", "width"},
    "td": {"colspan", "rowspan", "width"},
    "col": {"span", "width"},
    "colgroup": {"span", "width"},
    "ol": {"start", "type", "reversed"},
    "li": {"value"},
    "progress": {"value", "max"},
    "details": {"open"},
}
#: The classes that are kept: pandas' tables and the boxes that JupyterLab colours.
CLASSES = {
    "table": {"dataframe"},
    "div": {"alert", "alert-info", "alert-success", "alert-warning", "alert-danger"},
}
_KEPT = {tag: ATTRIBUTES["*"] | ATTRIBUTES.get(tag, set()) for tag in TAGS}
_SPANS = frozenset(("colspan", "rowspan", "span"))
_SPAN = re.compile(r"[1-9][0-9]{0,4}\Z", re.ASCII)
_SHORT = re.compile(r"[\w .,%-]{0,32}\Z")
_HOST = re.compile(r"\s*(?:https?:)?//([A-Za-z0-9.-]{1,100})", re.IGNORECASE)
_LINK = re.compile(r"(?:https?://|mailto:)[^\s\\\x00-\x1f]{1,2000}\Z", re.IGNORECASE)


def clean_html(markup: str) -> tuple[str, tuple[str, ...]]:
    """Return clean HTML, and a description of each kind of thing that was removed."""
    if len(markup) > MAX_HTML:
        raise ContentRefused(f"it is larger than {MAX_HTML >> 20} MB")
    markup = TABLE_STYLE.sub("", markup)
    reader = HtmlReader(typeset=may_be_typeset(markup))
    written = reader.read(markup)
    if reader.typeset and not may_be_typeset(written):  # some formula signs were character references
        reader = HtmlReader(typeset=False)
        written = reader.read(markup)
    if len(written) > 2 * MAX_HTML:
        raise ContentRefused(f"it is larger than {2 * MAX_HTML >> 20} MB once its tags are closed")
    attributes = {tag: set(names) - {"class"} for tag, names in ATTRIBUTES.items()}
    cleaned = parsed_again(written, TAGS, GONE_WITH_CONTENT, attributes, CLASSES)
    return cleaned, in_words(reader.tags, reader.handlers, reader.pictures)


def parsed_again(
    written: str,
    tags: frozenset[str],
    gone: frozenset[str],
    attributes: dict[str, set[str]],
    classes: dict[str, set[str]] | None = None,
) -> str:
    """Return what ``nh3``, a full HTML parser, keeps of markup that was written here, by the same lists."""
    return nh3.clean(
        written,
        tags=set(tags),
        clean_content_tags=set(gone),
        attributes=attributes,
        allowed_classes=classes,
        url_schemes={"http", "https", "mailto", "data"},
        url_relative="deny",
        link_rel="noopener noreferrer nofollow",
        strip_comments=True,
    )


class HtmlReader:
    """Reads tokens, writes allowed elements and attributes, and collects the names of removed ones."""

    allowed = TAGS
    gone = GONE_WITH_CONTENT
    kept: Mapping[str, Set[str]] = _KEPT

    def __init__(self, *, typeset: bool) -> None:
        self.tags: set[str] = set()
        self.handlers: set[str] = set()
        #: Where pictures would come from that are not shown.
        self.pictures: set[str] = set()
        self.typeset = typeset
        self._tree = Tree()
        self._words: list[str] = []
        self._spanned = self._formulas = 0
        self._skipped = ""
        self._skip_depth = 0

    def read(self, markup: str) -> str:
        """Return the markup, written anew."""
        for token in self.split(markup):
            if self._skipped:
                self._skip(token)
            elif isinstance(token, str):
                self._words.append(token)
            elif token.name not in self.allowed:
                self._leave_out(token)
            elif token.name == "img" and isinstance(token, Start) and self._is_elsewhere(token):
                self._words.append(f"[{token.attributes.get('alt', '')[:1000] or 'picture'}]")
            else:
                self._say()
                if isinstance(token, Start):
                    self._tree.start(token.name, self._attributes(token))
                else:
                    self._tree.end(token.name)
        self._say()
        return self._tree.finish()

    def _say(self) -> None:
        """Write the collected text as one piece, across removed tags, so that a formula is checked as a whole."""
        if self._words:
            text = "".join(self._words)
            self._words = []
            self._formulas += len(text) if "$" in text or "\\" in text else 0
            typeset = self.typeset and self._formulas <= MAX_LATEX
            self._tree.text(as_html(text, typeset=typeset), is_space=not text.strip(" \t\n\r\f"))

    def _is_elsewhere(self, token: Start) -> bool:
        """Whether a picture would have to be loaded; notes from where."""
        source = token.attributes.get("src", "")
        if source.lstrip()[:5].lower() in ("", "data:"):
            return False
        self._note_handlers(token)
        host = _HOST.match(source)
        self.pictures.add(host[1].lower() if host else "another file")
        return True

    def _leave_out(self, token: Start | End) -> None:
        self.tags.add(token.name[:30])
        if isinstance(token, Start):
            self._note_handlers(token)
            if token.name in self.gone:
                self._skipped, self._skip_depth = token.name, 1

    def _skip(self, token: Start | End | str) -> None:
        if isinstance(token, str):
            return
        if isinstance(token, Start):
            self._note_handlers(token)
        if token.name == self._skipped:
            self._skip_depth += 1 if isinstance(token, Start) else -1
            if not self._skip_depth:
                self._skipped = ""

    def _note_handlers(self, token: Start) -> None:
        self.handlers.update(name for name in token.attributes if name.startswith("on") and name.isalpha())

    def split(self, markup: str) -> Iterable[Token]:
        """Return the tokens of the markup."""
        return tokens(markup)

    def attribute(self, tag: str, name: str, value: str) -> str | None:
        """Return the value of an allowed attribute, None if it is left out."""
        if name == "class":
            return " ".join(dict.fromkeys(word for word in value.split() if word in CLASSES[tag])) or None
        return _clean_attribute(name, value)

    def _attributes(self, token: Start) -> str:
        if not token.attributes:
            return ""
        kept, written, spanned = self.kept[token.name], "", 1
        for name, value in token.attributes.items():
            if name not in kept:
                if name.startswith("on") and name.isalpha():
                    self.handlers.add(name[:30])
                continue
            clean = self.attribute(token.name, name, value)
            if clean is not None:
                written += f' {name}="{escape(clean)}"'
                spanned *= int(clean) if name in _SPANS else 1
        self._spanned += spanned if spanned > 1 else 0
        if self._spanned > MAX_SPANNED:
            raise ContentRefused(f"the cells of its tables span more than {MAX_SPANNED} places")
        return written


def _clean_attribute(name: str, value: str) -> str | None:
    if name == "style":
        return clean_style(value, HTML_PROPERTIES)
    if name == "src":
        return check_data_url(value)
    if name == "href":
        return value.strip() if _LINK.match(value.strip()) else None
    if name in _SPANS:
        return value if _SPAN.match(value) else None
    if name in ("title", "alt", "summary"):
        return value[:1000]
    return value if _SHORT.match(value) else None

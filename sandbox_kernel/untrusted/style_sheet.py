"""Scopes a style sheet: every rule is written anew, for elements below one element of ours, from names on our lists.

``tinycss2`` splits the text into tokens by the CSS specification. A name, a number or a string is written only if it
needs no escape, so that a browser reads what was checked here. The element around the output contains it
(``contain``): nothing inside is drawn outside of it, whatever its position, and no selector selects that element or one
outside of it. So positions and negative margins are allowed here, other than in a style attribute; only ``fixed`` is
not. A value never loads anything.

One rule that cannot be written makes the whole sheet ``NotScoped``, and its output is shown in a frame. Only what
browsers may ignore anyway is left out: ``@supports``, and declarations of other vendors or with a function that no
browser knows.
"""

from __future__ import annotations

import re
from typing import Any

import tinycss2

from sandbox_kernel.untrusted.css import HTML_PROPERTIES


class NotScoped(Exception):
    """A style that cannot be confined to its output in a page. The text says why, for tests and readers of code."""


#: A sheet of this size is read in a third of a second.
MAX_SHEET = 200_000
#: Deepest nesting of brackets.
_MAX_DEPTH = 12
#: The most comparisons of a selector with an element that a page has to make: a fraction of a second.
MAX_COMPARISONS = 20_000_000
#: The work for one letter of text, in comparisons.
_LETTER = 10

_BRACKET = re.compile(r"[({\[]|[)}\]]")
_MEDIA_WORDS = frozenset(("ident", "whitespace", "number", "dimension"))


def scoped_sheet(sheet: str, name: str, elements: int) -> str:
    """Return the sheet for an output inside ``<div class=NAME>``, empty if it has no rules; or raise ``NotScoped``.

    Args:
        sheet: the text of all style elements of an output; hostile.
        name: the class of the element around the output. Classes, ids and variables of the sheet get it as a prefix.
        elements: at least the number of elements of the output.

    """
    if len(sheet) > MAX_SHEET:
        raise NotScoped("it is too long")
    _check_depth(sheet)
    budget = _Budget(elements)
    # Comments are kept as tokens: without them, url/**/(x) would be read as two tokens and written as one.
    rules = _rules(tinycss2.parse_stylesheet(sheet, skip_whitespace=True), name, budget)
    if not rules:
        return ""
    written = f".{name}{{contain:layout paint;isolation:isolate;overflow:auto}}{rules}"
    if _FLEXIBLE.search(written) and _RELATIVE_SPACE.search(written):
        raise NotScoped("space in percent inside of flexible boxes, which takes a browser long")
    if "<" in written or "\\" in written:  # the lists allow neither
        raise NotScoped("it holds signs that end a style element")
    return written


_FLEXIBLE = re.compile(r"\b(?:flex|grid)\b")
#: Space around boxes in percent other than zero, or in a variable that may stand for it.
_RELATIVE_SPACE = re.compile(r"(?:padding|margin|--)[\w-]*:[^;}]*[1-9][0-9.eE+-]*%")


class _Budget:
    """Counts the work that a page has with a sheet: selectors, text that it adds, variables that stand for others."""

    def __init__(self, elements: int) -> None:
        self._elements = max(1, elements)
        self._left = MAX_COMPARISONS
        self._expanded = 1

    def spend(self, steps: int, siblings: int) -> None:
        """Count one selector that is compared with every element: its steps, and those that look at all siblings."""
        self._left -= self._elements * (steps + siblings * self._elements)
        if self._left < 0:
            raise NotScoped("its selectors would keep the page busy")

    def declare(self, text: str) -> None:
        """Count one declaration, for every element: the text that it adds, or what variables in variables become."""
        if text.startswith("content:"):
            self.spend(len(text) * _LETTER, 0)
        elif text.startswith("--") and (variables := text.count("var(--sk")) > 1:
            self._expanded *= variables
            self.spend(self._expanded, 0)


def _check_depth(sheet: str) -> None:
    depth = 0
    for bracket in _BRACKET.findall(sheet):
        depth = depth + 1 if bracket in "({[" else max(0, depth - 1)
        if depth > _MAX_DEPTH:
            raise NotScoped("its brackets are nested too deep")


def _rules(nodes: list[Any], name: str, budget: _Budget) -> str:
    return "".join(_rule(node, name, budget) for node in nodes if node.type != "comment")


def _rule(node: Any, name: str, budget: _Budget) -> str:
    if node.type == "at-rule":
        return _at_rule(node, name, budget)
    if node.type != "qualified-rule":
        raise NotScoped(f"it has {node.type} between its rules")
    selectors = _selectors(node.prelude, name, budget)
    parts = tinycss2.parse_blocks_contents(node.content, skip_comments=True, skip_whitespace=True)
    written = [text for part in parts if (text := _declaration(part, name)) is not None]
    for text in written:
        budget.declare(text)
    return f"{selectors}{{{';'.join(written)}}}" if written else ""


def _at_rule(node: Any, name: str, budget: _Budget) -> str:
    keyword = node.lower_at_keyword
    if keyword == "supports" and node.content is not None:
        return ""  # written for browsers that may not have it
    if keyword != "media" or node.content is None:
        raise NotScoped(f"@{keyword[:30]}")
    condition = _media(node.prelude)
    nodes = tinycss2.parse_rule_list(node.content, skip_whitespace=True)
    return f"@media {condition}{{{_rules(nodes, name, budget)}}}"


def _media(prelude: list[Any]) -> str:
    for part in prelude:
        inner = part.content if part.type == "() block" else ()
        if not (part.type in ("ident", "whitespace", "() block") or part == ","):
            raise NotScoped("a condition of @media")
        if not all(word.type in _MEDIA_WORDS or word == ":" for word in inner):
            raise NotScoped("a condition of @media")
    written = str(tinycss2.serialize(prelude)).strip()
    if not re.fullmatch(r"[A-Za-z0-9 ():.,\n\t-]{1,300}", written):
        raise NotScoped("a condition of @media")
    return written


# -- selectors: each begins below the element around the output, and its classes and ids get a prefix -----------------
#
# The prefix keeps classes of the page out of reach. ``:where`` adds nothing to the weight of a selector, so that styles
# of the page and of the output win or lose as they do without us. Allowed are types, classes, ids, ``[open]``, the four
# combinators, and pseudo-classes that look at the element, its state or its place among its siblings.

_MAX_STEPS = 12
_IDENT = r"-?[A-Za-z_][A-Za-z0-9_-]{0,99}+"
#: A name that needs no escape.
NAME = re.compile(rf"{_IDENT}\Z")
_STATES = (
    "hover|focus|focus-visible|focus-within|active|checked|disabled|enabled|link|visited|any-link|empty|first-child|"
    "last-child|only-child|first-of-type|last-of-type|only-of-type"
)
_END = r"(?![A-Za-z0-9_-])"
_PLAIN = (
    rf"[.#]{_IDENT}|::?(?:before|after){_END}|::(?:marker|first-line|first-letter){_END}|:(?:{_STATES}){_END}"
    r"|:nth-(?:last-)?(?:child|of-type)\(\s*(?:even|odd|[+-]?[0-9]{0,5}n?(?:\s*[+-]\s*[0-9]{1,5})?)\s*\)"
    r"|\[\s*(?:open|hidden|checked)\s*\]"
)
#: A type is never that of an element outside of the output: its rules are meant for a whole page.
_TYPE = rf"(?:\*|(?!(?:html|body|head){_END}){_IDENT})"
_ONE = rf"(?:{_TYPE}(?:{_PLAIN})*+|(?:{_PLAIN})++)"
_COMPOUND = re.compile(
    rf"(?!\Z|[\s>+~]){_TYPE}?(?:{_PLAIN}|:(?:is|not|where)\(\s*{_ONE}(?:\s*,\s*{_ONE})*\s*\))*+", re.IGNORECASE
)
_COMBINATOR = re.compile(r"\s*([>+~])\s*|\s+")
_OWN_NAME = re.compile(rf"([.#])({_IDENT})")


def _prefixed(name: str, text: str) -> str:
    if not NAME.match(text):
        raise NotScoped("a name with signs")
    return f"{name}-{text}"


def _selectors(prelude: list[Any], name: str, budget: _Budget) -> str:
    """Return the selectors of a rule, scoped to elements below ``.NAME``."""
    lists: list[list[Any]] = [[]]
    for part in prelude:
        if part == ",":
            lists.append([])
        elif part.type != "comment":
            lists[-1].append(part)
    return ",".join(_selector(_one_blank(tinycss2.serialize(parts)), name, budget) for parts in lists)


def _one_blank(text: str) -> str:
    """Return text without runs of blanks: patterns of selectors try each way to part a run."""
    return re.sub(r"\s+", " ", text).strip()


def _selector(text: str, name: str, budget: _Budget) -> str:
    written, compound, at, steps, siblings = "", "", 0, 0, 0
    while at < len(text) or not steps:
        if steps:
            sign = _COMBINATOR.match(text, at)
            if sign is None:
                raise NotScoped("a selector")
            written, at, siblings = written + (sign[1] or " "), sign.end(), siblings + (sign[1] == "~")
        found = _COMPOUND.match(text, at)
        if found is None or not found[0]:
            raise NotScoped("a selector")
        compound, at, steps = found[0], found.end(), steps + 1
        written += _OWN_NAME.sub(rf"\1{name}-\2", compound)
    if steps > _MAX_STEPS:
        raise NotScoped("a selector with many steps")
    if "#" not in re.sub(r"\(.*\)", "", compound):  # a browser finds elements by their id at once
        budget.spend(steps, siblings)
    return f":where(.{name}) {written}"


# -- declarations ----------------------------------------------------------------------------------------------------

_MORE_NAMES = (
    "align-content align-items align-self accent-color appearance aspect-ratio background background-clip "
    "background-color background-image background-origin background-position background-repeat background-size "
    "block-size border-image bottom box-shadow break-inside caret-color clear clip-path color-scheme column-gap "
    "content cursor filter flex flex-basis flex-direction flex-flow flex-grow flex-shrink flex-wrap float font "
    "font-feature-settings font-kerning font-stretch font-variant-numeric gap grid grid-area grid-auto-columns "
    "grid-auto-flow grid-auto-rows grid-column grid-column-end grid-column-start grid-gap grid-row grid-row-end "
    "grid-row-start grid-template grid-template-areas grid-template-columns grid-template-rows hyphens "
    "inline-size inset justify-content justify-items justify-self left list-style list-style-position "
    "max-block-size max-inline-size min-height object-fit object-position order outline outline-color "
    "outline-offset outline-style outline-width overflow-anchor page-break-inside place-content place-items "
    "place-self pointer-events position resize right row-gap scrollbar-color scrollbar-width tab-size "
    "text-align-last text-decoration-color text-decoration-line text-decoration-style text-decoration-thickness "
    "text-overflow text-shadow text-underline-offset text-wrap top transform transform-origin transition "
    "transition-delay transition-duration transition-property transition-timing-function unicode-bidi user-select "
    "visibility word-wrap writing-mode z-index zoom -webkit-font-smoothing -moz-osx-font-smoothing"
)
_BORDERS = frozenset(
    f"border-{side}-{what}" for side in ("top", "right", "bottom", "left") for what in ("color", "style", "width")
) | frozenset(f"border-{corner}-radius" for corner in ("top-left", "top-right", "bottom-left", "bottom-right"))
_LOGICAL = frozenset(
    f"{box}-{side}"
    for box in ("margin", "padding")
    for side in ("block", "block-start", "block-end", "inline", "inline-start", "inline-end")
)
_PROPERTIES = HTML_PROPERTIES | _BORDERS | _LOGICAL | frozenset(_MORE_NAMES.split())
#: Positions that stay where the element around the output can contain them.
_POSITIONS = frozenset(("static", "relative", "absolute", "sticky", "initial", "inherit", "unset"))
_FUNCTION_NAMES = (
    "rgb rgba hsl hsla hwb lab lch oklab oklch color color-mix light-dark linear-gradient radial-gradient "
    "conic-gradient repeating-linear-gradient repeating-radial-gradient calc min max clamp var translate "
    "translatex translatey scale scalex scaley rotate skew skewx skewy inset circle ellipse polygon grayscale "
    "opacity brightness contrast saturate invert sepia hue-rotate drop-shadow minmax repeat fit-content "
    "cubic-bezier steps"
)
_FUNCTIONS = frozenset(_FUNCTION_NAMES.split())
_LOADING_NAMES = (
    "url src image image-set -webkit-image-set cross-fade -webkit-cross-fade element -moz-element paint attr env"
)
_LOADING = frozenset(_LOADING_NAMES.split())
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,9}(?:\.[0-9]{0,12})?|\.[0-9]{1,12})(?:[eE]-?[0-9])?\Z")
_MOST = 100_000
_UNIT = re.compile(r"[A-Za-z]{1,5}\Z")
_COLOUR = re.compile(r"[0-9A-Fa-f]{3,8}\Z")
#: Strings without escapes, control characters and signs that a page reads otherwise.
_STRING = re.compile(r"[^\"\\<$\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]{0,500}\Z")
_OPERATORS = frozenset((",", "/", "*", "+", "-"))
#: Variables of the page that may be read: those of JupyterLab and VS Code.
_OF_PAGE = re.compile(r"--(?:jp|vscode)-[a-z0-9-]{1,60}\Z")
_MAX_TOKENS = 400
#: The most shadows in one value, and parts of a variable, which may become shadows: each blurs a whole box.
_MAX_SHADOWS = 8


def _declaration(node: Any, name: str) -> str | None:
    """Return one declaration, None where a browser would ignore it too; raises ``NotScoped``."""
    if node.type != "declaration":
        raise NotScoped(f"it has {node.type} inside of a rule")
    prop = node.lower_name
    if node.name.startswith("--"):
        prop = f"--{_prefixed(name, node.name[2:])}"
    elif prop not in _PROPERTIES:
        if prop.startswith(("-webkit-", "-moz-", "-ms-", "-o-")):
            return None
        raise NotScoped(f"{prop[:40]}")
    try:
        value = _Value(name).text(node.value).strip()
    except _Unknown:
        return None
    parts = 1 + sum(token.type == "literal" and token.value == "," for token in node.value)
    if parts > _MAX_SHADOWS and prop.startswith(("--", "box-shadow", "text-shadow", "filter")):
        raise NotScoped("many shadows")
    if prop == "position" and value.lower() not in _POSITIONS:
        raise NotScoped("a position outside of the output")
    return f"{prop}:{value}{'!important' if node.important else ''}"


class _Unknown(Exception):
    """A function that is on no list: browsers ignore a declaration with one that they do not know."""


class _Value:
    """Writes the tokens of one value."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tokens = 0

    def text(self, tokens: list[Any]) -> str:
        return "".join(map(self._token, tokens))

    def _token(self, token: Any) -> str:
        self._tokens += 1
        if self._tokens > _MAX_TOKENS:
            raise NotScoped("a long value")
        kind = token.type
        if kind in ("whitespace", "comment"):  # a comment parts what would become one word without it: url/**/("…")
            return " "
        if kind == "ident" and NAME.match(token.value):
            return str(token.value)
        if kind == "hash" and _COLOUR.match(token.value):
            return f"#{token.value}"
        if kind == "string" and _STRING.match(token.value):
            return f'"{token.value}"'
        if kind == "literal" and token.value in _OPERATORS:
            return str(token.value)
        if kind in ("number", "percentage", "dimension"):
            return _number(token)
        if kind == "() block":  # the space keeps it from becoming the arguments of the word before
            return f" ({self.text(token.content)})"
        if kind == "function":
            return self._function(token)
        raise NotScoped(f"a value with {kind}")

    def _function(self, token: Any) -> str:
        function = token.lower_name
        if function in _LOADING:
            raise NotScoped(f"{function}()")
        if function not in _FUNCTIONS:
            raise _Unknown
        if function == "var":
            return f"var({self._variable(token.arguments)})"
        return f"{function}({self.text(token.arguments)})"

    def _variable(self, arguments: list[Any]) -> str:
        tokens = [token for token in arguments if token.type != "comment"]
        while tokens and tokens[0].type == "whitespace":
            tokens.pop(0)
        if not tokens or tokens[0].type != "ident" or not tokens[0].value.startswith("--"):
            raise NotScoped("a variable without a name")
        own = tokens[0].value
        known = own if _OF_PAGE.match(own) else f"--{_prefixed(self._name, own[2:])}"
        return known + self.text(tokens[1:])


def _number(token: Any) -> str:
    digits = token.representation
    if not _NUMBER.match(digits) or abs(token.value) > _MOST:
        raise NotScoped("a number")
    if token.type == "percentage":
        return f"{digits}%"
    if token.type == "dimension":
        if not _UNIT.match(token.unit):
            raise NotScoped("a unit")
        return f"{digits}{token.unit}"
    return str(digits)

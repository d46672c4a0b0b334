"""Writes the declarations of a rule anew: properties that draw, and values made of numbers, words, colours and strings.

A value never loads anything: ``url()`` and its like are ``NotScoped``. The element around the output keeps everything
inside, so positions and negative margins are allowed here, other than in a style attribute; only ``fixed`` is not.
"""

from __future__ import annotations

import re
from typing import Any

from sandbox_kernel.untrusted.markup.css import HTML_PROPERTIES
from sandbox_kernel.untrusted.markup.styles import NotScoped
from sandbox_kernel.untrusted.markup.styles.selectors import NAME, prefixed

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
PROPERTIES = HTML_PROPERTIES | _BORDERS | _LOGICAL | frozenset(_MORE_NAMES.split())
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


def declaration(node: Any, name: str) -> str | None:
    """Return one declaration, None where a browser would ignore it too; raises ``NotScoped``."""
    if node.type != "declaration":
        raise NotScoped(f"it has {node.type} inside of a rule")
    prop = node.lower_name
    if node.name.startswith("--"):
        prop = f"--{prefixed(name, node.name[2:])}"
    elif prop not in PROPERTIES:
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
        known = own if _OF_PAGE.match(own) else f"--{prefixed(self._name, own[2:])}"
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

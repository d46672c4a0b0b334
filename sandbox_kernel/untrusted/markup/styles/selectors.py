"""Scopes selectors: each begins below the element around the output, and its classes and ids get a prefix.

The prefix keeps classes of the page out of reach. ``:where`` adds nothing to the weight of a selector, so that styles
of the page and of the output win or lose as they do without us. Allowed are types, classes, ids, ``[open]``, the four
combinators, and pseudo-classes that look at the element, its state or its place among its siblings.
"""

from __future__ import annotations

import re
from typing import Any

import tinycss2

from sandbox_kernel.ground.values import dataclass
from sandbox_kernel.untrusted.markup.styles import NotScoped

MAX_SELECTORS = 20_000
_MAX_STEPS = 12
#: A name that needs no escape.
NAME = re.compile(r"-?[A-Za-z_][A-Za-z0-9_-]{0,99}\Z")

_STATE_NAMES = "hover focus focus-visible focus-within active checked disabled enabled link visited any-link empty"
_PLACE_NAMES = "first-child last-child only-child first-of-type last-of-type only-of-type"
_STATES = frozenset(f"{_STATE_NAMES} {_PLACE_NAMES}".split())
_COUNTED = frozenset(("nth-child", "nth-last-child", "nth-of-type", "nth-last-of-type"))
_NESTED = frozenset(("is", "not", "where"))
_PARTS = frozenset(("before", "after", "marker", "first-line", "first-letter"))
_ATTRIBUTES = frozenset(("open", "hidden", "checked"))
#: Elements outside of the output: their rules are meant for a whole page.
_PAGE = frozenset(("html", "body", "head"))
_COUNT = re.compile(r"(?:even|odd|[+-]?[0-9]{0,5}n?(?:\s*[+-]\s*[0-9]{1,5})?)\Z", re.IGNORECASE)


@dataclass(frozen=True)
class ScopedSelector:
    """One selector. ``has_id`` is about the element that it selects: a browser finds such elements at once."""

    text: str
    has_id: bool
    steps: int
    siblings: int


def scoped_selectors(prelude: list[Any], name: str) -> list[ScopedSelector]:
    """Return the selectors of a rule, scoped to elements below ``.NAME``; raises ``NotScoped``."""
    lists = _split(prelude)
    if len(lists) > MAX_SELECTORS:
        raise NotScoped("too many selectors")
    return [_Writer(tokens, name).selector() for tokens in lists]


def prefixed(name: str, text: str) -> str:
    """Return a class, id or variable of a sandbox with the prefix of its output."""
    if not NAME.match(text):
        raise NotScoped("a name with signs")
    return f"{name}-{text}"


def _split(tokens: list[Any]) -> list[list[Any]]:
    """Split a list of selectors at its commas, without the space around them."""
    lists: list[list[Any]] = [[]]
    for part in tokens:
        if part.type == "comment":
            continue
        if part == ",":
            lists.append([])
        else:
            lists[-1].append(part)
    return [_stripped(part) for part in lists]


def _stripped(tokens: list[Any]) -> list[Any]:
    start, end = 0, len(tokens)
    while start < end and tokens[start].type == "whitespace":
        start += 1
    while end > start and tokens[end - 1].type == "whitespace":
        end -= 1
    return tokens[start:end]


class _Writer:
    """Writes one selector from its tokens."""

    def __init__(self, tokens: list[Any], name: str) -> None:
        self._tokens = tokens
        self._name = name
        self._at = 0

    def selector(self) -> ScopedSelector:
        text, has_id = self._compound()
        steps, siblings = 1, 0
        while self._at < len(self._tokens):
            sign = self._combinator()
            compound, has_id = self._compound()
            text += sign + compound
            steps += 1
            siblings += sign == "~"
        if steps > _MAX_STEPS:
            raise NotScoped("a selector with many steps")
        return ScopedSelector(f":where(.{self._name}) {text}", has_id, steps, siblings)

    def only_compound(self) -> str:
        """Return a selector for one element, as ``:is`` and ``:not`` take it."""
        text, _ = self._compound()
        if self._at < len(self._tokens):
            raise NotScoped("a selector inside of another")
        return text

    def _combinator(self) -> str:
        sign = " "
        while self._at < len(self._tokens):
            part = self._tokens[self._at]
            if part.type == "literal" and part.value in (">", "+", "~"):
                if sign != " ":
                    raise NotScoped("two combinators")
                sign = str(part.value)
            elif part.type != "whitespace":
                break
            self._at += 1
        return sign

    def _compound(self) -> tuple[str, bool]:
        written, has_id = "", False
        while self._at < len(self._tokens):
            part = self._tokens[self._at]
            if part.type == "whitespace" or (part.type == "literal" and part.value in (">", "+", "~")):
                break
            self._at += 1
            if part.type == "hash" and part.is_identifier:
                written += f"#{prefixed(self._name, part.value)}"
                has_id = True
            elif part.type == "literal" and part.value in (".", ":"):
                written += self._class() if part.value == "." else self._pseudo()
            elif part.type == "[] block":
                written += _attribute(part)
            elif not written and (part == "*" or part.type == "ident"):
                written = _element(part)
            else:
                raise NotScoped("a selector")
        if not written:
            raise NotScoped("a selector without an element")
        return written, has_id

    def _next(self) -> Any:
        if self._at >= len(self._tokens):
            raise NotScoped("a selector that ends early")
        self._at += 1
        return self._tokens[self._at - 1]

    def _class(self) -> str:
        part = self._next()
        if part.type != "ident":
            raise NotScoped("a class without a name")
        return f".{prefixed(self._name, part.value)}"

    def _pseudo(self) -> str:
        part = self._next()
        if part == ":":
            part = self._next()
            if part.type == "ident" and part.lower_value in _PARTS:
                return f"::{part.lower_value}"
        elif part.type == "ident" and part.lower_value in _STATES:
            return f":{part.lower_value}"
        elif part.type == "ident" and part.lower_value in ("before", "after"):
            return f"::{part.lower_value}"
        elif part.type == "function" and part.lower_name in _COUNTED:
            count = str(tinycss2.serialize(part.arguments)).strip()
            if _COUNT.match(count):
                return f":{part.lower_name}({count})"
        elif part.type == "function" and part.lower_name in _NESTED:
            inner = [_Writer(tokens, self._name).only_compound() for tokens in _split(part.arguments)]
            return f":{part.lower_name}({','.join(inner)})"
        raise NotScoped("a pseudo-class")


def _element(part: Any) -> str:
    if part == "*":
        return "*"
    if not NAME.match(part.value) or part.lower_value in _PAGE:
        raise NotScoped("an element outside of the output")
    return str(part.value)


def _attribute(part: Any) -> str:
    (only,) = part.content if len(part.content) == 1 else (None,)
    if only is None or only.type != "ident" or only.lower_value not in _ATTRIBUTES:
        raise NotScoped("a selector by attribute")
    return f"[{only.lower_value}]"

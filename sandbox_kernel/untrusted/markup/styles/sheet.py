"""Scopes a style sheet: every rule is written anew, for elements below one element of ours, from tokens on our lists.

``tinycss2`` splits the text into tokens by the CSS specification. Nothing of the source is copied: a name, a number or
a string is written only if it needs no escape, so that a browser reads what was checked here. The element around
the output contains it (``contain``): nothing inside is drawn outside of it, whatever its position, and no selector
selects that element or one outside of it.

One rule that cannot be written makes the whole sheet ``NotScoped``. Only what browsers may ignore anyway is left out:
``@supports``, and declarations of other vendors or with a function that no browser knows.
"""

from __future__ import annotations

import re
from typing import Any

import tinycss2

from sandbox_kernel.untrusted.markup.styles import NotScoped
from sandbox_kernel.untrusted.markup.styles.selectors import scoped_selectors
from sandbox_kernel.untrusted.markup.styles.values import declaration

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
    if "<" in written or "\\" in written:  # the lists allow neither
        raise NotScoped("it holds signs that end a style element")
    return written


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
    selectors = scoped_selectors(node.prelude, name)
    for selector in selectors:
        if not selector.has_id:
            budget.spend(selector.steps, selector.siblings)
    parts = tinycss2.parse_blocks_contents(node.content, skip_comments=True, skip_whitespace=True)
    written = [text for part in parts if (text := declaration(part, name)) is not None]
    for text in written:
        budget.declare(text)
    return f"{','.join(selector.text for selector in selectors)}{{{';'.join(written)}}}" if written else ""


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

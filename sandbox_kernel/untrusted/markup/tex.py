r"""Checks formulas: allows only TeX commands that draw.

JupyterLab passes every formula of an output, in ``text/latex`` and in HTML text, to MathJax with all its packages.
There ``\href`` makes links, ``\class`` and ``\style`` use the page's styles, ``\fcolorbox`` writes CSS, ``\def`` and
``\definecolor`` change the user's formulas further down, and ``\raise`` draws over other cells. nbconvert copies
``text/latex`` into LaTeX documents, where ``\input`` reads files. So a formula may use only the names in ``tex_names``;
a formula with any other name is shown as its source.
"""

from __future__ import annotations

import re
from html import escape

from sandbox_kernel.untrusted import ContentRefused
from sandbox_kernel.untrusted.markup.tex_names import COMMANDS, ENVIRONMENTS

MAX_LATEX = 64 << 10
#: Most formula delimiters. A page searches the end of each formula: many starts without an end take it minutes.
MAX_DELIMITERS = 400
#: Most formula signs in one HTML output; each may need an element around it.
MAX_SIGNS = 20_000
#: Deepest nesting of braces; MathJax recurses for every brace.
MAX_BRACES = 100

_COMMAND = re.compile(r"\\(?:([A-Za-z]+)|(.)|\Z)|\^(?=\^)", re.DOTALL)
_DELIMITER = re.compile(r"\$|\\[(\[]|\\begin\b")
_BEGINNING = re.compile(r"[\\$]")
_ENVIRONMENT = re.compile(r"\s*\{([A-Za-z]{1,20}\*?)\}")
_COLOUR = re.compile(r"\s*\{[A-Za-z0-9#]{1,30}\}")
_SPACE = re.compile(r"\*?\s*\{\s*[0-9.]{1,4}\s*(?:em|ex|mu|pt|px|mm|cm|in)\s*\}")
#: Space between rows that is negative, which draws over other cells, or higher than a page.
_FAR = re.compile(r"\s*\[\s*(?:-|[0-9.]{4})")
_THICKNESS = re.compile(r"(?:\s*\{[^{}]{0,20}\}){2}\s*\{\s*(?:[0-9.]{1,3}\s*(?:em|ex|mu|pt|px|mm|cm|in)\s*)?\}")
_GAP = "\u200b"
#: A tag of HTML that was cleaned: there is no other < or > in it.
TAG = re.compile(r"(<[^>]*>)")


def check_latex(text: str) -> str:
    """Return the text of a ``text/latex`` output if its formulas only draw, or raise ``ContentRefused``."""
    if len(text) > MAX_LATEX:
        raise ContentRefused(f"it is longer than {MAX_LATEX >> 10} KB")
    for match in _COMMAND.finditer(text):
        if not _only_draws(match, text):
            raise ContentRefused(f"{match[0][:40] if match[1] else '^^'} is not typeset")
    if len(_DELIMITER.findall(text)) > MAX_DELIMITERS:
        raise ContentRefused(f"it holds more than {MAX_DELIMITERS // 2} formulas")
    if _deepest(text) > MAX_BRACES:
        raise ContentRefused(f"its braces are nested deeper than {MAX_BRACES}")
    return text


def as_html(text: str, *, typeset: bool = True) -> str:
    r"""Return text as HTML. A formula that does more than draw is shown as its source.

    MathJax does not read a formula across elements, so a ``<span>`` around the ``\`` (or around the ``$``, if
    ``typeset`` is False) disables it. The look and the copied text stay the same.
    """
    if not typeset:
        return _BEGINNING.sub(lambda match: f"<span>{match[0]}</span>", _escaped(text))
    if "\\" not in text and "^^" not in text:
        return _escaped(text)
    pieces, end = [], 0
    for match in _COMMAND.finditer(text):
        if not _only_draws(match, text):
            pieces += [_escaped(text[end : match.start()]), f"<span>{match[0][0]}</span>"]
            end = match.start() + 1
    return "".join(pieces) + _escaped(text[end:])


def may_be_typeset(markup: str) -> bool:
    """Whether an output has few enough formulas and braces to be typeset.

    Raises ``ContentRefused`` if it has far too many.
    """
    if markup.count("\\") + markup.count("$") + markup.count("^^") > MAX_SIGNS:
        raise ContentRefused(f"it holds more than {MAX_SIGNS} signs of formulas")
    return len(_DELIMITER.findall(markup)) <= MAX_DELIMITERS and _deepest(markup) <= MAX_BRACES


def letters_of_formulas(html: str) -> int:
    """Return how many letters the texts of clean HTML have that a page searches for formulas."""
    if "$" not in html and "\\" not in html:
        return 0
    return sum(len(text) for text in TAG.split(html)[::2] if "$" in text or "\\" in text)


def _escaped(text: str) -> str:
    return escape(text, quote=False)


def defused(html: str) -> str:
    r"""Disable commands that do more than draw, in our own HTML that quotes a sandbox, by an invisible space."""

    def broken(match: re.Match[str]) -> str:
        return match[0] if _only_draws(match, html) else f"{match[0][0]}{_GAP}{match[0][1:]}"

    return _COMMAND.sub(broken, html)


def _only_draws(match: re.Match[str], text: str) -> bool:
    name, sign = match[1], match[2]
    if name is None:
        # A single sign (\, \{ \\) only draws. ^^ can write any character, and \\[-…] moves rows up: both are refused.
        return match[0] != "^" and not (sign == "\\" and _FAR.match(text, match.end()))
    if name in ("begin", "end"):
        found = _ENVIRONMENT.match(text, match.end())
        return found is not None and found[1] in ENVIRONMENTS
    if name in ("color", "textcolor"):
        return bool(_COLOUR.match(text, match.end()))
    if name in ("hspace", "mspace"):
        return bool(_SPACE.match(text, match.end()))
    if name == "genfrac":
        return bool(_THICKNESS.match(text, match.end()))
    return name in COMMANDS


def _deepest(text: str) -> int:
    """Return the largest number of open braces; 0 if there are few. Closing braces without an open one are ignored."""
    if text.count("{") <= MAX_BRACES:
        return 0
    depth = deepest = 0
    for brace in re.findall(r"[{}]", text):
        depth = depth + 1 if brace == "{" else max(0, depth - 1)
        deepest = max(deepest, depth)
    return deepest

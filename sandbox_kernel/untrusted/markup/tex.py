r"""Formulas from a sandbox: text that a typesetter may read, with commands that only draw.

JupyterLab gives every formula in an output to MathJax with all its packages loaded, in ``text/latex`` and in the text
of HTML alike. There ``\href`` links, ``\class`` and ``\style`` reach the page's own look, ``\fcolorbox`` writes CSS,
``\def`` and ``\definecolor`` stay in force for the user's formulas further down, and ``\raise`` draws over other cells.
nbconvert copies ``text/latex`` into LaTeX documents, where ``\input`` reads files. So a formula may use the names of
``tex_names`` and no others; what uses another one is shown as its source.
"""

from __future__ import annotations

import re

from sandbox_kernel.untrusted import ContentRefused
from sandbox_kernel.untrusted.markup.tex_names import COMMANDS, ENVIRONMENTS

MAX_LATEX = 64 << 10
#: A page looks for the end of each formula from its beginning on: many beginnings without an end take it minutes.
MAX_DELIMITERS = 400
#: Signs of formulas in one HTML output; each may need an element of its own to be put out of force.
MAX_SIGNS = 20_000
#: MathJax calls itself for every brace.
MAX_BRACES = 100

_COMMAND = re.compile(r"\\(?:([A-Za-z]+)|(.)|\Z)|\^(?=\^)", re.DOTALL)
_DELIMITER = re.compile(r"\$|\\[(\[]|\\begin\b")
_BEGINNING = re.compile(r"[\\$]")
_ENVIRONMENT = re.compile(r"\s*\{([A-Za-z]{1,20}\*?)\}")
_COLOUR = re.compile(r"\s*\{[A-Za-z0-9#]{1,30}\}")
_SPACE = re.compile(r"\*?\s*\{\s*[0-9.]{1,4}\s*(?:em|ex|mu|pt|px|mm|cm|in)\s*\}")
_UPWARDS = re.compile(r"\s*\[\s*-")
_GAP = "\u200b"


def check_latex(text: str) -> str:
    """Return the text of a ``text/latex`` output whose formulas only draw, or refuse it."""
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
    r"""Text of a sandbox as HTML, in which a formula that does more than draw is shown as its source.

    A typesetter reads a formula only where no element stands in it, so an element around the ``\`` (or the ``$``, where
    nothing is to be typeset) ends it. It changes neither the look nor what is copied.
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
    """Whether one output has few enough formulas, with few enough braces, for a page to look at; far too many are
    refused.
    """
    if markup.count("\\") + markup.count("$") + markup.count("^^") > MAX_SIGNS:
        raise ContentRefused(f"it holds more than {MAX_SIGNS} signs of formulas")
    return len(_DELIMITER.findall(markup)) <= MAX_DELIMITERS and _deepest(markup) <= MAX_BRACES


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")


def defused(html: str) -> str:
    r"""HTML of our own that quotes a sandbox: an invisible space after a ``\`` makes an unknown command of it."""

    def broken(match: re.Match[str]) -> str:
        return match[0] if _only_draws(match, html) else f"{match[0][0]}{_GAP}{match[0][1:]}"

    return _COMMAND.sub(broken, html)


def _only_draws(match: re.Match[str], text: str) -> bool:
    name, sign = match[1], match[2]
    if name is None:
        # A single sign (\, \{ \\) draws; ^^ is TeX's way to write any character; rows do not move upwards.
        return match[0] != "^" and not (sign == "\\" and _UPWARDS.match(text, match.end()))
    if name in ("begin", "end"):
        found = _ENVIRONMENT.match(text, match.end())
        return found is not None and found[1] in ENVIRONMENTS
    if name in ("color", "textcolor"):
        return bool(_COLOUR.match(text, match.end()))
    if name in ("hspace", "mspace"):
        return bool(_SPACE.match(text, match.end()))
    return name in COMMANDS


def _deepest(text: str) -> int:
    """The most braces that are open at once, closed ones counted only where one was open."""
    if text.count("{") <= MAX_BRACES:
        return 0
    depth = deepest = 0
    for brace in re.findall(r"[{}]", text):
        depth = depth + 1 if brace == "{" else max(0, depth - 1)
        deepest = max(deepest, depth)
    return deepest

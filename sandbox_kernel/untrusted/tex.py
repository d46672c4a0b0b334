r"""Formulas: JupyterLab typesets TeX with every MathJax package loaded, in HTML and Markdown outputs too.

So ``$\href{javascript:…}{x}$`` is a live link, ``\class`` and ``\style`` reach the page's own look, and a ``\def``
stays in force for the user's formulas further down. Commands that link, style, load or define are not typeset.
"""

from __future__ import annotations

import re

from sandbox_kernel.untrusted import Refused

MAX_LATEX = 64 << 10

_COMMANDS = (
    "href url class style cssId data htmlData htmlClass htmlId htmlStyle includegraphics require setOptions mmlToken "
    "bbox unicode def edef gdef xdef let futurelet newcommand renewcommand providecommand newenvironment "
    "renewenvironment DeclareMathOperator DeclarePairedDelimiter DeclarePairedDelimiters DeclarePairedDelimiterX "
    "DeclarePairedDelimitersX DeclarePairedDelimiterXPP DeclarePairedDelimitersXPP Newextarrow newtagform renewtagform "
    "usetagform mathtoolsset csname catcode special input include write openout read"
)
_FORBIDDEN = re.compile(rf"\\({'|'.join(_COMMANDS.split())})(?![A-Za-z])")
_CARETS = re.compile(r"\^\^(?=\S)")
#: Invisible, and ends a command's name: TeX sees an unknown command, a reader sees what was written.
_GAP = "\u200b"


def check_latex(text: str) -> str:
    """Return a formula that only draws, or refuse it."""
    if len(text) > MAX_LATEX:
        raise Refused(f"longer than {MAX_LATEX >> 10} KB")
    if found := _FORBIDDEN.search(text):
        raise Refused(f"the command {found[0]} is not typeset")
    if _CARETS.search(text):
        raise Refused("the notation ^^ is not typeset")
    return text


def defused(text: str) -> str:
    """HTML or Markdown in which no formula can link, style, load or define; everything looks as before."""
    text = _FORBIDDEN.sub(lambda match: f"\\{_GAP}{match[1]}", text)
    return _CARETS.sub(f"^{_GAP}^", text)

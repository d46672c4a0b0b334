"""Converts Markdown to clean HTML; a page never gets the Markdown.

Pages parse Markdown differently: JupyterLab removes formulas before parsing and inserts them again without escaping
quotes, and copies the name after a code fence into an attribute, so a formula or a fence could add ``onload="…"`` to an
element. Here ``markdown-it-py``, with raw HTML switched off, makes HTML, and ``html`` cleans it. Formulas are always
text of that HTML, never part of an attribute.
"""

from __future__ import annotations

import re
from functools import cache
from html import escape
from types import SimpleNamespace
from typing import TYPE_CHECKING

from markdown_it import MarkdownIt, helpers

from sandbox_kernel.untrusted import ContentRefused
from sandbox_kernel.untrusted.html import clean_html
from sandbox_kernel.untrusted.tex import may_be_typeset

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from markdown_it.renderer import RendererHTML
    from markdown_it.ruler import RuleOptionsType
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token
    from markdown_it.utils import OptionsDict


#: Most characters of a text, without its embedded pictures.
MAX_MARKDOWN = 256 << 10
#: How often the parser may try its rules; nested links need more and more tries for each character.
MAX_STEPS = 15_000
MAX_CELLS = 6000
MAX_EMPHASIS = 10_000
#: Links and definitions of a text, and characters that are looked at for the address or the title of one.
MAX_LINKS = 1000
_MAX_ADDRESS = 1000
_MAX_NESTING = 20

_PICTURE = re.compile(r"!\[([^\]\[\n]{0,500})\]\((data:image/[a-z]{3,4};base64,[A-Za-z0-9+/=]{1,24000000})\)")
_PLACE = "\ufdd0{}\ufdd1"
_ADDRESS = re.compile(r"<[A-Za-z][A-Za-z0-9+.-]{1,31}:")
_ROW = re.compile(r"[*_~]{4,}")
_LEFT_PLACE = re.compile("\ufdd0\\d*\ufdd1")
_BLOCK = re.compile(r"\$\$|\\begin\{([A-Za-z]{1,20}\*?)\}")
_INLINE = re.compile(
    r"\$\$(?P<display>[^$]+)\$\$|\$(?P<inline>(?!\s)(?:[^$\\]|\\.)+?)(?<!\s)\$(?!\d)"
    r"|\\\\\((?P<round>.+?)\\\\\)|\\\\\[(?P<square>.+?)\\\\\]|\\begin\{(?P<name>[A-Za-z]{1,20}\*?)\}.+?\\end\{(?P=name)\}",
    re.DOTALL,
)


def markdown_to_html(text: str) -> tuple[str, tuple[str, ...]]:
    """Return clean HTML of a Markdown text and a description of what was removed, or raise ``ContentRefused``."""
    pictures: dict[str, str] = {}

    def put_aside(match: re.Match[str]) -> str:
        place = _PLACE.format(len(pictures))
        pictures[place] = match[2]
        return f"![{match[1]}]({place})"

    text = _PICTURE.sub(put_aside, text.replace("\ufdd0", "").replace("\ufdd1", ""))
    if len(text) > MAX_MARKDOWN:
        raise ContentRefused(f"it is longer than {MAX_MARKDOWN >> 10} KB")
    # An upper bound for the number of table cells: a short row gets as many cells as the first row.
    bars = [line.count("|") for line in text.splitlines() if "|" in line]
    if max(bars, default=0) * len(bars) > MAX_CELLS:
        raise ContentRefused(f"its tables have more than {MAX_CELLS} cells")
    if text.count("](") + text.count("]:") + len(_ADDRESS.findall(text)) > MAX_LINKS:
        raise ContentRefused(f"it holds more than {MAX_LINKS} links")
    if sum(map(len, _ROW.findall(text))) > MAX_EMPHASIS:
        raise ContentRefused(f"its rows of *, _ and ~ are longer than {MAX_EMPHASIS} together")
    environment = {"steps": 0, "pictures": pictures, "typeset": may_be_typeset(text)}
    try:
        html = _parser().render(text, environment)
    except RecursionError:
        raise ContentRefused("it is nested too deeply") from None
    return clean_html(_LEFT_PLACE.sub("", html))


@cache
def _parser() -> MarkdownIt:
    """Return the parser: CommonMark with tables, strikethrough and formulas. Made once; state is in the environment."""
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": _MAX_NESTING})
    parser.enable(["table", "strikethrough"])
    # The cleaner checks links. The checks of markdown-it are slow: a Python loop over each character.
    parser.validateLink = lambda url: True  # type: ignore[method-assign]
    parser.normalizeLink = lambda url: url  # type: ignore[method-assign]
    parser.normalizeLinkText = lambda link: link  # type: ignore[method-assign]

    def near(parse: Callable[..., Any]) -> Callable[..., Any]:
        return lambda text, at, end, *rest: parse(text, at, min(end, at + _MAX_ADDRESS), *rest)

    parser.helpers = SimpleNamespace(  # type: ignore[assignment]
        parseLinkLabel=helpers.parseLinkLabel,
        parseLinkDestination=near(helpers.parseLinkDestination),
        parseLinkTitle=near(helpers.parseLinkTitle),
    )
    inside: RuleOptionsType = {"alt": ["paragraph", "reference", "blockquote", "list"]}
    parser.inline.ruler.before("text", "steps", _count)
    parser.inline.ruler.before("escape", "formula", _inline_formula)
    parser.block.ruler.before("code", "steps", _count, inside)
    parser.block.ruler.before("fence", "formula", _block_formula, inside)
    parser.add_render_rule("formula", lambda _, tokens, index, *more: escape(tokens[index].content))
    parser.add_render_rule("formula_block", lambda _, tokens, index, *more: f"<p>{escape(tokens[index].content)}</p>\n")
    parser.add_render_rule("image", _show_picture)
    return parser


def _count(state: StateInline | StateBlock, *_: object) -> bool:
    state.env["steps"] += 1
    if state.env["steps"] > MAX_STEPS:
        raise ContentRefused(f"its parser needs more than {MAX_STEPS} steps")
    return False


def _inline_formula(state: StateInline, silent: bool) -> bool:
    if state.src[state.pos] not in "$\\" or not state.env["typeset"]:
        return False
    kind = "formula"
    if state.src.startswith("\\$", state.pos):  # an escaped dollar sign
        kind, content, length = "html_inline", "<span>$</span>", 2
    else:
        match = _INLINE.match(state.src, state.pos, state.posMax)
        if match is None:
            return False
        content, length = match[0], len(match[0])
        if match["round"] is not None or match["square"] is not None:  # \\( in Markdown is \( in TeX
            content = f"{content[1:-3]}{content[-2:]}"
    if not silent:
        state.push(kind, "", 0).content = content
    state.pos += length
    return True


def _block_formula(state: StateBlock, line: int, last: int, silent: bool) -> bool:
    r"""``$$`` or ``\begin{…}`` at the beginning of a line, up to its end at the end of a line, blank lines included."""
    start = state.bMarks[line] + state.tShift[line]
    opening = _BLOCK.match(state.src, start, state.eMarks[line])
    if opening is None or not state.env["typeset"] or state.is_code_block(line):
        return False
    closing = "$$" if opening[1] is None else f"\\end{{{opening[1]}}}"
    for number in range(line, last):
        _count(state)
        begin = opening.end() if number == line else state.bMarks[number]
        text = state.src[begin : state.eMarks[number]].rstrip()
        if text.endswith(closing):
            break
        if closing in text:
            return False
    else:
        return False
    if not silent:
        state.line = number + 1
        token = state.push("formula_block", "", 0)
        token.content = state.getLines(line, number + 1, state.blkIndent, False).strip()
    return True


def _show_picture(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, environment: dict[str, Any]
) -> str:
    token = tokens[index]
    words = renderer.renderInlineAsText(token.children, options, environment) if token.children else ""
    picture = environment["pictures"].pop(str(token.attrs.get("src", "")), "")
    # A remote picture would report when it is viewed; its alternative text is shown instead.
    return f'<img src="{picture}" alt="{escape(words)}">' if picture else f"[{escape(words or 'picture')}]"

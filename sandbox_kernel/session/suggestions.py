"""Decides which completions of a worker may be written into the user's cell. Pure functions.

A worker may answer with any text for any range, and a page writes it into the cell when the user presses Tab. So a
completion may only continue the word before the cursor: nothing else in the cell changes, and what is added is the rest
of a name. A name is an identifier, a chain of identifiers, a path, a magic, or, between quotes, the key of a dictionary
or the name of a file. It is never a second line, a second statement, or a ``%sandbox`` line, whose options grant
access.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from sandbox_kernel.ground.values import dataclass
from sandbox_kernel.receipt import INVISIBLE

#: The most matches of one answer, and the longest match: a page shows them in a list.
MAX_MATCHES = 1000
MAX_LENGTH = 200

_WORD_BEFORE = re.compile(r"[^\s'\"`\\(){}\[\],;=<>|&!^*#]*\Z")
_WORD = re.compile(r"[\w.$~/@:+-]*=?\Z")
_MAGIC = re.compile(r"%{1,2}[A-Za-z_]\w*\Z")
#: IPython's notation for letters that keyboards lack (``\alpha``).
_SYMBOL_BEFORE = re.compile(r"\\[\w^]*\Z")
_SYMBOL = re.compile(r"\\[\w^]+\Z|\w{1,3}\Z")
#: Characters allowed between quotes: no quote but the one that closes, then the bracket of a key.
_QUOTED = r"[\w .~/@:+\-,()\[\]%&=#?°]*"
_LITERAL = re.compile(rf"(?P<quote>['\"]){_QUOTED}(?P=quote)\]?\Z")


@dataclass(frozen=True)
class Suggestions:
    """Texts that may replace the text between ``start`` and the cursor."""

    matches: tuple[str, ...]
    start: int


def suggestions(matches: object, code: str, start: int, pos: int) -> Suggestions:
    """Return those of a worker's ``matches`` that may replace the text from ``start`` to the cursor at ``pos``.

    Returns none if ``start`` is not the beginning of the word before the cursor, or of a part of it.
    """
    none = Suggestions((), pos)
    line = code[code.rfind("\n", 0, pos) + 1 : pos]
    if not isinstance(matches, list) or not 0 <= pos - start <= len(line):
        return none
    typed, before = code[start:pos], line[: len(line) - (pos - start)]
    allowed = _rule(typed, before)
    if allowed is None:
        return none
    taken = dict.fromkeys(text for text in matches[: 10 * MAX_MATCHES] if _is_name(text) and allowed(text))
    return Suggestions(tuple(taken)[:MAX_MATCHES], start) if taken else none


def _is_name(text: object) -> bool:
    """Whether a text can be a name in any place: short, visible, and no ``%sandbox`` line."""
    return (
        isinstance(text, str)
        and 0 < len(text) <= MAX_LENGTH
        and not INVISIBLE.search(text)
        and "%sandbox" not in text.casefold()
    )


def _rule(typed: str, before: str) -> Callable[[str], bool] | None:
    """Return the test for texts that replace ``typed``, which follows ``before`` on its line; None: nothing may."""
    if re.search(r"\w\Z", before) and not typed.startswith("\\"):
        return None  # the word begins before ``start``
    quote = _open_quote(before)
    if quote is not None and not re.search(r"['\"`\\]", typed):
        between = re.compile(rf"{_QUOTED}(?:{quote}\]?)?\Z")
        return lambda text: text.startswith(typed) and bool(between.match(text, len(typed)))
    if _SYMBOL_BEFORE.match(typed) and typed:
        return lambda text: bool(_SYMBOL.match(text)) and (text.isidentifier() or text.startswith(typed))
    if re.fullmatch(r"%{0,2}\w*", typed) and typed.startswith("%"):
        return lambda text: bool(_MAGIC.match(text)) and text.lstrip("%").startswith(typed.lstrip("%"))
    if not _WORD_BEFORE.match(typed):
        return None
    if not typed and before.endswith("["):
        return lambda text: _goes_on(text) or bool(_LITERAL.match(text))
    return lambda text: text.startswith(typed) and _goes_on(text[len(typed) :])


def _goes_on(rest: str) -> bool:
    """Whether a text can be the rest of a word; an identifier may contain marks that are not letters."""
    return bool(_WORD.match(rest)) or f"_{rest}".isidentifier()


def _open_quote(line: str) -> str | None:
    """Return the quote that is open at the end of a line, by the rules of most languages; None when none is."""
    quote: str | None = None
    escaped = False
    for character in line:
        if escaped or character == "\\":
            escaped = not escaped
        elif quote is None and character in "'\"":
            quote = character
        elif character == quote:
            quote = None
    return quote

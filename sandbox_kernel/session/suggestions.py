"""Which completions of a worker may be written into the user's cell. Pure.

A worker may answer with any text for any range, and a page writes it into the cell at a press of Tab. So a completion
only goes on with the word before the cursor: nothing that stands in the cell is changed but that word, and what is
added is the rest of a name. A name is an identifier, a chain of them, a path, a magic, or, between quotes, the key of a
dictionary or the name of a file. It is never a second line, a second statement, or a line of ``%sandbox``, whose
options open the walls.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from sandbox_kernel.visible import INVISIBLE

#: What one answer may offer. A page shows a list; text that is longer than a name cannot be read in it.
MAX_MATCHES = 1000
MAX_LENGTH = 200

_WORD_BEFORE = re.compile(r"[^\s'\"`\\(){}\[\],;=<>|&!^*#]*\Z")
_WORD = re.compile(r"[\w.$~/@:+-]*=?\Z")
_MAGIC = re.compile(r"%{1,2}[A-Za-z_]\w*\Z")
#: IPython's way to write letters that no keyboard has.
_SYMBOL_BEFORE = re.compile(r"\\[\w^]*\Z")
_SYMBOL = re.compile(r"\\[\w^]+\Z|\w{1,3}\Z")
#: Between quotes: nothing that ends them but the very quote, and the bracket of a key.
_QUOTED = r"[\w .~/@:+\-,()\[\]%&=#?°]*"
_LITERAL = re.compile(rf"(?P<quote>['\"]){_QUOTED}(?P=quote)\]?\Z")


@dataclass(frozen=True)
class Suggestions:
    """Texts that may stand between ``start`` and the cursor."""

    matches: tuple[str, ...]
    start: int


def suggestions(matches: object, code: str, start: int, pos: int) -> Suggestions:
    """Of a worker's ``matches`` for the text from ``start`` to the cursor at ``pos``, those that may be written there.

    Where ``start`` is not the beginning of the word before the cursor, or of a part of it, there are none.
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
    """Whether it can be a name at all, wherever it stands."""
    return (
        isinstance(text, str)
        and 0 < len(text) <= MAX_LENGTH
        and not INVISIBLE.search(text)
        and "%sandbox" not in text.casefold()
    )


def _rule(typed: str, before: str) -> Callable[[str], bool] | None:
    """What is allowed in place of ``typed``, which stands behind ``before`` on its line; None where nothing is."""
    if re.search(r"\w\Z", before) and not typed.startswith("\\"):
        return None  # the word begins before it
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
    """Whether it can be the rest of a word; an identifier may hold marks that are no letters."""
    return bool(_WORD.match(rest)) or f"_{rest}".isidentifier()


def _open_quote(line: str) -> str | None:
    """The quote that is open at the end of a line, as most languages read it."""
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

"""Checks questions about code (completion, documentation, completeness) and the worker's answers to them.

A worker shares its process with the user's code, so every answer may be forged: it may hold any text for any range, and
a page writes a completion into the cell when the user presses Tab. So a completion may only continue the word before
the cursor: nothing else in the cell changes, and what is added is the rest of a name. A name is an identifier, a chain
of identifiers, a path, a magic, or, between quotes, the key of a dictionary or the name of a file. It is never a second
line, a second statement, or a ``%sandbox`` line, whose options grant access.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import msgspec

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.receipt import INVISIBLE
from sandbox_kernel.util.wire import check_each, check_or

#: The longest code that a worker is asked about, in characters; the analysis of more takes too long.
MAX_ASKED = 1 << 20


class _Typed(msgspec.Struct):
    text: str
    type: str = ""
    signature: str = ""


class Completions(msgspec.Struct):
    """Completions of a session or of a wrapped kernel, before they are checked."""

    matches: list[Any] = []
    cursor_start: int = -1
    cursor_end: int = -1
    metadata: dict[str, object] | None = None

    def typed(self) -> list[_Typed]:
        """Return what was said of single matches."""
        entries: list[object] = check_or((self.metadata or {}).get("_jupyter_types_experimental"), [])
        return check_each(entries[:10_000], _Typed)


class Completeness(msgspec.Struct):
    """Whether code is complete, as a session or a wrapped kernel says, and the indent of the next line."""

    status: Literal["complete", "incomplete", "invalid", "unknown"]
    indent: Annotated[str, msgspec.Meta(pattern=r"^(?: {0,200}|\t{0,50})\Z")] = ""


def worth_asking(code: str, pos: int) -> bool:
    """Whether the code is short enough to be asked about; raises ``InvalidRequest`` on arguments of a wrong type."""
    if not isinstance(code, str) or isinstance(pos, bool) or not isinstance(pos, int):
        raise InvalidRequest(f"a question about code takes the code and a position, got {code!r:.60} and {pos!r}")
    try:
        code.encode()
    except UnicodeEncodeError as error:
        raise InvalidRequest(f"the code holds a lone surrogate at position {error.start}; remove it") from None
    return len(code) <= MAX_ASKED


def completions(answer: Mapping[str, object], code: str, pos: int) -> dict[str, object]:
    """Return the answer in Jupyter's form: the range ends at the cursor, ``metadata`` has accepted matches alone."""
    pos = min(max(0, pos), len(code))
    given = check_or(answer, Completions())
    matches, start = suggestions(given.matches, code, given.cursor_start, pos)
    metadata: dict[str, object] = {}
    if matches and (typed := given.typed()):
        # The first counts.
        kinds = {each.text: each.type if each.type in _KINDS else UNKNOWN for each in reversed(typed)}
        metadata["_jupyter_types_experimental"] = [
            {"start": start, "end": pos, "text": text, "type": kinds.get(text, UNKNOWN)} for text in matches
        ]
    return {"matches": matches, "cursor_start": start, "cursor_end": pos, "metadata": metadata}


def documentation(answer: Mapping[str, object]) -> dict[str, object]:
    """Return the documentation as a MIME bundle of texts; empty when the worker has none."""
    data: dict[str, object] = check_or(answer.get("data"), {})
    return {mime: text for mime, text in data.items() if isinstance(text, str)}


def completeness(answer: Mapping[str, object]) -> dict[str, object]:
    """Return ``status`` (complete, incomplete, invalid or unknown) and ``indent`` of the next line: spaces or tabs."""
    without_indent = check_or({"status": answer.get("status")}, Completeness("unknown"))
    return msgspec.structs.asdict(check_or(answer, without_indent))


UNKNOWN = "<unknown>"
#: The kinds of matches that IPython and jedi report. A page shows the kind beside its match; other texts are refused.
_KINDS = frozenset(
    [
        *("class", "dict key", "function", "instance", "keyword", "latex", "magic"),
        *("module", "param", "path", "property", "statement", "unicode", "variable"),
    ]
)


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


def suggestions(matches: list[Any], code: str, start: int, pos: int) -> tuple[list[str], int]:
    """Return those ``matches`` that may replace the text from ``start`` to the cursor, and the start; else none."""
    line = code[code.rfind("\n", 0, pos) + 1 : pos]
    if not 0 <= pos - start <= len(line):
        return [], pos
    typed, before = code[start:pos], line[: len(line) - (pos - start)]
    allowed = _rule(typed, before)
    if allowed is None:
        return [], pos
    taken = dict.fromkeys(text for text in matches[: 10 * MAX_MATCHES] if _is_name(text) and allowed(text))
    return sorted(taken, key=_order)[:MAX_MATCHES], start if taken else pos


def _order(match: str) -> int:
    """The order of completions of every language: private names come last, else as the language has them."""
    name = match.rpartition(".")[2]
    return name.startswith("_") + name.startswith("__")


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
    # Where an attribute begins with its dot, that is a word of its own.
    if re.search(r"\w\Z", before) and not typed.startswith(("\\", ".")):
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

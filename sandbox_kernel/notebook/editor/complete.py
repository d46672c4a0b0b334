"""Completes magic lines: the magics, their commands, options, languages and values. Pure.

For everything that is not on a magic line the kernel asks the session, which knows the program's names.
"""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.model import Language
from sandbox_kernel.notebook.options.cell_options import SESSION_LANGUAGES, CellOptions
from sandbox_kernel.notebook.options.option_table import BY_NAME, COMMAND_NAMES, COMMANDS, OPTIONS
from sandbox_kernel.notebook.options.parse_cell import OF_A_SESSION, CellPlan, parse_cell
from sandbox_kernel.policy import PRESETS

_WORD = re.compile(r"\S*\Z")
_OUR_LINE = re.compile(r"^\ufeff?%{1,2}sandbox(?=\s|\Z).*$", re.MULTILINE)
_NAME = re.compile(r"(?<![\w.])([A-Za-z_]\w*)\Z")
#: Commands that take a session; the others take no arguments.
_OF_A_SESSION = frozenset(OF_A_SESSION)

#: Possible values from the notebook, such as session names, by option.
Known = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Completion:
    """Candidates for the text between ``start`` and ``end``, and the kind of each: command, option, language …."""

    matches: tuple[str, ...]
    start: int
    end: int
    kinds: tuple[str, ...] = ()


def magic_line(code: str, position: int) -> tuple[str, str] | None:
    """Return the magic and the text between it and the cursor; None if the cursor is not on a ``sandbox`` line."""
    line = _line_before(code, position)
    match = re.match(r"(%%?sandbox)(?:\s+(.*))?\Z", line, re.DOTALL)
    return (match[1], match[2] or "") if match and (match[2] is not None or line.endswith(match[1])) else None


def _line_before(code: str, position: int) -> str:
    """Return the line up to the cursor, without a byte order mark."""
    start = code.rfind("\n", 0, position) + 1
    return code[start:position].removeprefix("\ufeff") if start == 0 else code[start:position]


def complete_magic(code: str, position: int, known: Known | None = None) -> Completion | None:
    """Complete a magic line, or the name of the magic; None if the cursor is in the program."""
    position = max(0, min(position, len(code)))
    start = code.rfind("\n", 0, position) + 1
    line = _line_before(code, position)
    if not line.startswith("%"):
        return None
    if re.fullmatch(r"%%?\w*", line):
        names = [name for name in ("%%sandbox", "%sandbox") if name.startswith(line) and (start == 0 or name[1] != "%")]
        return _among(names, "magic", line, position) if names else None
    found = magic_line(code, position)
    if found is None:
        return None
    magic, rest = found
    word = _WORD.search(rest)
    typed = word[0] if word else ""
    before = rest[: len(rest) - len(typed)].split()
    name, equals, value = typed.partition("=")
    if equals and name in BY_NAME:
        return _values(name, value, position, known or {})
    if before and before[-1] in BY_NAME and not BY_NAME[before[-1]].is_flag:
        return _values(before[-1], typed, position, known or {})
    if magic == "%sandbox" and before and before[0] in COMMAND_NAMES:
        return _arguments(before, typed, position)
    return _words(magic, before, typed, position)


def program_of(code: str, defaults: CellOptions) -> CellPlan | None:
    """Parse an unfinished cell. Magic lines are replaced by spaces, so that positions in the program do not change.

    Returns None if its options cannot be parsed, because its session is then unknown.
    """
    try:
        plan = parse_cell(code, defaults)
    except SandboxError:
        return None
    return replace(plan, code=_OUR_LINE.sub(lambda found: " " * len(found[0]), code))


def complete_python(code: str, position: int) -> Completion:
    """Complete keywords and built-in names of Python, for a cell without an open session."""
    match = _NAME.search(code[:position])
    typed = match[1] if match else ""
    names = sorted({*keyword.kwlist, *(n for n in dir(builtins) if not n.startswith("_"))}) if typed else []
    found = [name for name in names if name.startswith(typed)]
    kinds = tuple("keyword" if keyword.iskeyword(name) else "function" for name in found)
    return Completion(tuple(found), position - len(typed), position, kinds)


def with_magics(ours: Completion, known: Mapping[str, object]) -> Completion:
    """Add the magics that the session offers for the same text, after our own."""
    matches = known.get("matches")
    theirs = matches if known.get("cursor_start") == ours.start and isinstance(matches, list) else []
    more = [name for name in theirs if isinstance(name, str) and name.startswith("%") and name not in ours.matches]
    return replace(ours, matches=(*ours.matches, *more), kinds=(*ours.kinds, *["magic"] * len(more)))


def _words(magic: str, before: list[str], typed: str, position: int) -> Completion:
    candidates: list[tuple[str, str]] = []
    if not typed.startswith("-"):
        if magic == "%sandbox" and not before:
            candidates += [(command.name, "command") for command in COMMANDS]
        if not _has_language(before):
            # Aliases of a language are offered only if no full name begins with the typed text.
            own = any(language.startswith(typed) for language in Language)
            candidates += [(str(name), "language") for name in (Language if own else Language.names())]
    used = set(before)
    candidates += [(option.name, "option") for option in OPTIONS if option.repeats or option.name not in used]
    return _typed(candidates, typed, position)


def _arguments(before: list[str], typed: str, position: int) -> Completion:
    """Complete the arguments of a line command: a language or ``--session``, if it takes a session."""
    candidates: list[tuple[str, str]] = []
    if before[0] in _OF_A_SESSION and (before[0] not in ("save", "load", "fork") or len(before) > 1):
        if not _has_language(before):
            candidates += [(language, "language") for language in Language if language in SESSION_LANGUAGES]
        candidates += [] if "--session" in before else [("--session", "option")]
    return _typed(candidates, typed, position)


def _has_language(before: list[str]) -> bool:
    return any(word in Language.names() for word in before)


def _typed(candidates: list[tuple[str, str]], typed: str, position: int) -> Completion:
    found = [(name, kind) for name, kind in candidates if name.startswith(typed)]
    return Completion(
        tuple(name for name, _ in found), position - len(typed), position, tuple(kind for _, kind in found)
    )


def _values(option: str, typed: str, position: int, known: Known) -> Completion:
    samples = PRESETS if option == "--policy" else known.get(option, BY_NAME[option].samples)
    return _among(list(samples), "value", typed, position)


def _among(names: list[str], kind: str, typed: str, position: int) -> Completion:
    found = tuple(name for name in names if name.startswith(typed))
    return Completion(found, position - len(typed), position, (kind,) * len(found))

"""Completion and inspection of magic lines, their ends, and history. For every other line the session is asked."""

from __future__ import annotations

import fnmatch
import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.model import Language
from sandbox_kernel.notebook.options.cell_options import SESSION_LANGUAGES, CellOptions
from sandbox_kernel.notebook.options.option_table import BY_NAME, COMMANDS_BY_NAME, OPTIONS, Takes, usage
from sandbox_kernel.notebook.options.parse_cell import MAX_LINE, CellPlan, parse_cell
from sandbox_kernel.policy import PRESETS
from sandbox_kernel.util.values import dataclass

_OUR_LINE = re.compile(r"^\ufeff?%{1,2}sandbox(?=\s|\Z).*$", re.MULTILINE)
#: Possible values from the notebook, such as session names, by option.
Known = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Completion:
    """Candidates for the text between ``start`` and ``end``."""

    matches: tuple[str, ...]
    start: int
    end: int

    @property
    def is_magic(self) -> bool:
        """Whether they are names of magics, of which a session knows more."""
        return self.matches[:1] in (("%sandbox",), ("%%sandbox",))


def complete_magic(code: str, position: int, known: Known | None = None) -> Completion | None:
    """Complete a magic line, or the name of the magic; None if the cursor is in the program."""
    position = max(0, min(position, len(code)))
    start = code.rfind("\n", 0, position) + 1
    line = code[start:position].removeprefix("\ufeff") if start == 0 else code[start:position]
    if len(line) > MAX_LINE:
        return None
    if re.fullmatch(r"%%?\w*", line):
        names = [name for name in ("%%sandbox", "%sandbox") if name.startswith(line) and (start == 0 or name[1] != "%")]
        return _typed(names, line, position) if names else None
    found = re.match(r"(%%?sandbox)\s+(?:(.*)\s)?(\S*)\Z", line, re.DOTALL)
    if found is None:
        return None
    magic, before, typed = found[1], (found[2] or "").split(), found[3]
    name, equals, value = typed.partition("=")
    option = BY_NAME.get(name if equals else before[-1] if before else "")
    if option is not None and not option.is_flag:
        samples = PRESETS if option.name == "--policy" else (known or {}).get(option.name, option.samples)
        return _typed(samples, value if equals else typed, position)
    if magic == "%sandbox" and before and before[0] in COMMANDS_BY_NAME:
        return _arguments(before, typed, position)
    return _words(magic, before, typed, position)


def program_of(code: str, defaults: CellOptions) -> CellPlan | None:
    """Parse an unfinished cell, with blanks for magic lines: positions stay. None where its session is unknown."""
    try:
        plan = parse_cell(code, defaults)
    except SandboxError:
        return None
    return replace(plan, code=_OUR_LINE.sub(lambda found: " " * len(found[0]), code))


def with_magics(ours: Completion, known: Mapping[str, object]) -> Completion:
    """Add the magics that the session offers for the same text, after our own."""
    matches = known.get("matches")
    theirs = matches if known.get("cursor_start") == ours.start and isinstance(matches, list) else []
    more = [name for name in theirs if isinstance(name, str) and name.startswith("%") and name not in ours.matches]
    return replace(ours, matches=(*ours.matches, *more))


def _words(magic: str, before: list[str], typed: str, position: int) -> Completion:
    candidates: list[str] = []
    if not typed.startswith("-"):
        if magic == "%sandbox" and not before:
            candidates += COMMANDS_BY_NAME
        if not _has_language(before):
            # Aliases of a language are offered only if no full name begins with the typed text.
            own = any(language.startswith(typed) for language in Language)
            candidates += map(str, Language if own else Language.names())
    candidates += [option.name for option in OPTIONS if option.repeats or option.name not in before]
    return _typed(candidates, typed, position)


def _arguments(before: list[str], typed: str, position: int) -> Completion:
    """Complete the arguments of a line command: a language or ``--session``, if it takes a session."""
    candidates: list[str] = []
    takes = COMMANDS_BY_NAME[before[0]].takes
    if takes.a_session and (takes is not Takes.NAME or len(before) > 1):
        if not _has_language(before):
            candidates += [str(language) for language in Language if language in SESSION_LANGUAGES]
        candidates += [] if "--session" in before else ["--session"]
    return _typed(candidates, typed, position)


def _has_language(before: list[str]) -> bool:
    return any(word in Language.names() for word in before)


def _typed(candidates: Sequence[str], typed: str, position: int) -> Completion:
    return Completion(tuple(name for name in candidates if name.startswith(typed)), position - len(typed), position)


_WORD = re.compile(r"[\w%.+-]+")


def explain_magic(code: str, position: int) -> str | None:
    """Explain the magic, option, command or language under the cursor; None if it is not on a magic line."""
    position = max(0, min(position, len(code)))
    start = code.rfind("\n", 0, position) + 1
    if not code.startswith(("%sandbox", "%%sandbox"), start):
        return None
    near = _WORD.finditer(code, max(start, position - 64), position + 64)  # a cell may be long
    words = (found[0] for found in near if found.start() <= position <= found.end())
    word = next(words, "")
    if option := BY_NAME.get(word):
        many = "; may be repeated" if option.repeats else ""
        return f"{option.name} {option.value}\n\n{option.help}{many}\nAccepted: {option.form}"
    if command := COMMANDS_BY_NAME.get(word):
        return f"%sandbox {command.name} {command.arguments}".rstrip() + f"\n\n{command.help}"
    return f"{Language.parse(word)}: the language of the cell" if word in Language.names() else usage()


def is_question(code: object) -> bool:
    """Whether a cell is only the magic with a question mark, like ``%sandbox?``."""
    return isinstance(code, str) and code.strip() in ("%sandbox?", "%%sandbox?", "?%sandbox", "?%%sandbox")


def completeness(code: str, defaults: CellOptions) -> str | None:
    """Return whether a cell is complete, incomplete or invalid by our own lines; None where its session knows."""
    magic = code.lstrip().startswith("%%sandbox")
    # As for every cell magic, an empty line ends the cell.
    if magic and not code.endswith("\n"):
        return "incomplete"
    try:
        plan = parse_cell(code, defaults)
    except SandboxError:
        return "invalid"
    return "complete" if magic or not plan.code.strip() else None


#: Most cells that are kept, of which a console asks for at most 1000; most characters of a value.
MAX_ENTRIES, MAX_OUTPUT = 10_000, 10_000
#: Number of the only session; history of earlier kernels is not kept.
SESSION = 1

Row = tuple[int, int, str] | tuple[int, int, tuple[str, str | None]]


class History:
    """Cells in the order of their execution: number, text, and the plain text of the value."""

    def __init__(self) -> None:
        self._entries: deque[tuple[int, str, str | None]] = deque(maxlen=MAX_ENTRIES)

    def add(self, number: int, source: str, value: str | None) -> None:
        """Add a cell. Its value comes from the sandbox and may be long, so only its beginning is kept."""
        if value is not None and len(value) > MAX_OUTPUT:
            value = f"{value[:MAX_OUTPUT]}…"
        self._entries.append((number, source, value))

    def find(self, asked: Mapping[str, Any]) -> list[Row]:
        """Return what a ``history_request`` asks for, as Jupyter's protocol describes it, oldest first."""
        kind, n, found = asked.get("hist_access_type"), asked.get("n"), list(self._entries)
        if kind == "range":
            start, stop = asked.get("start") or 0, asked.get("stop")
            own = (asked.get("session") or 0) in (0, SESSION)
            found = [one for one in found if own and one[0] >= start and (stop is None or one[0] < stop)]
        elif kind == "search":
            found = [one for one in found if fnmatch.fnmatchcase(one[1], asked.get("pattern") or "*")]
            if asked.get("unique"):
                found = sorted({one[1]: one for one in found}.values(), key=lambda one: one[0])
        else:
            n = 10 if n is None else n
        if kind != "range" and n is not None:
            found = found[-n:] if n > 0 and kind in ("tail", "search") else []
        if asked.get("output"):
            return [(SESSION, number, (source, value)) for number, source, value in found]
        return [(SESSION, number, source) for number, source, _ in found]

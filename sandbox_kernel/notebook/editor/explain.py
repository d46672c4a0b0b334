"""Explains the word under the cursor on a magic line, for ``inspect_request``. Pure."""

from __future__ import annotations

import builtins
import inspect
import re

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.model import Language
from sandbox_kernel.notebook.options.option_table import BY_NAME, COMMANDS, usage

_WORD = re.compile(r"[\w%.+-]")


def word_at(text: str, position: int) -> str:
    """Return the word around a position: letters, digits and the characters of magics and options."""
    position = max(0, min(position, len(text)))
    start = end = position
    while start > 0 and _WORD.match(text[start - 1]):
        start -= 1
    while end < len(text) and _WORD.match(text[end]):
        end += 1
    return text[start:end]


def explain_magic(code: str, position: int) -> str | None:
    """Explain the magic, option, command or language under the cursor; None if it is not on a magic line."""
    position = max(0, min(position, len(code)))
    start = code.rfind("\n", 0, position) + 1
    if not code.startswith(("%sandbox", "%%sandbox"), start):
        return None
    word = word_at(code, position)
    if option := BY_NAME.get(word):
        many = "; may be repeated" if option.repeats else ""
        return f"{option.name} {option.value}\n\n{option.help}{many}\nAccepted: {option.form}"
    for command in COMMANDS:
        if word == command.name:
            return f"%sandbox {command.name} {command.arguments}".rstrip() + f"\n\n{command.help}"
    if word in ("%sandbox", "%%sandbox", ""):
        return usage()
    try:
        return f"{Language.parse(word)}: the language of the cell"
    except InvalidRequest:
        return usage()


def explain_builtin(code: str, position: int) -> str | None:
    """Return the docstring of a Python built-in. It is looked up by name; no code is evaluated."""
    word = word_at(code, position).strip(".+-%")
    value = getattr(builtins, word, None) if word.isidentifier() and not word.startswith("_") else None
    text = inspect.getdoc(value) if value is not None else None
    return f"{word}\n\n{text}" if text else None


def is_question(code: object) -> bool:
    """Whether a cell is only the magic with a question mark, like ``%sandbox?``."""
    return isinstance(code, str) and code.strip() in ("%sandbox?", "%%sandbox?", "?%sandbox", "?%%sandbox")

"""Finds the command, option or language that a mistyped word of a ``%sandbox`` line was meant to be. Pure.

Commands, options and languages are compared together, because users mix them up: ``%sandbox timeout 10s`` means an
option, ``%sandbox --undo`` a command.
"""

from __future__ import annotations

import difflib

from sandbox_kernel.model import Language
from sandbox_kernel.notebook.options.option_table import BY_NAME, COMMAND_NAMES, FLAGS

#: How alike two words must be, from 0 to 1.
_ALIKE = 0.6


def meant(word: str, following: str | None, *, line: bool) -> str | None:
    """Return what the user should write instead of ``word``, or None when no known word is like it.

    Args:
        word: The word that is unknown; with or without leading dashes.
        following: The next word of the line. It is repeated as the value of a suggested option.
        line: Whether the word stands on a ``%sandbox`` line, where commands may stand; else on a ``%%sandbox`` line.

    """
    dashes = word.startswith("-")
    value = f" {following}" if following and not following.startswith("-") else ""
    options: dict[str, str] = {}
    for name, option in BY_NAME.items():
        if name.startswith("--"):
            shown = name if dashes else f"{'%sandbox ' if line else ''}{name}{'' if option.is_flag else value}"
            options[name.removeprefix("--")] = shown
    others = {language: language for language in Language.names()}
    others |= {command: command if line and not dashes else f"%sandbox {command}" for command in COMMAND_NAMES}
    others |= {flag: f"%sandbox {command} --{flag}" for command, flag in FLAGS.items()}
    # A few words, like python, are both; the dashes then say which one is meant.
    known = others | options if dashes else options | others
    near = difflib.get_close_matches(word.lstrip("-").lower(), known, n=1, cutoff=_ALIKE)
    return known[near[0]] if near else None


def asks_for_help(words: list[str]) -> bool:
    """Whether ``--help`` or ``-h`` is one of the words, and not the value of an option before it."""
    is_value = False
    for word in words:
        if not is_value and word in ("--help", "-h"):
            return True
        option = BY_NAME.get(word)
        is_value = not is_value and option is not None and not option.is_flag
    return False

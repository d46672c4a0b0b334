"""Finds what the first word of a command line was meant to be, when it is no command. Pure but for one look at a file.

Commands, options and languages are compared together, and what notebooks have: users mix them up.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection, Iterable

from sandbox_kernel.model import Language

#: How alike two words must be, from 0 to 1.
_ALIKE = 0.6
#: What users of other tools call a command of ours.
_OTHER_WORDS = {"list": "wrapped"}


def meant_line(words: list[str], commands: Collection[str], run_options: Iterable[str]) -> str:
    """Return the end of an error message: the line that was meant, or all commands when none is like it.

    Args:
        words: The words of the command line; the first one is no command.
        commands: The names of all commands.
        run_options: The options of ``sandbox-kernel run``, with their dashes.

    """
    word, rest = words[0], " ".join(words[1:4])
    if not word.startswith("-") and os.path.isfile(word):
        return f"did you mean sandbox-kernel run {word}?"
    options = {option.lstrip("-"): option for option in run_options if option.startswith("--")}
    known = {language: f"sandbox-kernel run --language {language}" for language in Language.names()}
    known |= {name: f"%sandbox {name} in a notebook" for name in _of_notebooks()}
    known |= {name: f"sandbox-kernel run {option}" for name, option in options.items()}
    known |= {name: f"sandbox-kernel {name}" for name in commands}
    known |= {name: f"sandbox-kernel {command}" for name, command in _OTHER_WORDS.items()}
    near = difflib.get_close_matches(word.lstrip("-").partition("=")[0].lower(), known, n=1, cutoff=_ALIKE)
    if not near:
        return f"the commands are: {', '.join(commands)}"
    line = known[near[0]]
    return f"did you mean {line if line.endswith('notebook') else f'{line} {rest}'.rstrip()}?"


def _of_notebooks() -> tuple[str, ...]:
    from sandbox_kernel.notebook.options.option_table import COMMAND_NAMES  # only lines with a mistake need it

    return COMMAND_NAMES

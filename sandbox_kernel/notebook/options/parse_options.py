"""Parses the words of an option line into ``CellOptions``, and suggests what a mistyped word was meant to be. Pure.

Each error quotes the option and its accepted form. Commands, options and languages are compared together, because users
mix them up: ``%sandbox timeout 10s`` means an option, ``%sandbox --undo`` a command.
"""

from __future__ import annotations

import difflib
import os
import shlex
from collections import Counter
from typing import Any

from sandbox_kernel.errors import InvalidRequest, SandboxError
from sandbox_kernel.model import Language
from sandbox_kernel.model.units import parse_duration, parse_megabytes
from sandbox_kernel.notebook.options.cell_options import CellOptions
from sandbox_kernel.notebook.options.option_table import BY_NAME, COMMAND_NAMES, COMMANDS, Option, short

#: The environment variable that names the folder that cells of a new notebook work on; see ``--here``.
HERE_VARIABLE = "SANDBOX_KERNEL_HERE"
GPU_VARIABLE = "SANDBOX_KERNEL_GPU"
#: Further options of a new notebook, as on a ``%sandbox`` line: ``sandbox-kernel install --mount``.
OPTIONS_VARIABLE = "SANDBOX_KERNEL_OPTIONS"
MEMORY_VARIABLE, TIMEOUT_VARIABLE = "SANDBOX_KERNEL_MEMORY", "SANDBOX_KERNEL_TIMEOUT"
#: Most characters of an option line, for data belongs into the cell, and how often an option may stand in it. Lines are
#: read on the loop that also hears Stop, and each value is compared with all others.
MAX_LINE, MAX_REPEATS = 4096, 64
#: How alike a word and one that is known must be, from 0 to 1.
_ALIKE = 0.6
_EXCLUDING = (("--fresh", "--session"), ("--stdin", "--stdin-var"))


def split_words(line: str, magic: str) -> list[str]:
    """Split an option line into words. Quotes and backslashes work as in a shell."""
    if len(line) > MAX_LINE:
        raise InvalidRequest(
            f"{magic}: the option line has {len(line)} characters, at most {MAX_LINE} are read; put data into the cell"
        )
    try:
        return shlex.split(line)
    except ValueError as error:
        raise InvalidRequest(
            f"{magic} {short(line)!r}: {str(error).lower()}; close the quote, or write \\ before it"
        ) from None


def parse_options(words: list[str], commands: tuple[str, ...] = ()) -> CellOptions:
    """Parse at most one language and any options, in any order. ``--name value`` and ``--name=value`` are the same.

    Args:
        words: The words of the line, as ``split_words`` returns them.
        commands: The line commands that could stand at the same place; an error then mentions them.

    """
    fields: dict[str, Any] = {}
    given: Counter[str] = Counter()
    queue = list(reversed(words))
    while queue:
        word = queue.pop()
        if not word.startswith("-"):
            following = queue[-1] if queue else None
            fields["language"] = _language(word, following, fields.get("language"), commands)
            continue
        name, equals, value = word.partition("=")
        option = BY_NAME.get(name)
        if option is None:
            raise InvalidRequest(_unknown(name, line=bool(commands)))
        if name in given and not option.repeats:
            raise InvalidRequest(f"{name} is given twice; keep one")
        given[name] += 1
        if given[name] > MAX_REPEATS:
            raise InvalidRequest(f"{name} is given more than {MAX_REPEATS} times on one line; give fewer")
        if option.is_flag:
            if equals:
                raise InvalidRequest(f"{name} takes no value, got {short(word)!r}; write {name} alone")
            fields[option.field] = True
            continue
        if option.optional and not equals:
            value = queue.pop() if queue and _is_value(queue[-1], commands) else ""
        elif not equals:
            if not queue:
                raise InvalidRequest(f"{name} needs a value: {option.form}")
            value = queue.pop()
        parsed = parse_value(option, value)
        if option.repeats:
            earlier = fields.get(option.field, ())
            if option.key is not None and option.key(parsed) in map(option.key, earlier):
                raise InvalidRequest(f"{name} {short(value)!r} is given twice; keep one")
            parsed = (*earlier, parsed)
        fields[option.field] = parsed
    for one, other in _EXCLUDING:
        if one in given and other in given:
            raise InvalidRequest(f"{one} and {other} exclude each other; keep one")
    return CellOptions(**fields)


def parse_value(option: Option, value: str) -> object:
    """Parse the value of an option. Raises ``InvalidRequest`` that quotes the option, the value and its form."""
    try:
        return option.parse(value, option.name)
    except SandboxError as error:
        text = str(error)
        if not text.startswith(option.name):
            text = f"{option.name} {short(value)!r}: {text}; give {option.form}"
        raise InvalidRequest(text) from None


def first_defaults() -> CellOptions:
    """Return the defaults of a new notebook: none, but for a folder, cards or limits that the environment names.

    ``sandbox-kernel install --here`` and ``--gpu`` write such variables into the kernelspec; a JupyterHub sets limits.
    The folder ``1`` is the notebook's own. Raises ``InvalidRequest`` when a limit or an option is none.
    """
    given = parse_options(split_words(os.environ.get(OPTIONS_VARIABLE, ""), OPTIONS_VARIABLE))
    here, gpu = os.environ.get(HERE_VARIABLE, "").strip(), os.environ.get(GPU_VARIABLE, "").strip()
    memory, timeout = os.environ.get(MEMORY_VARIABLE, "").strip(), os.environ.get(TIMEOUT_VARIABLE, "").strip()
    settings = CellOptions(
        here=None if here in ("", "0") else "." if here == "1" else here,
        gpu=gpu or None,
        memory_mb=parse_megabytes(memory, MEMORY_VARIABLE) if memory else None,
        timeout_s=parse_duration(timeout, TIMEOUT_VARIABLE) if timeout else None,
    )
    return settings.over(given)


def asks_for_help(words: list[str]) -> bool:
    """Whether ``--help`` or ``-h`` is one of the words, and not the value of an option before it."""
    is_value = False
    for word in words:
        if not is_value and word in ("--help", "-h"):
            return True
        option = BY_NAME.get(word)
        is_value = not is_value and option is not None and not option.is_flag
    return False


def _is_value(word: str, commands: tuple[str, ...]) -> bool:
    """Whether a word after an option whose value may be left out is that value: no option, language or command."""
    return not word.startswith("-") and word not in (*Language.names(), *commands)


def _unknown(name: str, *, line: bool) -> str:
    near = _meant(short(name), None, line=line)
    hint = f"did you mean {near}?" if near else f"known options: {' '.join(BY_NAME)}"
    return f"unknown option {short(name)!r}; {hint}"


def _language(word: str, following: str | None, known: Language | None, commands: tuple[str, ...]) -> Language:
    if word in commands:
        raise InvalidRequest(f"{word!r} is a command: it stands first on a line of its own, %sandbox {word}")
    if known is not None:
        hint = f"did you mean --{word} {following or ''}".rstrip() + "?" if f"--{word}" in BY_NAME else ""
        raise InvalidRequest(
            f"{short(word)!r} is one word too many: the language is already {known}; {hint or 'options begin with --'}"
        )
    try:
        return Language.parse(short(word))
    except InvalidRequest as error:
        near = _meant(short(word), None if following is None else short(following), line=bool(commands))
        if near:
            what = "neither a command nor a language" if commands else "not a language"
            raise InvalidRequest(f"{short(word)!r} is {what}; did you mean {near}?") from None
        if commands:
            raise InvalidRequest(
                f"{short(word)!r} is neither a command ({', '.join(commands)}) nor a language ({', '.join(Language)})"
            ) from None
        raise InvalidRequest(str(error)) from None


def _meant(word: str, following: str | None, *, line: bool) -> str | None:
    """Return what the user should write instead of ``word``, or None when no known word is like it.

    ``following`` is repeated as the value of a suggested option. ``line``: commands may stand here.
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
    others |= {command.flag: f"%sandbox {command.name} --{command.flag}" for command in COMMANDS if command.flag}
    # A few words, like python, are both; the dashes then say which one is meant.
    known = others | options if dashes else options | others
    near = difflib.get_close_matches(word.lstrip("-").lower(), known, n=1, cutoff=_ALIKE)
    return known[near[0]] if near else None

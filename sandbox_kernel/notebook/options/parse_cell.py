"""Parses the text of a cell into a ``CellPlan``, for the kernel and the magic.

A cell is, in this order: empty lines and nbval comments; either one ``%%sandbox`` line or any number of ``%sandbox``
lines; the program. Magic lines become empty lines, so that the program keeps its line numbers.
"""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import field, replace
from itertools import takewhile
from typing import Any

from sandbox_kernel.errors import InvalidRequest, PolicyViolation
from sandbox_kernel.jail.accounting.cgroups import page_memory_mb
from sandbox_kernel.limits import PAGE_TIMEOUT_S
from sandbox_kernel.model import MAX_CODE_BYTES, Language
from sandbox_kernel.model.notes import Wanted, WantedKind
from sandbox_kernel.model.units import parse_count
from sandbox_kernel.notebook.options.cell_options import CellOptions
from sandbox_kernel.notebook.options.option_table import (
    BY_NAME,
    COMMAND_NAMES,
    COMMANDS,
    COMMANDS_BY_NAME,
    OTHER_WORDS,
    LineCommandSpec,
    Takes,
    nearest,
    parse_name,
    parse_value,
    short,
)
from sandbox_kernel.policy.network_rule import parse_rule, rule_text
from sandbox_kernel.util.own_folder import OwnFiles, state_root
from sandbox_kernel.util.values import dataclass

#: The options of a new notebook, as on a ``%sandbox`` line: those of the server or hub, and those of the kernelspec,
#: which go before them. They are two variables because Jupyter puts a kernelspec's variables over the server's.
OPTIONS_VARIABLE, SPEC_VARIABLE = "SANDBOX_KERNEL_OPTIONS", "SANDBOX_KERNEL_SPEC_OPTIONS"
#: Set by Jupyter servers, where a person looks on: the path of the notebook. And by our kernelspecs: who gives rights.
NOTEBOOK_VARIABLE, LINES_VARIABLE = "JPY_SESSION_NAME", "SANDBOX_KERNEL_LINES"
_USER_LIMITS = "limits"
#: Most characters of an option line, which is read on the loop that hears Stop, and how often an option stands in it.
MAX_LINE, MAX_REPEATS = 4096, 64
#: Help, as the first word of a line or after a command; elsewhere the error names ``%sandbox help``.
_HELP = ("--help", "-h")
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
    """Parse at most one language and options, in any order. ``commands`` could stand there too: errors mention them."""
    fields: dict[str, Any] = {}
    given: Counter[str] = Counter()
    queue = list(reversed(words))
    while queue:
        word = queue.pop()
        if not word.startswith("-"):
            fields["language"] = _language(word, fields.get("language"), commands)
            continue
        name, equals, value = word.partition("=")
        option = BY_NAME.get(name)
        if option is None:
            near = _meant(name)
            hint = f"did you mean {near}?" if near else f"known options: {' '.join(BY_NAME)}"
            raise InvalidRequest(f"unknown option {short(name)!r}; {hint}")
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
            # The next word is the value unless it is an option, a language or a command.
            others = (*Language.names(), *commands)
            value = queue.pop() if queue and not queue[-1].startswith("-") and queue[-1] not in others else ""
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


def first_defaults(environ: Mapping[str, str] = os.environ) -> CellOptions:
    """Return the defaults of a new notebook. Raises ``InvalidRequest``."""
    return _given_defaults(environ).over(page_limits(environ))


def _given_defaults(environ: Mapping[str, str]) -> CellOptions:
    """Return what the two variables say."""
    of_server, of_spec = (
        parse_options(split_words(environ.get(name, ""), name)) for name in (OPTIONS_VARIABLE, SPEC_VARIABLE)
    )
    return of_spec.over(of_server)


def page_limits(environ: Mapping[str, str]) -> CellOptions:
    """Return the time and memory of a kernel where a person looks on; no options for batch runs and agents."""
    if not environ.get(NOTEBOOK_VARIABLE) or environ.get(LINES_VARIABLE) == "locked":
        return CellOptions()
    of_user = parse_options(split_words(_user_limits(), "limits for all notebooks"))
    return of_user.over(CellOptions(timeout_s=PAGE_TIMEOUT_S, memory_mb=page_memory_mb()))


def _user_limits() -> str:
    """Return the limits that the user has set for all notebooks, as options; empty for none."""
    return (_user_files().read(_USER_LIMITS, MAX_LINE) or b"").decode(errors="replace")


def _user_files() -> OwnFiles:
    return OwnFiles(os.path.join(state_root(), "sandbox-kernel", _USER_LIMITS))


def keep_user_limits(options: CellOptions) -> None:
    """Keep the time and memory of these options for all notebooks. Raises ``InvalidRequest`` where it has no effect."""
    wanted = CellOptions(timeout_s=options.timeout_s, memory_mb=options.memory_mb).words()
    _user_files().write(_USER_LIMITS, wanted.encode())
    first = _given_defaults(os.environ)
    if _user_limits() != wanted or first.timeout_s is not None or first.memory_mb is not None:
        raise InvalidRequest(
            "the limits hold for this notebook alone: its kernel was installed with limits of its own (sandbox-kernel "
            f"install --memory 4G --timeout 30m), or {state_root()} is no private folder of yours"
        )


def _language(word: str, known: Language | None, commands: tuple[str, ...]) -> Language:
    if word in commands and word not in Language.names():
        raise InvalidRequest(f"{word!r} is a command: it stands first on a line of its own, %sandbox {word}")
    if known is not None:
        hint = f"did you mean --{word}?" if f"--{word}" in BY_NAME else "options begin with --"
        raise InvalidRequest(f"{short(word)!r} is one word too many: the language is already {known}; {hint}")
    try:
        return Language.parse(short(word))
    except InvalidRequest:
        near = _meant(word)
        if not near and not commands:
            raise
        what = "neither a command nor a language" if commands else "not a language"
        lists = f"commands: {', '.join(commands)}; languages: {', '.join(Language)}"
        raise InvalidRequest(f"{short(word)!r} is {what}; {f'did you mean {near}?' if near else lists}") from None


def _meant(word: str) -> str:
    """Return what the user should write instead of ``word``; empty when no known word is like it."""
    options = {name.removeprefix("--"): name for name in BY_NAME if name.startswith("--")}
    others = {language: language for language in Language.names()}
    others |= {name: f"%sandbox {name}" for name in COMMAND_NAMES}
    others |= {word: f"%sandbox {name}" for word, name in OTHER_WORDS.items()}
    others |= {command.flag: f"%sandbox {command.name} --{command.flag}" for command in COMMANDS if command.flag}
    # A few words, like python, are both; the dashes then say which one is meant.
    known = others | options if word.startswith("-") else options | others
    return nearest(short(word).lstrip("-").lower(), known)


#: The number of a cell, with or without the brackets of the margin.
CELL_NUMBER = re.compile(r"\[?([0-9]{1,9})\]?\Z", re.ASCII)
_CELL_MAGIC = re.compile(r"%%sandbox(?=\s|\Z)(.*)\Z")
_LINE_MAGIC = re.compile(r"%sandbox(?=\s|\Z)(.*)\Z")
#: Notebooks written for the Python kernel have this line; the Sandbox kernel ignores it.
_LOAD_EXT = re.compile(r"%(?:re)?load_ext\s+sandbox_kernel\s*\Z")
#: Comments for nbval, which reads them from the source. They are removed: not every language has ``#`` comments.
_NBVAL_LINE = re.compile(r"^[ \t]*(?:#|//|--|;;)[ \t]*(?:PYTEST_VALIDATE|NBVAL)_[A-Z_]+[ \t]*$", re.MULTILINE)
_MISPLACED = re.compile(r"^%{1,2}sandbox(?=\s|\Z).*$", re.MULTILINE)
#: Most ``%sandbox`` lines of a cell, and lines among which they are looked for.
MAX_LINES, _MAX_HEAD = 50, 10_000


@dataclass(frozen=True, kw_only=True)
class LineCommand:
    """One ``%sandbox`` line: a command with its arguments, or (``defaults``, ``show``) the notebook's defaults."""

    name: str
    count: int = 1
    target: str | None = None
    #: Further words: states, paths, names of functions.
    targets: tuple[str, ...] = ()
    #: A state of the tree, by which a page names it. Lines name it by its cell, or by its name.
    state: int | None = None
    #: The digest of the changes that the page shows, of which ``apply`` writes no others.
    shown: str | None = None
    #: The right that ``allow`` or ``never`` is about, and whether it is for the next cell only.
    wanted: Wanted | None = None
    once: bool = False
    #: Whether its flag was given. ``restart --keep`` makes its ``options`` the notebook's defaults.
    flag: bool = False
    #: Whether the user has agreed to lose what ``restart --keep`` cannot bring along; only a page asks.
    anyway: bool = False
    options: CellOptions = field(default_factory=CellOptions)


@dataclass(frozen=True, kw_only=True)
class CellPlan:
    """What a cell asks for: line commands first, then ``code`` (empty: nothing to run) under ``options``."""

    code: str
    options: CellOptions
    commands: tuple[LineCommand, ...] = ()
    defaults: CellOptions = field(default_factory=CellOptions)

    @property
    def own_limits(self) -> tuple[str, ...]:
        """The limits that the ``%%sandbox`` line of the cell sets; the notebook's defaults do not change them."""
        names = {"--timeout": "timeout_s", "--memory": "memory_mb"}
        return tuple(name for name, of in names.items() if getattr(self.options, of) != getattr(self.defaults, of))


def plan_line(command: LineCommand, defaults: CellOptions) -> CellPlan:
    """Return the plan of a cell that is one line command, under the defaults that hold from it on."""
    return CellPlan(code="", options=defaults, commands=(command,), defaults=defaults)


def parse_cell(text: str, defaults: CellOptions) -> CellPlan:
    """Parse a cell of the Sandbox kernel; ``plan.defaults`` are the notebook's defaults from this cell on."""
    body = _normal(text)
    commands: list[LineCommand] = []
    position = ours = 0  # ``ours`` is the end of the last line that is not part of the program
    commented = False
    for _ in range(_MAX_HEAD):
        if position == len(body):
            break
        end = body.find("\n", position)
        end = len(body) if end < 0 else end + 1
        line = body[position:end].rstrip()
        position = end
        if cell := _CELL_MAGIC.match(line):
            if commands or commented:
                break
            return _plan(cell[1], _without_lines(body, end), defaults)
        if magic := _LINE_MAGIC.match(line):
            if len(commands) == MAX_LINES:
                raise InvalidRequest(f"the cell has more than {MAX_LINES} %sandbox lines; put some into another cell")
            commands.append(parse_line(magic[1]))
            ours = end
        elif _LOAD_EXT.match(line):
            ours = end
        elif line.startswith("#") and not _NBVAL_LINE.match(line):
            commented = True
        elif line and not _NBVAL_LINE.match(line):
            break
    for command in commands:
        defaults = new_defaults(command, defaults)
    code = _program(_without_lines(body, ours))
    return CellPlan(code=code, options=defaults, commands=tuple(commands), defaults=defaults)


def parse_magic(line: str, cell: str, defaults: CellOptions) -> CellPlan:
    """Parse a ``%%sandbox`` cell of the Python kernel. IPython passes the first line and the rest separately."""
    return _plan(_normal(line), "\n" + _normal(cell), defaults)


def parse_line(line: str) -> LineCommand:
    """Parse what follows ``%sandbox`` on its line."""
    words = split_words(_normal(line), "%sandbox")
    if not words:
        return LineCommand(name="show")
    spec = COMMANDS_BY_NAME.get(words[0])
    if words[0] in _HELP or (spec is not None and words[-1] in _HELP):
        return LineCommand(name="help")
    if new := OTHER_WORDS.get(words[0]):
        raise InvalidRequest(f"%sandbox {words[0]} is %sandbox {' '.join([new, *words[1:]])[:80]}")
    # ``go`` is a language, too: it is the command before a state.
    if spec is None or (words[0] in Language.names() and (not words[1:] or words[1].startswith("-"))):
        return LineCommand(name="defaults", options=parse_options(words, COMMAND_NAMES))
    return _command(spec, words[1:])


def _command(spec: LineCommandSpec, rest: list[str]) -> LineCommand:
    name, takes, given = f"%sandbox {spec.name}", spec.takes, LineCommand(name=spec.name)
    if takes is Takes.WORDS:
        return replace(given, targets=tuple(rest))
    if takes is Takes.OPTIONS:
        return replace(given, options=parse_options(rest))
    if takes is Takes.RIGHT:
        return _right(given, rest)
    if takes is Takes.EVERY and len(rest) == 1:
        return replace(given, target=rest[0])
    if not takes.a_session:
        if rest and (not spec.flag or rest != [f"--{spec.flag}"]):
            also = f" but --{spec.flag}" if spec.flag else ""
            raise InvalidRequest(f"{name} takes no arguments{also}, got {' '.join(rest)[:80]!r}; write it alone")
        return replace(given, flag=bool(rest))
    given, rest = _arguments(spec, given, rest)
    flag = bool(spec.flag) and f"--{spec.flag}" in rest
    options = parse_options([word for word in rest if not (flag and word == f"--{spec.flag}")])
    if not flag and options != CellOptions(language=options.language, session=options.session):
        raise InvalidRequest(f"{name} takes a language or --session NAME, got {' '.join(rest)!r}")
    return replace(given, options=options.check_together(), flag=flag)


def _arguments(spec: LineCommandSpec, given: LineCommand, rest: list[str]) -> tuple[LineCommand, list[str]]:
    """Parse what a command of a session takes before the language, ``--session NAME`` or its flag, which are left."""
    name, takes = f"%sandbox {spec.name}", spec.takes
    if takes is Takes.COUNT and rest and rest[0].lstrip("-").isdigit():
        return replace(given, count=parse_count(rest[0], name, 1)), rest[1:]
    if takes is Takes.STATES:
        targets = tuple(takewhile(lambda word: not word.startswith("-"), rest))
        if len(targets) > 2:
            raise InvalidRequest(f"{name} takes at most two states, got {len(targets)}: {' '.join(targets)[:80]!r}")
        return replace(given, targets=targets), rest[len(targets) :]
    if takes not in (Takes.NAME, Takes.STATE):
        return given, rest
    if not rest or rest[0].startswith("-"):
        raise InvalidRequest(f"{name} needs a name: {name} mywork")
    target, rest = rest[0], rest[1:]
    if takes is Takes.NAME:
        return replace(given, target=parse_name(target, name)), rest
    # NAME [STATE]. The name of a state may be any short text, in quotes.
    number = spec.name == "checkpoint" and bool(rest) and CELL_NUMBER.match(rest[0]) is not None
    targets, rest = (tuple(rest[:1]), rest[1:]) if number else ((), rest)
    if rest and not rest[0].startswith("-") and rest[-1] not in Language.names():
        meant = f"{name} {shlex.quote(' '.join([target, *targets, *rest])[:80])}"
        raise InvalidRequest(f"{name}: a name with spaces stands in quotes: {meant}")
    return replace(given, target=target, targets=targets), rest


def _right(given: LineCommand, rest: list[str]) -> LineCommand:
    """Parse ``allow [once] WHAT [--session NAME]`` and ``never WHAT``."""
    name = given.name
    once = name == "allow" and rest[:1] == ["once"]
    words = rest[1:] if once else rest
    if not words or words[0].startswith("-"):
        raise InvalidRequest(f"%sandbox {name} needs a domain or a path: %sandbox {name} example.org, or ./data")
    options = parse_options(words[1:])
    if options != CellOptions(session=options.session) or (options.session and (once or name == "never")):
        raise InvalidRequest(f"%sandbox {name} takes one domain or path, got {' '.join(words)[:80]!r}")
    return replace(given, wanted=parse_wanted(words[0], name), once=once, options=options)


def parse_wanted(text: str, command: str) -> Wanted:
    """Parse the word after ``%sandbox allow`` or ``never``: a path if it has a slash, else a domain."""
    try:
        if "/" in text and "://" not in text:
            return Wanted(WantedKind.FILE, inner_path(text))
        return Wanted(WantedKind.DOMAIN, rule_text(parse_rule(text)))
    except PolicyViolation as error:
        raise InvalidRequest(f"%sandbox {command} {error}; a file or folder is written ./NAME") from None


def inner_path(text: str) -> str:
    """Return a path inside the notebook's folder, or raise ``InvalidRequest``."""
    path = os.path.normpath(text)
    if os.path.isabs(path) or path.split("/")[0] in ("..", "."):
        raise InvalidRequest(
            f"{text[:200]!r} is not inside the notebook's folder; to show one elsewhere: %sandbox --mount HOST:/data"
        )
    return path


def written(wanted: Wanted) -> str:
    """Return a right as a user writes it, so that ``parse_wanted`` reads the same."""
    is_plain_name = wanted.kind is WantedKind.FILE and "/" not in wanted.what
    return f"./{wanted.what}" if is_plain_name else wanted.what


def new_defaults(command: LineCommand, defaults: CellOptions) -> CellOptions:
    """Return the notebook's defaults after a line command."""
    if command.name == "reset":
        return command.options.replacing(first_defaults()).check_together()
    if command.name == "defaults":
        return command.options.replacing(defaults).check_together()
    if command.name == "restart" and command.flag:
        own = replace(command.options, language=None, session=None)
        return own.replacing(defaults).check_together()
    wanted = command.wanted
    if command.name == "allow" and wanted is not None and not command.once and command.options.session is None:
        return defaults.reaching([wanted.what]) if wanted.kind is WantedKind.DOMAIN else defaults
    return defaults


def _without_lines(body: str, end: int) -> str:
    """Replace everything before ``end`` by empty lines, so that the rest keeps its line numbers."""
    return "\n" * body.count("\n", 0, end) + body[end:]


def _plan(line: str, code: str, defaults: CellOptions) -> CellPlan:
    words = split_words(line, "%%sandbox")
    if words and words[0] in _HELP:
        return plan_line(LineCommand(name="help"), defaults)
    options = parse_options(words).over(defaults).check_together()
    program = _program(code)
    if not program:
        raise InvalidRequest(
            "%%sandbox: the cell is empty below this line; write the program there, or set defaults with %sandbox"
        )
    return CellPlan(code=program, options=options, defaults=defaults)


def _normal(text: str) -> str:
    """Return the text with Unix newlines and no byte order mark; refuse text that is too long or not encodable."""
    if not isinstance(text, str):
        raise InvalidRequest(f"a cell must be text, got {type(text).__name__}")
    if len(text) > MAX_CODE_BYTES:
        raise InvalidRequest(
            f"the cell has {len(text)} characters, at most {MAX_CODE_BYTES} are taken; --mount data as a file"
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        raise InvalidRequest(
            f"line {line} of the cell holds a lone surrogate, which no encoding can carry; retype that character"
        ) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise InvalidRequest(f"line {line} of the cell holds a NUL character; remove it")
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


def _program(code: str) -> str:
    """Return the program without nbval comments; empty when there is nothing to run."""
    if "NBVAL_" in code or "PYTEST_VALIDATE_" in code:
        code = _NBVAL_LINE.sub("", code)
    bare = code.lstrip()
    if not bare:
        return ""
    if found := _MISPLACED.search(code):
        line = code.count("\n", 0, found.start()) + 1
        where = "on the first line of a cell" if found[0].startswith("%%") else "before the program"
        raise InvalidRequest(
            f"line {line} of the cell, {found[0][:80]!r}: {found[0].split()[0]} stands only {where}; "
            "move it there (or indent it, if it is text of the program)"
        )
    # A shebang line and a PHP tag count only in the first bytes of a program, so empty lines before them are removed.
    return bare if bare.startswith(("#!", "<?")) else code

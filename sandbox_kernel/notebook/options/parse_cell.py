"""Parses the text of a cell into a ``CellPlan``, for the kernel and the magic. Pure.

A cell is, in this order: empty lines and nbval comments; either one ``%%sandbox`` line or any number of ``%sandbox``
lines; the program. The program keeps its line numbers: magic lines are replaced by empty lines, so that line 7 in a
compiler's message is line 7 of the cell as the user sees it.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import tokenize
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import takewhile

from sandbox_kernel.errors import InvalidRequest, PolicyViolation
from sandbox_kernel.model import MAX_CODE_BYTES, Language
from sandbox_kernel.model.notes import Wanted, WantedKind
from sandbox_kernel.model.units import parse_count
from sandbox_kernel.notebook.options.cell_options import CellOptions
from sandbox_kernel.notebook.options.option_table import (
    COMMAND_NAMES,
    COMMANDS_BY_NAME,
    LineCommandSpec,
    Takes,
    parse_name,
)
from sandbox_kernel.notebook.options.parse_options import asks_for_help, first_defaults, parse_options, split_words
from sandbox_kernel.policy.network_rule import parse_rule, rule_text

_CELL_MAGIC = re.compile(r"%%sandbox(?=\s|\Z)(.*)\Z")
_LINE_MAGIC = re.compile(r"%sandbox(?=\s|\Z)(.*)\Z")
#: Notebooks written for the Python kernel have this line; the Sandbox kernel ignores it.
_LOAD_EXT = re.compile(r"%(?:re)?load_ext\s+sandbox_kernel\s*\Z")
#: Comments for nbval, which reads them from the source. They are removed: not every language has ``#`` comments.
_NBVAL_LINE = re.compile(r"^[ \t]*(?:#|//|--|;;)[ \t]*(?:PYTEST_VALIDATE|NBVAL)_[A-Z_]+[ \t]*$", re.MULTILINE)
_MISPLACED = re.compile(r"^%{1,2}sandbox(?=\s|\Z).*$", re.MULTILINE)
#: Largest cell, in characters, that is tokenised to find out whether a magic line stands inside a string. In a longer
#: cell such a line is refused: Stop is heard after it only.
_MAX_TOKENISED = 1 << 16
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
    #: The digest of the changes that the page shows, of which ``apply`` writes no others.
    shown: str | None = None
    #: The right that ``allow`` or ``never`` is about, and whether it is for the next cell only.
    wanted: Wanted | None = None
    once: bool = False
    #: Whether its flag was given: ``files --clear`` empties the work folder, ``restart --keep`` brings the variables
    #: along and makes its ``options`` the notebook's defaults.
    flag: bool = False
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
        time, memory = self.options.timeout_s, self.options.memory_mb
        own = (("--timeout", time != self.defaults.timeout_s), ("--memory", memory != self.defaults.memory_mb))
        return tuple(option for option, is_own in own if is_own)


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
    code = _program(_without_lines(body, ours), defaults)
    return CellPlan(code=code, options=defaults, commands=tuple(commands), defaults=defaults)


def parse_magic(line: str, cell: str, defaults: CellOptions) -> CellPlan:
    """Parse a ``%%sandbox`` cell of the Python kernel. IPython passes the first line and the rest separately."""
    return _plan(_normal(line), "\n" + _normal(cell), defaults)


def parse_line(line: str) -> LineCommand:
    """Parse what follows ``%sandbox`` on its line."""
    words = split_words(_normal(line), "%sandbox")
    if not words:
        return LineCommand(name="show")
    if asks_for_help(words):
        return LineCommand(name="help")
    spec = COMMANDS_BY_NAME.get(words[0])
    if spec is None:
        return LineCommand(name="defaults", options=parse_options(words, COMMAND_NAMES))
    return _BY_GRAMMAR[spec.takes](spec, words[1:])


def _nothing(spec: LineCommandSpec, rest: list[str]) -> LineCommand:
    if spec.flag and rest == [f"--{spec.flag}"]:
        return LineCommand(name=spec.name, flag=True)
    if rest:
        also = f" but --{spec.flag}" if spec.flag else ""
        raise InvalidRequest(
            f"%sandbox {spec.name} takes no arguments{also}, got {' '.join(rest)[:80]!r}; write it alone"
        )
    return LineCommand(name=spec.name)


def _session(spec: LineCommandSpec, rest: list[str], command: LineCommand | None = None) -> LineCommand:
    """Parse the end of a line: a language or ``--session NAME``; with its flag, any options."""
    flag = bool(spec.flag) and f"--{spec.flag}" in rest
    options = parse_options([word for word in rest if not (flag and word == f"--{spec.flag}")])
    if not flag and options != CellOptions(language=options.language, session=options.session):
        raise InvalidRequest(f"%sandbox {spec.name} takes a language or --session NAME, got {' '.join(rest)!r}")
    return replace(command or LineCommand(name=spec.name), options=options.check_together(), flag=flag)


def _count(spec: LineCommandSpec, rest: list[str]) -> LineCommand:
    if not rest or not rest[0].lstrip("-").isdigit():
        return _session(spec, rest)
    count = parse_count(rest[0], f"%sandbox {spec.name}", 1)
    return _session(spec, rest[1:], LineCommand(name=spec.name, count=count))


def _name(spec: LineCommandSpec, rest: list[str]) -> LineCommand:
    target = parse_name(_first(spec, rest), f"%sandbox {spec.name}")
    return _session(spec, rest[1:], LineCommand(name=spec.name, target=target))


def _state(spec: LineCommandSpec, rest: list[str]) -> LineCommand:
    """Parse ``NAME [STATE]``. The name of a state may be any short text, in quotes."""
    target, rest = _first(spec, rest), rest[1:]
    number = spec.name == "checkpoint" and bool(rest) and rest[0].isascii() and rest[0].isdigit()
    targets, rest = (tuple(rest[:1]), rest[1:]) if number else ((), rest)
    if rest and not rest[0].startswith("-") and rest[-1] not in Language.names():
        meant = f"%sandbox {spec.name} {shlex.quote(' '.join([target, *targets, *rest])[:80])}"
        raise InvalidRequest(f"%sandbox {spec.name}: a name with spaces stands in quotes: {meant}")
    return _session(spec, rest, LineCommand(name=spec.name, target=target, targets=targets))


def _states(spec: LineCommandSpec, rest: list[str]) -> LineCommand:
    targets = tuple(takewhile(lambda word: not word.startswith("-"), rest))
    if len(targets) > 2:
        raise InvalidRequest(
            f"%sandbox {spec.name} takes at most two states, got {len(targets)}: {' '.join(targets)[:80]!r}"
        )
    return _session(spec, rest[len(targets) :], LineCommand(name=spec.name, targets=targets))


def _first(spec: LineCommandSpec, rest: list[str]) -> str:
    if not rest or rest[0].startswith("-"):
        raise InvalidRequest(f"%sandbox {spec.name} needs a name: %sandbox {spec.name} mywork")
    return rest[0]


def _every(spec: LineCommandSpec, rest: list[str]) -> LineCommand:
    return LineCommand(name=spec.name, target=rest[0]) if len(rest) == 1 else _nothing(spec, rest)


def _right(spec: LineCommandSpec, rest: list[str]) -> LineCommand:
    """Parse ``allow [once] WHAT [--session NAME]`` and ``never WHAT``."""
    name = spec.name
    once = name == "allow" and rest[:1] == ["once"]
    words = rest[1:] if once else rest
    if not words or words[0].startswith("-"):
        raise InvalidRequest(f"%sandbox {name} needs a domain or a path: %sandbox {name} example.org, or ./data")
    options = parse_options(words[1:])
    if options != CellOptions(session=options.session) or (options.session and (once or name == "never")):
        raise InvalidRequest(f"%sandbox {name} takes one domain or path, got {' '.join(words)[:80]!r}")
    return LineCommand(name=name, wanted=parse_wanted(words[0], name), once=once, options=options)


_BY_GRAMMAR: Mapping[Takes, Callable[[LineCommandSpec, list[str]], LineCommand]] = {
    Takes.NOTHING: _nothing,
    Takes.SESSION: _session,
    Takes.COUNT: _count,
    Takes.NAME: _name,
    Takes.STATE: _state,
    Takes.STATES: _states,
    Takes.WORDS: lambda spec, rest: LineCommand(name=spec.name, targets=tuple(rest)),
    Takes.RIGHT: _right,
    Takes.OPTIONS: lambda spec, rest: LineCommand(name=spec.name, options=parse_options(rest)),
    Takes.EVERY: _every,
}


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
    if asks_for_help(words):
        return CellPlan(code="", options=defaults, commands=(LineCommand(name="help"),), defaults=defaults)
    options = parse_options(words).over(defaults).check_together()
    program = _program(code, options)
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


def _program(code: str, options: CellOptions) -> str:
    """Return the program without nbval comments; empty when there is nothing to run."""
    if "NBVAL_" in code or "PYTEST_VALIDATE_" in code:
        code = _NBVAL_LINE.sub("", code)
    bare = code.lstrip()
    if not bare:
        return ""
    if misplaced := _MISPLACED.search(code):
        _refuse_misplaced(code, misplaced, options.effective_language)
    # A shebang line and a PHP tag count only in the first bytes of a program, so empty lines before them are removed.
    return bare if bare.startswith(("#!", "<?")) else code


def _refuse_misplaced(code: str, found: re.Match[str], language: Language) -> None:
    line = code.count("\n", 0, found.start()) + 1
    if language is Language.PYTHON and len(code) <= _MAX_TOKENISED and _inside_string(code, line):
        return
    where = "on the first line of a cell" if found[0].startswith("%%") else "before the program"
    raise InvalidRequest(
        f"line {line} of the cell, {found[0][:80]!r}: {found[0].split()[0]} stands only {where}; "
        "move it there (or indent it, if it is text of the program)"
    )


def _inside_string(code: str, line: int) -> bool:
    """Whether a line of Python source lies inside a string of several lines. Tokenises; compiles nothing."""
    try:
        for token in tokenize.generate_tokens(io.StringIO(code).readline):
            if token.start[0] < line <= token.end[0] and token.type != tokenize.NEWLINE:
                return True
            if token.start[0] >= line:
                return False
    except (tokenize.TokenError, SyntaxError):
        return False
    return False

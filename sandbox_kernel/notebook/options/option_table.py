"""The options and line commands of ``%%sandbox`` and ``%sandbox``: the one table that all who know an option read.

Commands, wrapped kernels and papermill's engine take rows of it, too. Rows made with ``_own`` and ``_own_command`` are
harmless: they concern the notebook's own sessions, limits and work folder. Every other row asks for a right.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import StrEnum, unique
from functools import partial
from typing import Any

from sandbox_kernel.backends.choice import BACKENDS
from sandbox_kernel.errors import InvalidRequest, SandboxError
from sandbox_kernel.limits import MIB, Limits, check_memory_mb, check_timeout, quoted
from sandbox_kernel.model import check_env
from sandbox_kernel.model.units import (
    DURATION_FORM,
    SIZE_FORM,
    duration_text,
    parse_bytes,
    parse_count,
    parse_duration,
    parse_megabytes,
    size_text,
)
from sandbox_kernel.policy.gpu import parse_gpu
from sandbox_kernel.policy.network_rule import parse_rule
from sandbox_kernel.policy.sandbox_policy import parse_mount
from sandbox_kernel.policy.written_folders import path_text
from sandbox_kernel.util.values import dataclass

COUNT_FORM = "a whole number, like 5"
NAME_FORM = "a name: letters, digits, _ . -"
VARIABLE_FORM = "the name of a variable"
#: Most bytes of ``--output``: the kernel holds them all.
MAX_OUTPUT = 16 * MIB

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}\Z")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}\Z")


@unique
class AtStart(StrEnum):
    """What a session does with the value of an option that it was not started with."""

    #: It has nothing to do with a session's start.
    FREE = "free"
    #: Each cell may have its own.
    OF_A_CELL = "of a cell"
    #: A running session is given what new defaults of the notebook allow, and loses what they do not.
    FOLLOWS = "follows"
    #: A cell that asks for another value runs in a sandbox of its own.
    FIXED = "fixed"
    #: The same, and a line that sets another default is refused instead of losing the session's variables.
    WALLS = "walls"


@dataclass(frozen=True)
class Option:
    """One option: how it is written, what its value looks like, what it does."""

    name: str
    #: The field of ``CellOptions``.
    field: str
    #: What stands for the value in help; empty for a flag.
    value: str
    form: str
    help: str
    #: Returns the value for a text; gets the name of the option for its errors.
    parse: Callable[[str, str], object] = lambda text, name: text
    #: Returns the text for a value.
    write: Callable[[Any], str] = str
    at_start: AtStart = AtStart.FREE
    repeats: bool = False
    #: Of an option that repeats: what no two values on a line may share; None where they may be equal.
    key: Callable[[Any], object] | None = None
    #: Whether the value may be left out.
    optional: bool = False
    samples: tuple[str, ...] = ()
    #: Whether lines of a stranger's notebook may use it unasked.
    harmless: bool = False
    #: Whether it is a limit: a value above what the kernel gives is a right all the same.
    is_limit: bool = False
    #: What it means on a command line without a value; empty: there it needs one.
    alone: str = ""
    #: Its place in the help of ``sandbox-kernel install``, which gives it to a kernel from its start; 0: not there.
    of_install: int = 0
    #: Its name among the settings of wrapped kernels, the provisioner and papermill's engine; empty: they have none.
    setting: str = ""

    @property
    def is_flag(self) -> bool:
        """Whether the option takes no value."""
        return not self.value


@unique
class Takes(StrEnum):
    """What a line command takes after its name."""

    NOTHING = "nothing"
    SESSION = "session"
    COUNT = "count"
    #: A name that can be a file's, and one of a state, which may be any short text.
    NAME = "name"
    STATE = "state"
    STATES = "states"
    #: Any words: paths, or names of functions.
    WORDS = "words"
    RIGHT = "right"
    OPTIONS = "options"
    EVERY = "every"

    @property
    def a_session(self) -> bool:
        """Whether a language or ``--session NAME`` may follow, which say what session is meant."""
        return self in (Takes.SESSION, Takes.COUNT, Takes.NAME, Takes.STATE, Takes.STATES)


@dataclass(frozen=True)
class LineCommandSpec:
    """One ``%sandbox`` line command. ``flag`` is what it takes besides: ``%sandbox restart --keep``."""

    name: str
    arguments: str
    help: str
    takes: Takes = Takes.NOTHING
    flag: str = ""
    #: Whether lines of a stranger's notebook may use it unasked.
    harmless: bool = False


def parse_name(text: str, what: str) -> str:
    """Return a session or file name that is safe to print and to use as a file name, or raise ``InvalidRequest``."""
    if not _NAME.match(text):
        raise InvalidRequest(f"{what} {short(text)!r} is not a name; use letters, digits, _ . - (at most 64)")
    return text


def nearest(word: str, known: Mapping[str, str]) -> str:
    """Return what stands for the known word that is most like this one; empty when none is."""
    import difflib  # imported here, because most lines have no mistake

    return next((known[name] for name in difflib.get_close_matches(word, known, n=1, cutoff=0.6)), "")


def short(text: str) -> str:
    """Return the beginning of a text, for an error."""
    return text if len(text) <= 80 else text[:80] + "…"


def parse_value(option: Option, value: str) -> object:
    """Parse the value of an option. Raises ``InvalidRequest`` that quotes the option, the value and its form."""
    try:
        return option.parse(value, option.name)
    except SandboxError as error:
        text = str(error)
        if text.startswith(quoted(value)):
            text = f"{option.name} {text}"
        elif not text.startswith(option.name):
            text = f"{option.name} {short(value)!r}: {text}; give {option.form}"
        raise InvalidRequest(text) from None


def parse_fields(given: Mapping[str, object], rows: Mapping[str, Option]) -> dict[str, Any]:
    """Return the values of options by their fields, for texts, and lists of them where one repeats; None is none."""
    fields: dict[str, Any] = {}
    for name, value in given.items():
        option = rows[name]
        if isinstance(value, str) and not option.repeats:
            fields[option.field] = parse_value(option, value)
        elif option.repeats and isinstance(value, list) and all(isinstance(one, str) for one in value):
            fields[option.field] = tuple(parse_value(option, one) for one in value)
        elif value is not None:
            raise InvalidRequest(f"{option.name} cannot be {value!r:.80}; give {option.form}")
    return fields


def _seconds(text: str, option: str) -> float:
    return check_timeout(parse_duration(text, option))


def _limit(field: str, parse: Callable[[str, str], int]) -> Callable[[str, str], object]:
    """Return a parser of one of ``Limits``, which has its bounds."""
    return lambda text, option: getattr(Limits(**{field: parse(text, option)}), field)


def _output(text: str, option: str) -> int:
    size = parse_bytes(text, option)
    if size > MAX_OUTPUT:
        raise InvalidRequest(f"{option} {short(text)!r}: at most 16M are kept; write more into a file")
    return size


def _backend(text: str, option: str) -> str:
    if text not in BACKENDS:
        raise InvalidRequest(f"{option} {short(text)!r} is unknown; give one of: {', '.join(BACKENDS)}")
    return text


def _variable(text: str, option: str) -> str:
    if not _VARIABLE.match(text):
        raise InvalidRequest(f"{option} {short(text)!r} is not the name of a variable; letters, digits and _ only")
    return text


def _env(text: str, option: str) -> tuple[str, str]:
    name, equals, content = text.partition("=")
    if not equals:
        raise InvalidRequest(f"{option} {short(text)!r} has no '='; give {BY_NAME[option].form}")
    check_env({name: content})
    return name, content


def _here(text: str, option: str) -> str:
    path_text(text or ".")
    return text or "."


def _given(text: str, option: str) -> str:
    if not text:
        raise InvalidRequest(f"{option} {text!r} is empty; give {BY_NAME[option].form}")
    return text


def _mb_text(size_mb: int) -> str:
    return size_text(size_mb * MIB)


_own, _own_command = partial(Option, harmless=True), partial(LineCommandSpec, harmless=True)
_, _OF_A_CELL, _FOLLOWS, _FIXED, _WALLS = AtStart

OPTIONS: tuple[Option, ...] = (
    _own(
        "--timeout", "timeout_s", "DURATION", DURATION_FORM, "wall-clock limit of the cell", _seconds, duration_text,
        is_limit=True, samples=("1s", "5s", "30s", "2m"), of_install=7, setting="timeout",
    ),
    _own(
        "--memory", "memory_mb", "SIZE", SIZE_FORM, "memory limit of the whole process tree",
        lambda text, name: check_memory_mb(parse_megabytes(text, name)), _mb_text, _FOLLOWS, is_limit=True,
        samples=("128M", "512M", "1G"), of_install=6, setting="memory",
    ),
    _own(
        "--cpu", "cpu_seconds", "DURATION", DURATION_FORM, "CPU time limit", _seconds, duration_text, _OF_A_CELL,
        is_limit=True, samples=("1s", "5s", "1m"),
    ),
    _own(
        "--processes", "processes", "N", COUNT_FORM, "how many processes may live at once",
        _limit("processes", partial(parse_count, least=1)), str, _FIXED, is_limit=True, samples=("1", "16", "64"),
    ),
    _own(
        "--disk", "disk_mb", "SIZE", SIZE_FORM, "how much the work folder may hold",
        _limit("disk_mb", parse_megabytes), _mb_text, _FIXED, is_limit=True, samples=("64M", "256M", "1G"),
    ),
    _own(
        "--output", "output_bytes", "SIZE", SIZE_FORM, "how much of each stream is kept", _output, size_text,
        _OF_A_CELL, is_limit=True, samples=("64K", "1M", "10M"),
    ),
    _own(
        "--backend", "backend", "NAME", f"one of: {', '.join(BACKENDS)}", "what runs the cell", _backend, str, _FIXED,
        samples=BACKENDS,
    ),
    _own("--fresh", "fresh", "", "no value", "a new sandbox for this cell, nothing kept"),
    _own(
        "--session", "session", "NAME", NAME_FORM, "keep state under this name, apart from the other sessions",
        parse_name,
    ),
    _own("--stdin", "stdin", "TEXT", "text, in quotes when it has spaces", "standard input of the program"),
    _own("--stdin-var", "stdin_var", "NAME", VARIABLE_FORM, "standard input from a variable", _variable),
    _own(
        "--env", "env", "K=V", "NAME=VALUE, like LANG=C", "set an environment variable", _env, "=".join, _FOLLOWS,
        repeats=True, key=lambda pair: pair[0],
    ),
    _own("--arg", "args", "A", "one argument; repeat the option for more", "add a command-line argument", repeats=True),
    Option(
        "--allow-net", "allow_net", "DOMAIN[:PORT]", "a domain, like example.org or example.org:8443",
        "let it reach a domain", lambda text, name: parse_rule(text), str, _FOLLOWS, repeats=True,
        key=lambda rule: rule, of_install=4, setting="domains",
    ),
    Option(
        "--mount", "mounts", "HOST:GUEST[:rw]", "HOST:GUEST or HOST:GUEST:rw, like data:/data",
        "show a host path inside, read-only without :rw", lambda text, name: parse_mount(text),
        lambda mount: f"{mount.host}:{mount.guest}{':rw' if mount.writable else ''}", _FOLLOWS, repeats=True,
        key=lambda mount: mount.guest, of_install=3, setting="mounts",
    ),
    Option(
        "--gpu", "gpu", "CARDS", "all, or numbers like 0 or 0,1", "let it use accelerators: all, or numbers like 0,1",
        lambda text, name: str(parse_gpu(text)), str, _FIXED, samples=("all", "0"), alone="all", of_install=2,
    ),
    Option(
        "--gpu-memory", "gpu_memory_mb", "SIZE", SIZE_FORM, "memory limit on the accelerators",
        _limit("gpu_memory_mb", parse_megabytes), _mb_text, _FIXED, samples=("4G", "8G"),
    ),
    Option(
        "--here", "here", "[PATH]", "a folder, or nothing for the notebook's own",
        "work on a folder, copy-on-write: %sandbox changes, apply and discard", _here, str, _WALLS, optional=True,
        samples=(".",), alone=".", of_install=1, setting="here",
    ),
    _own(
        "-i", "inputs", "VAR", VARIABLE_FORM, "pass a variable in, as JSON", _variable, repeats=True,
        key=lambda name: name,
    ),
    _own(
        "-o", "outputs", "VAR", VARIABLE_FORM, "take a variable out, as JSON", _variable, repeats=True,
        key=lambda name: name,
    ),
    Option(
        "--policy", "policy", "FILE|PRESET", "a .toml or .json file, or a preset's name", "what the cell may touch",
        _given, str, _WALLS, of_install=5, setting="policy",
    ),
    Option(
        "--python", "python", "PATH|VERSION", "an interpreter, a virtual environment or a version, like 3.12",
        "which Python", _given, str, _FIXED,
    ),
    _own("--check", "check", "", "no value", "check types before running, where the language can"),
    _own(
        "--checkpoints", "checkpoints", "N", "a whole number, 0 for none", "how many cells back undo can go",
        partial(parse_count, least=0), str, _FIXED, samples=("0", "5"),
    ),
    _own("--quiet", "quiet", "", "no value", "no receipt when all went well"),
    _own(
        "--self-contained", "self_contained", "", "no value",
        "put the code that draws interactive outputs into the notebook, for pages without our extension",
    ),
)  # fmt: skip

COMMANDS: tuple[LineCommandSpec, ...] = (
    _own_command("report", "", "measure what this sandbox holds back, and show it"),
    _own_command("undo", "[N] [LANGUAGE]", "take back the last N cells of the session", Takes.COUNT),
    _own_command("redo", "[N] [LANGUAGE]", "go forward again, after an undo or go", Takes.COUNT),
    _own_command(
        "go", "N|NAME [LANGUAGE]", "go to the state after cell [N], by the number in the margin, or by its name",
        Takes.STATE,
    ),
    _own_command("checkpoint", "NAME [N] [LANGUAGE]", "name the present state, or the one after cell [N]", Takes.STATE),
    _own_command("tree", "[LANGUAGE]", "show the states of the session as a tree", Takes.SESSION),
    _own_command(
        "diff", "[A] [B]", "how two states differ, named as for go; alone: what the last cell changed", Takes.STATES,
    ),
    _own_command(
        "restart", "[LANGUAGE] [--keep [options]]",
        "start the session afresh; with --keep: under new options, and its variables come along", Takes.SESSION, "keep",
    ),
    _own_command(
        "files", "[--clear]", "what lies in the work folder; with --clear: remove it all", Takes.NOTHING, "clear",
    ),
    _own_command("changes", "[PATH…]", "what cells changed in the folder of --here, as a diff", Takes.WORDS),
    LineCommandSpec("apply", "[PATH…]", "write these changes to the folder of --here; all without a path", Takes.WORDS),
    LineCommandSpec("discard", "[PATH…]", "drop these changes; all without a path", Takes.WORDS),
    LineCommandSpec(
        "allow", "[once] DOMAIN|./PATH",
        "let cells reach a domain or find a file, from now on or in the next cell only", Takes.RIGHT,
    ),
    LineCommandSpec("install", "NAME…", "packages for the notebook's Python sessions; only wheels", Takes.WORDS),
    _own_command("never", "DOMAIN|./PATH", "do not offer this right again in this notebook", Takes.RIGHT),
    _own_command("policy", "", "what cells may touch, by the current defaults"),
    LineCommandSpec(
        "functions", "[NAME…|off]", "functions of the Python kernel that cells may call; alone: list them", Takes.WORDS,
    ),
    _own_command(
        "fork", "NAME [LANGUAGE]", "a second session with the same state; %%sandbox --session NAME enters it",
        Takes.NAME,
    ),
    LineCommandSpec("save", "NAME [LANGUAGE]", "save the session to a file", Takes.NAME),
    LineCommandSpec("load", "NAME [LANGUAGE]", "go on with a saved session", Takes.NAME),
    LineCommandSpec(
        "autosave", "[EVERY|off|forget]", "save the sessions by themselves, every 5m and at the end", Takes.EVERY,
    ),
    LineCommandSpec("recover", "", "go on with what autosave kept when the last kernel of this notebook ended"),
    _own_command("reset", "[options]", "forget the notebook's defaults, but for these options", Takes.OPTIONS),
    _own_command("help", "", "this table"),
)  # fmt: skip

BY_NAME = {option.name: option for option in OPTIONS}
OF_INSTALL = sorted((option for option in OPTIONS if option.of_install), key=lambda option: option.of_install)
#: Options of wrapped kernels that no cell has, and all that they have, by the names of their settings.
_OF_WRAPPED = (
    Option("--enforcer", "enforcer", "NAME", "auto or bubblewrap", "what makes the walls", setting="enforcer"),
    Option("--record", "record", "FILE", "a file", "file to which what each kernel did is added", setting="record"),
)
BY_SETTING = {option.setting: option for option in (*OPTIONS, *_OF_WRAPPED) if option.setting}
COMMANDS_BY_NAME = {command.name: command for command in COMMANDS}
COMMAND_NAMES = tuple(COMMANDS_BY_NAME)
#: Words for a command: those it had before, and those of other tools.
OTHER_WORDS = {
    "checkout": "go",
    "goto": "go",
    "checkpoints": "tree",
    "branches": "tree",
    "history": "tree",
    "log": "tree",
    "list": "tree",
}
#: Commands that give no right. ``show`` and ``defaults`` are lines without a command: their options decide.
HARMLESS_COMMANDS = frozenset(("show", "defaults", *(command.name for command in COMMANDS if command.harmless)))


def usage() -> str:
    """Return the table as text, for ``%sandbox help`` and ``%sandbox?``."""
    lines = ["%%sandbox [LANGUAGE] [options]   run this cell in a sandbox"]
    lines.append("%sandbox [LANGUAGE] [options]    set the notebook's defaults; alone: show them")
    lines += ["", "Options:"]
    lines += [f"  {f'{option.name} {option.value}'.strip():<28} {option.help}" for option in OPTIONS]
    lines += ["", "Commands (%sandbox COMMAND):"]
    lines += [f"  {f'{command.name} {command.arguments}'.strip():<28} {command.help}" for command in COMMANDS]
    return "\n".join(lines)

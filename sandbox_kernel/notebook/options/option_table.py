"""The options and line commands of ``%%sandbox`` and ``%sandbox``, as data.

Names, values and help of each option are written here; its effect is in ``parse_options.py`` and ``cell_options.py``.
``parse_options.py`` parses by this table, ``editor/complete.py`` offers its names,
``editor/explain.py`` prints it, and ``docs/generate.py`` writes the tables of ``docs/notebook.md`` from it.

Rows made with ``_own`` and ``_own_command`` are harmless: they concern the notebook's own sessions, limits and work
folder. Every other row asks for a right (``own_rights.py``, papermill's engine), so a new one does until it is decided.
"""

from __future__ import annotations

from functools import partial

from sandbox_kernel.backends.choice import BACKENDS
from sandbox_kernel.ground.values import dataclass
from sandbox_kernel.notebook.options.units import DURATION_FORM, SIZE_FORM

COUNT_FORM = "a whole number, like 5"
NAME_FORM = "a name: letters, digits, _ . -"


@dataclass(frozen=True)
class Option:
    """One option: how it is written, what its value looks like, what it does."""

    name: str
    value: str
    form: str
    help: str
    repeats: bool = False
    #: Whether the value may be left out.
    optional: bool = False
    samples: tuple[str, ...] = ()
    #: Whether lines of a stranger's notebook may use it unasked.
    harmless: bool = False

    @property
    def is_flag(self) -> bool:
        """Whether the option takes no value."""
        return not self.value


@dataclass(frozen=True)
class LineCommandSpec:
    """One ``%sandbox`` line command."""

    name: str
    arguments: str
    help: str
    #: Whether lines of a stranger's notebook may use it unasked.
    harmless: bool = False


_own, _own_command = partial(Option, harmless=True), partial(LineCommandSpec, harmless=True)

OPTIONS: tuple[Option, ...] = (
    _own("--timeout", "DURATION", DURATION_FORM, "wall-clock limit of the cell", samples=("1s", "5s", "30s", "2m")),
    _own("--memory", "SIZE", SIZE_FORM, "memory limit of the whole process tree", samples=("128M", "512M", "1G")),
    _own("--cpu", "DURATION", DURATION_FORM, "CPU time limit", samples=("1s", "5s", "1m")),
    _own("--processes", "N", COUNT_FORM, "how many processes may live at once", samples=("1", "16", "64")),
    _own("--disk", "SIZE", SIZE_FORM, "how much the work folder may hold", samples=("64M", "256M", "1G")),
    _own("--output", "SIZE", SIZE_FORM, "how much of each stream is kept", samples=("64K", "1M", "10M")),
    _own("--backend", "NAME", f"one of: {', '.join(BACKENDS)}", "what runs the cell", samples=BACKENDS),
    _own("--fresh", "", "no value", "a new sandbox for this cell, nothing kept"),
    _own("--session", "NAME", NAME_FORM, "keep state under this name, apart from the other sessions"),
    _own("--stdin", "TEXT", "text, in quotes when it has spaces", "standard input of the program"),
    _own("--stdin-var", "NAME", "the name of a variable", "standard input from a variable"),
    _own("--env", "K=V", "NAME=VALUE, like LANG=C", "set an environment variable", repeats=True),
    _own("--arg", "A", "one argument; repeat the option for more", "add a command-line argument", repeats=True),
    Option(
        "--allow-net", "DOMAIN[:PORT]", "a domain, like example.org or example.org:8443", "allow one host", repeats=True
    ),
    Option(
        "--mount", "HOST:GUEST[:rw]", "HOST:GUEST or HOST:GUEST:rw, like data:/data",
        "show a host path inside, read-only without :rw", repeats=True,
    ),
    Option("--gpu", "CARDS", "all, or numbers like 0 or 0,1", "let the cell use accelerators", samples=("all", "0")),
    Option("--gpu-memory", "SIZE", SIZE_FORM, "memory limit on the accelerators", samples=("4G", "8G")),
    Option(
        "--here", "[PATH]", "a folder, or nothing for the notebook's own",
        "work on a folder, copy-on-write: %sandbox changes, apply and discard", optional=True, samples=(".",),
    ),
    _own("-i", "VAR", "the name of a variable", "pass a variable in, as JSON", repeats=True),
    _own("-o", "VAR", "the name of a variable", "take a variable out, as JSON", repeats=True),
    Option("--policy", "FILE|PRESET", "a .toml or .json file, or a preset's name", "what the cell may touch"),
    Option("--python", "PATH|VERSION", "an interpreter, a virtual environment or a version, like 3.12", "which Python"),
    _own("--check", "", "no value", "check types before running, where the language can"),
    _own("--checkpoints", "N", "a whole number, 0 for none", "how many cells back undo can go", samples=("0", "5")),
    _own("--quiet", "", "no value", "no receipt when all went well"),
)  # fmt: skip

COMMANDS: tuple[LineCommandSpec, ...] = (
    _own_command("report", "", "measure what this sandbox holds back, and show it"),
    _own_command("undo", "[N] [LANGUAGE]", "take back the last N cells of the session"),
    _own_command("redo", "[N] [LANGUAGE]", "go forward again, after an undo or a checkout"),
    _own_command("checkpoint", "NAME [STATE] [LANGUAGE]", "name the present state, or one by its number in the tree"),
    _own_command("checkout", "NAME|NODE [LANGUAGE]", "go to a state of the session, by its name or number"),
    _own_command("tree", "[LANGUAGE]", "show the states of the session as a tree"),
    _own_command("diff", "[A] [B]", "how two states differ; alone: what the last cell changed"),
    _own_command("branches", "[LANGUAGE]", "list the ends of its branches, and named states"),
    _own_command("checkpoints", "[LANGUAGE]", "list the states that undo can go back to"),
    _own_command(
        "restart",
        "[LANGUAGE] [--keep [options]]",
        "start the session afresh; with --keep: under new options, and its variables come along",
    ),
    _own_command("files", "[--clear]", "what lies in the work folder; with --clear: remove it all"),
    _own_command("changes", "[PATH…]", "what cells changed in the folder of --here, as a diff"),
    LineCommandSpec("apply", "[PATH…]", "write these changes to the folder of --here; all without a path"),
    LineCommandSpec("discard", "[PATH…]", "drop these changes; all without a path"),
    LineCommandSpec(
        "allow", "[once] DOMAIN|./PATH", "let cells reach a domain or find a file, from now on or in the next cell only"
    ),
    _own_command("never", "DOMAIN|./PATH", "do not offer this right again in this notebook"),
    _own_command("policy", "", "what cells may touch, by the current defaults"),
    LineCommandSpec("functions", "[NAME…|off]", "functions of the Python kernel that cells may call; alone: list them"),
    _own_command("fork", "NAME [LANGUAGE]", "a second session with the same state; %%sandbox --session NAME enters it"),
    LineCommandSpec("save", "NAME [LANGUAGE]", "save the session to a file"),
    LineCommandSpec("load", "NAME [LANGUAGE]", "go on with a saved session"),
    LineCommandSpec("autosave", "[EVERY|off|forget]", "save the sessions by themselves, every 5m and at the end"),
    LineCommandSpec("recover", "", "go on with what autosave kept when the last kernel of this notebook ended"),
    _own_command("reset", "[options]", "forget the notebook's defaults, but for these options"),
    _own_command("help", "", "this table"),
)

BY_NAME = {option.name: option for option in OPTIONS}
#: What two commands take beside a name: ``%sandbox restart --keep``.
FLAGS = {"restart": "keep", "files": "clear"}
COMMAND_NAMES = tuple(command.name for command in COMMANDS)
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

"""Write the parts of the pages that are made from the code: option tables, command tables, pictures.

    python docs/generate.py

A generated part of a page stands between ``<!-- generated: NAME -->`` and ``<!-- /generated -->``. The tests fail when
a committed page differs from what the code generates.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

DOCS = Path(__file__).resolve().parent
sys.path[:0] = [str(DOCS), str(DOCS.parent)]

import draw  # noqa: E402 - found beside this file

from sandbox_kernel.cli import make_parser  # noqa: E402
from sandbox_kernel.limits import DEFAULT_MEMORY_MB, DEFAULT_SESSION_MEMORY_MB, DEFAULT_TIMEOUT_S, MIB, Limits  # noqa: E402
from sandbox_kernel.model import Language  # noqa: E402
from sandbox_kernel.notebook.options.option_table import COMMANDS, OPTIONS  # noqa: E402
from sandbox_kernel.untrusted.frames.document import outer_document  # noqa: E402

_PART = re.compile(r"(<!-- generated: ([\w-]+) -->\n)(.*?)(<!-- /generated -->)", re.DOTALL)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table. A bar inside a cell is escaped."""
    lines = [list(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def notebook_options() -> str:
    """The options of ``%%sandbox``."""
    rows = [
        (
            f"`{f'{option.name} {option.value}'.strip()}`",
            option.help + ("; may be repeated" if option.repeats else ""),
            "" if option.is_flag else option.form,
        )
        for option in OPTIONS
    ]
    return table(("option", "what it does", "value"), rows)


def notebook_commands() -> str:
    """The line commands of ``%sandbox``."""
    rows = [(f"`%sandbox {command.name} {command.arguments}".rstrip() + "`", command.help) for command in COMMANDS]
    return table(("command", "what it does"), rows)


def default_limits() -> str:
    """The limits that hold when the caller names none."""
    limits = Limits()
    rows = [
        ("time of a run or cell", f"{DEFAULT_TIMEOUT_S:g} s", "`timeout=`", "`--timeout`"),
        ("memory of a run", f"{DEFAULT_MEMORY_MB} MB", "`memory_mb=`", "`--memory`"),
        ("memory of a session, so of a notebook cell", f"{DEFAULT_SESSION_MEMORY_MB} MB", "`memory_mb=`", "`--memory`"),
        ("CPU time", "none of its own", "`Limits(cpu_seconds=)`", "`--cpu`"),
        ("processes at once", str(limits.processes), "`Limits(processes=)`", "`--processes`"),
        ("open files of a process", str(limits.open_files), "`Limits(open_files=)`", ""),
        ("work folder", f"{limits.disk_mb} MB", "`Limits(disk_mb=)`", "`--disk`"),
        ("output kept of each stream", f"{limits.output_bytes // MIB} MB", "`Limits(output_bytes=)`", "`--output`"),
        ("instructions, WebAssembly only", "none", "`Limits(fuel=)`", ""),
    ]
    return table(("limit", "default", "library", "cell"), rows)


def languages() -> str:
    """The names by which a language can be asked for."""
    return ", ".join(f"`{language.value}`" for language in Language) + "\n"


def command_line() -> str:
    """Each command of ``sandbox-kernel`` with its arguments, from its parser."""
    parser = make_parser()
    commands = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    purposes = {choice.dest: choice.help or "" for choice in commands._choices_actions}
    parts = []
    for name, command in commands.choices.items():
        purpose = purposes[name]
        parts.append(f"## sandbox-kernel {name}\n\n{purpose[0].upper()}{purpose[1:]}.\n\n{_arguments(command)}")
    return "\n".join(parts)


def _arguments(command: argparse.ArgumentParser) -> str:
    rows = []
    for action in command._actions:
        if isinstance(action, argparse._HelpAction):
            continue
        meaning = action.help or ""
        if action.choices:
            meaning += f" (one of: {', '.join(map(str, action.choices))})"
        if isinstance(action, argparse._AppendAction):
            meaning += "; may be repeated"
        rows.append((f"`{_written(action)}`", meaning))
    return table(("argument", "meaning"), rows)


def _written(action: argparse.Action) -> str:
    if not action.option_strings:
        name = (action.metavar if isinstance(action.metavar, str) else action.dest).upper()
        return {"?": f"[{name}]", "*": f"[{name} …]"}.get(str(action.nargs), name)
    value = "" if action.nargs == 0 else str(action.metavar or action.dest.upper().replace("_", "-"))
    return f"{', '.join(action.option_strings)} {value}".rstrip()


def ipykernel_differences() -> str:
    """The tests of ipykernel that differ on purpose."""
    from tests.conformance.ipykernel_differences import BY_TIMING, DIFFERENCES

    rows = [
        (reason, ", ".join(f"`{name.partition('::')[2]}`" for name in names))
        for reason, names in (DIFFERENCES | BY_TIMING).items()
    ]
    return table(("what differs, and why", "ipykernel's tests"), rows)


PARTS: dict[str, Callable[[], str]] = {
    "notebook-options": notebook_options,
    "notebook-commands": notebook_commands,
    "default-limits": default_limits,
    "languages": languages,
    "command-line": command_line,
    "ipykernel-differences": ipykernel_differences,
}
PICTURES: dict[str, Callable[[], str]] = {"floors.svg": draw.floors, "one-cell.svg": draw.one_cell}
#: The outer document of frames, for the labextension.
FRAME_DOCUMENT = DOCS.parent / "labextension" / "static" / "frame-document.txt"


def generated(page: str) -> str:
    """The text of a page with every generated part made anew."""
    return _PART.sub(lambda found: f"{found[1]}{PARTS[found[2]]()}{found[4]}", page)


def main() -> None:
    """Write every page and picture that has generated parts."""
    for path in sorted(DOCS.glob("**/*.md")):
        before = path.read_text()
        if (after := generated(before)) != before:
            path.write_text(after)
            print(path.relative_to(DOCS.parent))
    for name, make in PICTURES.items():
        (DOCS / "images" / name).write_text(make())
    FRAME_DOCUMENT.write_text(outer_document())


if __name__ == "__main__":
    main()

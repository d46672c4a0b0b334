"""``sandbox-kernel``: the command line. The modules of ``commands/`` are imported only when they are used."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import io
import os
import signal
import sys
import threading
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NoReturn

from sandbox_kernel import __version__
from sandbox_kernel.commands.shared import say
from sandbox_kernel.errors import SandboxError
from sandbox_kernel.model import Language
from sandbox_kernel.notebook.options.option_table import COMMAND_NAMES, nearest

#: The commands: the module of ``commands`` that has ``add_NAME_arguments`` and ``NAME``, and the help text.
_COMMANDS = {
    "run": ("run", "run a file, or -c CODE, in a sandbox"),
    "install": ("install", "make the kernel known to a Jupyter in another environment"),
    "lab": ("install", "open JupyterLab on a notebook"),
    "mcp": ("serve", "serve the sandbox to agents over MCP, on standard input and output"),
    "prepare": ("install", "make languages ready that run inside WebAssembly"),
    "serve": ("serve", "run programs over HTTP, with SandboxFusion's requests and answers"),
    "report": ("report", "what is enforced here, measured"),
    "wrap": ("wrap", "make a copy of an installed Jupyter kernel that runs in a sandbox"),
    "unwrap": ("wrap", "remove a wrapped kernel"),
    "changes": ("changes", "what wrapped kernels changed in a folder (wrap --here): show, apply or drop it"),
    "wrapped": ("wrap", "list the wrapped kernels and what each may touch"),
}


def _find(command: str, name: str) -> Any:
    """Return a function of a command's module, which is imported only when it is used."""
    return getattr(import_module(f"sandbox_kernel.commands.{_COMMANDS[command][0]}"), name)


def make_parser(command: str | None = None) -> argparse.ArgumentParser:
    """Make the parser of the command line. If ``command`` is given, it knows only the arguments of that command."""
    parser = argparse.ArgumentParser(prog="sandbox-kernel", description="Run unvetted code in a sandbox.")
    parser.add_argument("--version", action="version", version=f"sandbox-kernel {__version__}")
    # Without ``prog`` argparse asks for the size of the terminal, and imports every kind of compression for it.
    commands = parser.add_subparsers(dest="command", required=True, prog=parser.prog)
    for name, (_, words) in _COMMANDS.items():
        made = commands.add_parser(name, help=words)
        if command in (None, name):
            _find(name, f"add_{name}_arguments")(made)
    return parser


def split_arguments(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split the words at the first ``--``: those before it are for us, those after it for the program that we run."""
    if "--" not in words:
        return list(words), []
    place = list(words).index("--")
    return list(words[:place]), list(words[place + 1 :])


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point. An error prints one line and returns 2; a closed output pipe returns 141, as for SIGPIPE."""
    _have_streams()
    try:
        code = _main(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # Python flushes its buffer at exit: that must not fail on the closed pipe too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 128 + signal.SIGPIPE


def enter() -> NoReturn:
    """Run the command and leave at once, unless threads work: Python needs long to take its modules apart."""
    code = main()
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        sys.exit(code)
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError, ValueError):  # a closed pipe: ``main`` has told
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _have_streams() -> None:
    """Open closed standard streams on ``/dev/null``, or the next file would become one. Let any text be printed."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _main(arguments: Sequence[str] | None) -> int:
    ours, theirs = split_arguments(sys.argv[1:] if arguments is None else arguments)
    parser = make_parser(ours[0] if ours else "")
    if ours and ours[0] not in (*_COMMANDS, "-h", "--help", "--version"):
        parser.error(_no_command(ours))
    options, unknown = parser.parse_known_args(ours)
    if unknown:
        parser.error(_unknown(options.command, unknown))
    if theirs and "args" not in options:
        parser.error(f"{options.command} takes no arguments after --")
    if theirs:
        options.args = [*options.args, *theirs]
    try:
        code: int = _find(options.command, options.command)(options)
        return code
    except BrokenPipeError:
        raise
    except (SandboxError, OSError) as error:
        say(f"sandbox-kernel: {error}")
        return 2
    except KeyboardInterrupt:
        return 130


def _no_command(words: list[str]) -> str:
    """The message for a line whose first word is no command: with the line that was meant, or all commands."""
    word, rest = words[0], " ".join(words[1:4])
    # Users mix up commands, options, languages, and what notebooks have.
    known = {language: f"sandbox-kernel run --language {language} {rest}" for language in Language.names()}
    known |= {name: f"%sandbox {name} in a notebook" for name in COMMAND_NAMES}
    known |= {option[2:]: f"sandbox-kernel run {option} {rest}" for option in _options("run") if option[:2] == "--"}
    known |= {name: f"sandbox-kernel {name} {rest}" for name in _COMMANDS}
    known["list"] = f"sandbox-kernel wrapped {rest}"
    is_program = not word.startswith("-") and os.path.isfile(word)
    near = f"sandbox-kernel run {word}" if is_program else nearest(word.lstrip("-").partition("=")[0].lower(), known)
    hint = f"did you mean {near.rstrip()}?" if near else f"the commands are: {', '.join(_COMMANDS)}"
    return f"{word[:80]!r} is no command; {hint}"


def _unknown(command: str, words: Sequence[str]) -> str:
    """The message for words that the parser of a command does not know; suggests the option that was meant."""
    word = next((word.partition("=")[0] for word in words if word.startswith("-")), None)
    if word is None:
        return f"{command} takes no argument {words[0]!r}; see sandbox-kernel {command} --help"
    if near := nearest(word, {option: option for option in _options(command)}):
        return f"unknown option {word!r}; did you mean {near}?"
    place = {"run": "; arguments of the program come after --", "lab": "; options of Jupyter come after --"}
    return f"{command} has no option {word!r}{place.get(command, '')}; see sandbox-kernel {command} --help"


def _options(command: str) -> list[str]:
    own = argparse.ArgumentParser()
    _find(command, f"add_{command}_arguments")(own)
    return list(own._option_string_actions)


if __name__ == "__main__":
    enter()

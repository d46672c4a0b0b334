"""``sandbox-kernel``: the command line. Each command is a module of ``commands/``, imported only when it is used."""

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
from typing import NoReturn, Protocol, cast

from sandbox_kernel.ground.late_import import import_late

if sys.argv[1:2] == ["run"]:
    # ``dataclasses`` imports it for what no run needs: 7 of the 113 ms of processor time until a run can begin.
    import_late("inspect")

from sandbox_kernel import __version__
from sandbox_kernel.commands.options.argument_types import duration, megabytes
from sandbox_kernel.commands.options.grants import make_env, make_policy, make_secrets
from sandbox_kernel.commands.terminal.echo import say
from sandbox_kernel.errors import SandboxError

__all__ = [
    "duration",
    "enter",
    "main",
    "make_env",
    "make_parser",
    "make_policy",
    "make_secrets",
    "megabytes",
    "split_arguments",
]

#: The commands and their help texts. Each has a module of that name in ``commands``.
_COMMANDS = {
    "run": "run a file, or -c CODE, in a sandbox",
    "install": "make the kernel known to a Jupyter in another environment",
    "lab": "open JupyterLab on a notebook",
    "mcp": "serve the sandbox to agents over MCP, on standard input and output",
    "prepare": "make languages ready that run inside WebAssembly",
    "serve": "run programs over HTTP, with SandboxFusion's requests and answers",
    "report": "what is enforced here, measured",
    "wrap": "make a copy of an installed Jupyter kernel that runs in a sandbox",
    "unwrap": "remove a wrapped kernel",
    "changes": "what wrapped kernels changed in a folder (wrap --here): show, apply or drop it",
    "wrapped": "list the wrapped kernels and what each may touch",
}


class CommandModule(Protocol):
    """The functions that each module of ``commands`` has."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command to its parser."""

    def execute(self, options: argparse.Namespace) -> int:
        """Run the command and return the exit code."""


def _load(name: str) -> CommandModule:
    return cast(CommandModule, import_module(f"sandbox_kernel.commands.{name}"))


def make_parser(command: str | None = None) -> argparse.ArgumentParser:
    """Make the parser of the command line. If ``command`` is given, it knows only that command."""
    parser = argparse.ArgumentParser(prog="sandbox-kernel", description="Run unvetted code in a sandbox.")
    parser.add_argument("--version", action="version", version=f"sandbox-kernel {__version__}")
    # Without ``prog`` argparse asks for the size of the terminal, and imports every kind of compression for it.
    shown = None if command is None else f"{{{','.join(_COMMANDS)}}}"  # usage lines name all commands
    commands = parser.add_subparsers(dest="command", required=True, prog=parser.prog, metavar=shown)
    for name in _COMMANDS if command is None else (command,):
        _load(name).add_arguments(commands.add_parser(name, help=_COMMANDS[name]))
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
    """Be the program ``sandbox-kernel``: run the command and leave.

    Python needs longer to take its modules apart than to run a short program. So once the output is out and everything
    that a sandbox left is removed, the process ends at once. If a thread still works, Python waits for it as always.
    """
    code = main()
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        sys.exit(code)
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError, ValueError):  # a closed pipe: ``main`` has told
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _have_streams() -> None:
    """Open stdin, stdout and stderr on ``/dev/null`` where they are closed, and let any text be printed.

    The next file that is opened would otherwise get the closed descriptor's number and be used as that stream. Text
    that the locale cannot encode is printed with backslash escapes.
    """
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
    parser = make_parser(ours[0] if ours and ours[0] in _COMMANDS else None)
    if ours and ours[0] not in (*_COMMANDS, "-h", "--help", "--version"):
        parser.error(_no_command(ours))
    options, unknown = parser.parse_known_args(ours)
    if unknown:
        parser.error(_unknown(options.command, unknown))
    if theirs and options.command != "run":
        parser.error(f"{options.command} takes no arguments after --")
    if options.command == "run":
        options.args = [*options.args, *theirs]
    try:
        return _load(options.command).execute(options)
    except BrokenPipeError:
        raise
    except (SandboxError, OSError) as error:
        say(f"sandbox-kernel: {error}")
        return 2
    except KeyboardInterrupt:
        return 130


def _no_command(words: list[str]) -> str:
    """The message for a line whose first word is no command; suggests the line that was meant."""
    from sandbox_kernel.commands.terminal.meant import meant_line  # imported here, because most lines have no mistake

    own = argparse.ArgumentParser()
    _load("run").add_arguments(own)
    return f"{words[0][:80]!r} is no command; {meant_line(words, _COMMANDS, own._option_string_actions)}"


def _unknown(command: str, words: Sequence[str]) -> str:
    """The message for words that the parser of a command does not know; suggests the option that was meant."""
    word = next((word.partition("=")[0] for word in words if word.startswith("-")), None)
    if word is None:
        return f"{command} takes no argument {words[0]!r}; see sandbox-kernel {command} --help"
    import difflib  # imported here, because most lines have no mistake

    own = argparse.ArgumentParser()
    _load(command).add_arguments(own)
    near = difflib.get_close_matches(word, own._option_string_actions, n=1, cutoff=0.6)
    if near:
        return f"unknown option {word!r}; did you mean {near[0]}?"
    place = "; arguments of the program come after --" if command == "run" else ""
    return f"{command} has no option {word!r}{place}; see sandbox-kernel {command} --help"


if __name__ == "__main__":
    enter()

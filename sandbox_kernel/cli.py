"""``sandbox-kernel``: the command line. Each command is a file of ``commands/``, loaded when it is asked for."""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Protocol, cast

from sandbox_kernel import __version__
from sandbox_kernel.commands.argument_types import duration, megabytes
from sandbox_kernel.commands.grants import make_env, make_policy, make_secrets
from sandbox_kernel.errors import SandboxError

__all__ = [
    "duration",
    "main",
    "make_env",
    "make_parser",
    "make_policy",
    "make_secrets",
    "megabytes",
    "split_arguments",
]

#: Each is a module of ``commands`` with that name.
_COMMANDS = {
    "run": "run a file, or -c CODE, in a sandbox",
    "install": "make the kernel known to a Jupyter in another environment",
    "lab": "open JupyterLab on a notebook",
    "mcp": "serve the sandbox to agents over MCP, on standard input and output",
    "prepare": "make languages ready that run inside WebAssembly",
    "report": "what is enforced here, measured",
}


class CommandModule(Protocol):
    """What a module of ``commands`` offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Say what the command takes."""

    def execute(self, options: argparse.Namespace) -> int:
        """Do it; the exit code."""


def _load(name: str) -> CommandModule:
    return cast(CommandModule, import_module(f"sandbox_kernel.commands.{name}"))


def make_parser(command: str | None = None) -> argparse.ArgumentParser:
    """The whole command line; when only one ``command`` will be parsed, the others are named and not loaded."""
    parser = argparse.ArgumentParser(prog="sandbox-kernel", description="Run code nobody has vetted.")
    parser.add_argument("--version", action="version", version=f"sandbox-kernel {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, purpose in _COMMANDS.items():
        own = commands.add_parser(name, help=purpose)
        if command in (None, name):
            _load(name).add_arguments(own)
    return parser


def split_arguments(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Our own words, and those after the first ``--``, which are the program's whatever they look like."""
    if "--" not in words:
        return list(words), []
    place = list(words).index("--")
    return list(words[:place]), list(words[place + 1 :])


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; errors are one line and exit code 2. Who reads our output may leave before its end."""
    _have_streams()
    try:
        code = _main(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # As a program does that dies of SIGPIPE; what is left in the buffer must not complain at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 128 + signal.SIGPIPE


def _have_streams() -> None:
    """Stand on three streams, whatever we were started with, and print whatever there is in any locale.

    A descriptor below 3 that is closed would be given to the next file that is opened, and be taken for a stream.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            setattr(sys, name, open(number, "r" if number == 0 else "w", closefd=False))  # noqa: SIM115 - it lives as long as we
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _main(arguments: Sequence[str] | None) -> int:
    ours, theirs = split_arguments(sys.argv[1:] if arguments is None else arguments)
    parser = make_parser(ours[0] if ours and ours[0] in _COMMANDS else None)
    options = parser.parse_args(ours)
    if theirs and options.command != "run":
        parser.error(f"{options.command} takes no arguments after --")
    if options.command == "run":
        options.args = [*options.args, *theirs]
    try:
        return _load(options.command).execute(options)
    except BrokenPipeError:
        raise
    except (SandboxError, OSError) as error:
        print(f"sandbox-kernel: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())

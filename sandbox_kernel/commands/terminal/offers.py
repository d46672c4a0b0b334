"""The question at the end of ``sandbox-kernel run`` about a right that the program lacked: a domain, or a file.

It is asked where standard input and standard error are a terminal, and never otherwise. The program that is given the
right runs again from its beginning, in a new sandbox; what its first run changed is dropped.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace

from sandbox_kernel.commands.terminal.echo import ask, say
from sandbox_kernel.model import ExecResult
from sandbox_kernel.model.hints import Stumble, hints
from sandbox_kernel.model.notes import WantedKind


def hints_of(result: ExecResult) -> ExecResult:
    """Return the result with hints for somebody who types command lines in this folder."""
    stumble = Stumble("", os.path.exists, os.getcwd(), hidden=_is_hidden)
    return replace(result, notes=(*result.notes, *hints(result, stumble)))


def _is_hidden(path: str) -> bool:
    from sandbox_kernel.workspace.hidden import is_hidden  # only runs on a folder need it

    return is_hidden(path)


def gave_more(result: ExecResult, options: argparse.Namespace) -> bool:
    """Ask about each right that a program lacked, and put what the user allows into the options.

    Args:
        result: The result of the program, with hints.
        options: The options of the command; ``allow_net`` and ``here`` are changed.

    Returns:
        Whether there is something new, so that the program can run again.

    """
    if options.json or options.quiet or not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    if not result.violations and not any(note.wanted for note in result.notes):
        return False
    from sandbox_kernel.notebook.offers.offer import offers_of  # few runs lack something at a terminal

    given: list[str] = []
    for offer in offers_of(result):
        what = offer.wanted.what
        if offer.wanted.kind is WantedKind.DOMAIN:
            if ask(f"{offer.sentence} Allow it and run the program again?", "allow"):
                options.allow_net.append(what)
                given.append(f"--allow-net {what}")
        elif options.here is None and ask(
            f"The program looked for {what}, which is in this folder. Run it again here, copy-on-write?", "here"
        ):
            options.here = "."
            given.append("--here")
    if given:
        say(f"[runs again with {' '.join(given)}, for this run only]")
    return bool(given)

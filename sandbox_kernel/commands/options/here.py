"""``--here``, ``--apply`` and ``--diff`` of ``sandbox-kernel run``, and the question at the end of a run."""

from __future__ import annotations

import argparse
import os
import sys

from sandbox_kernel.box.sandbox import Sandbox
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.workspace.tree.paths import display_name


def add_here_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a folder that the program works on."""
    parser.add_argument(
        "--here", nargs="?", const=".", metavar="DIR",
        help="work on a folder (this one without =DIR), copy-on-write: nothing in it changes until you apply",
    )  # fmt: skip
    parser.add_argument(
        "--apply", action="store_true", help="write what changed to the folder when the program ends well"
    )
    parser.add_argument("--diff", metavar="FILE", help="write what changed to FILE as a patch; - prints it")


def sort_out_here(options: argparse.Namespace) -> None:
    """Tell the folder of ``--here DIR`` from a program: ``run --here prog.py`` means this folder and that program."""
    if options.here is not None and not os.path.isdir(options.here) and os.path.exists(options.here):
        if options.code is None:
            options.args = ([] if options.file is None else [options.file]) + options.args
            options.file = options.here
        else:
            options.args = [options.here, *([] if options.file is None else [options.file]), *options.args]
            options.file = None
        options.here = "."
    if options.here is None and (options.apply or options.diff):
        raise InvalidRequest("--apply and --diff are about the folder of --here; add --here")


def settle_changes(box: Sandbox, options: argparse.Namespace) -> None:
    """Write the patch, apply, or ask; says on stderr what became of the changes."""
    changes = box.diff()
    if options.diff is not None:
        patch = box.patch()
        if options.diff == "-":
            print(patch, end="")
        else:
            try:
                with open(options.diff, "w", encoding="utf-8") as file:
                    file.write(patch)
            except OSError as error:
                raise InvalidRequest(f"--diff {options.diff!r} cannot be written: {error.strerror}") from None
    if not changes:
        return
    files = f"{len(changes)} file{'' if len(changes) == 1 else 's'} changed"
    if options.apply:
        done = box.apply()
        left = [display_name(change.path) for change in box.diff()]
        rest = f"; not written, name them with box.apply: {', '.join(left[:5])}" if left else ""
        _say(options, f"[{files}, {len(done)} written to {box.here}{rest}]")
    elif sys.stdin.isatty() and sys.stderr.isatty() and not options.json and options.diff is None:
        _ask(box, files)
    elif options.diff is not None:
        _say(options, f"[{files} and only their diff was written: add --apply to write them]")
    else:
        _say(options, f"[{files} and nothing was written: add --apply to write them, --diff FILE for a patch]")


def _ask(box: Sandbox, files: str) -> None:
    while True:
        print(f"{files}. Apply? [y/N/d for the diff] ", end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline().strip().lower()
        if answer == "d":
            print(box.patch(), end="", file=sys.stderr)
            continue
        if answer in ("y", "yes"):
            done = box.apply()
            print(f"[{len(done)} written to {box.here}]", file=sys.stderr)
        else:
            print("[nothing was written]", file=sys.stderr)
        return


def _say(options: argparse.Namespace, text: str) -> None:
    if not options.quiet:
        print(text, file=sys.stderr)

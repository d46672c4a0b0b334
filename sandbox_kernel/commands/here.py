"""``--here``, ``--apply`` and ``--diff`` of ``sandbox-kernel run``, and the question at the end of a run."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from sandbox_kernel.box.sandbox import Sandbox
from sandbox_kernel.commands.shared import add_option
from sandbox_kernel.commands.terminal import ask, say, show_patch
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.model import FsChange
from sandbox_kernel.policy.written_folders import host_file
from sandbox_kernel.workspace.tree.paths import display_name


def add_here_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a folder that the program works on."""
    add_option(
        parser, "--here", metavar="DIR",
        help="work on a folder (this one without =DIR), copy-on-write: nothing in it changes until you apply",
    )  # fmt: skip
    add = parser.add_argument
    add("--apply", action="store_true", help="write what changed to the folder when the program ends well")
    add(
        "--apply-also", action="append", metavar="PATH",
        help="with --apply: write this change too, which is written only when named (.git, .vscode, …); repeatable",
    )  # fmt: skip
    add("--diff", metavar="FILE", help="write what changed to FILE as a patch for git apply; - prints it")


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
    if options.apply_also and not options.apply:
        raise InvalidRequest("--apply-also adds to what --apply writes; add --apply")


def settle_changes(box: Sandbox, options: argparse.Namespace, *, ended_well: bool) -> None:
    """Write the patch, apply, or ask; says on stderr what became of the changes.

    ``--apply`` writes nothing when the program did not end well: its changes may be half done.
    """
    changes = box.diff()
    if options.diff is not None:
        if options.diff == "-":
            show_patch(box.patch(), sys.stdout)
        else:
            _write_patch(box, options)
    if not changes:
        return
    files = _counted(changes)
    if options.apply and not ended_well:
        _say(options, f"[{files} and nothing was written: the program failed; --diff FILE keeps them as a patch]")
    elif options.apply:
        _apply(box, options.apply_also or None, options)
    elif sys.stdin.isatty() and sys.stderr.isatty() and not options.json and options.diff is None:
        _ask(box, files, options)
    elif options.diff is not None:
        _say(options, f"[{files} and only the diff was written: add --apply to write to the folder]")
    else:
        _say(options, f"[{files} and nothing was written: add --apply to write to the folder, --diff FILE for a patch]")


def _write_patch(box: Sandbox, options: argparse.Namespace) -> None:
    patch = box.whole_patch()
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(host_file(options.diff), flags, 0o666), "w", encoding="utf-8") as file:
            file.write(patch.text)
    except OSError as error:
        raise InvalidRequest(
            f"--diff {options.diff!r} cannot be written: {error.strerror}; name a file that is no link, or - to print"
        ) from None
    if patch.left_out:
        _say(options, f"[not in the patch, which cannot hold them: {_few(patch.left_out)}; --apply writes them]")


def _ask(box: Sandbox, files: str, options: argparse.Namespace) -> None:
    kept_back, shown = box.left_out(), box.digest()
    named = f", {len(kept_back)} only with all ({_few(kept_back)})" if kept_back else ""
    while answer := ask(f"{files}{named}. Apply?", "apply", *(["all"] if kept_back else []), "diff"):
        if answer != "diff":
            _apply(box, kept_back if answer == "all" else None, options, shown)
            return
        show_patch(box.patch(), sys.stderr)
    say("[nothing was written]")


def _apply(box: Sandbox, also: Sequence[str] | None, options: argparse.Namespace, shown: str | None = None) -> None:
    """Write the changes, and those of ``also``, which are written only when they are named; says what was left out."""
    plain = {change.path for change in box.diff()} - set(box.left_out())
    done = box.apply([*sorted(plain), *also] if also else None, shown=shown)
    left = box.left_out()
    rest = f"; not written, name them with --apply-also PATH: {_few(left)}" if left else ""
    _say(options, f"[{len(done)} written to {box.here}{rest}]")


def _counted(changes: Sequence[FsChange]) -> str:
    files = sum(change.type != "directory" for change in changes)
    count, noun = (files, "file") if files else (len(changes), "folder")
    return f"{count} {noun}{'' if count == 1 else 's'} changed"


def _few(paths: Sequence[str]) -> str:
    return ", ".join([*map(display_name, paths[:5]), *(["…"] if len(paths) > 5 else [])])


def _say(options: argparse.Namespace, text: str) -> None:
    if not options.quiet:
        say(text)

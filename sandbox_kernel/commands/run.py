"""``sandbox-kernel run``: run a file or ``-c CODE`` in a sandbox, print its output, return its exit code."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Sequence
from typing import BinaryIO

from sandbox_kernel.backends.process import ProcessConfig
from sandbox_kernel.box.sandbox import BACKENDS, Sandbox
from sandbox_kernel.commands.shared import (
    Echo,
    add_option,
    add_policy_options,
    ask,
    make_env,
    make_secrets,
    names,
    policy_of,
    say,
    show_bar,
    show_patch,
)
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.limits import DEFAULT_TIMEOUT_S, Limits
from sandbox_kernel.model import MAX_CODE_BYTES, ExecResult, Language, Status, describe_end
from sandbox_kernel.model.hints import Stumble, hints
from sandbox_kernel.policy.written_folders import open_host_file
from sandbox_kernel.receipt import describe_isolation
from sandbox_kernel.workspace.tree.paths import display_name

_SUFFIXES = {
    ".py": "python", ".js": "javascript", ".mjs": "javascript", ".cjs": "javascript", ".ts": "typescript",
    ".rs": "rust", ".c": "c", ".cpp": "cpp", ".cc": "cpp", ".cxx": "cpp", ".zig": "zig", ".wat": "wasm",
    ".wasm": "wasm", ".sh": "command", ".bash": "command", ".rb": "ruby", ".lua": "lua", ".go": "go", ".r": "r",
    ".pl": "perl", ".php": "php", ".sql": "sql",
}  # fmt: skip


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``run``."""
    add = parser.add_argument
    add("file", nargs="?", help="the program; '-' reads it from standard input")
    add("args", nargs="*", help="arguments of the program; those that begin with - come after --")
    add("-c", "--code", help="the program itself")
    add("-l", "--language", help="language (else by the file's suffix)")
    add_option(
        parser, "--timeout", "-t", default=DEFAULT_TIMEOUT_S, metavar="5s",
        help=f"wall-clock limit ({DEFAULT_TIMEOUT_S:g}s)",
    )  # fmt: skip
    add_option(parser, "--memory", "-m", metavar="256M", help="memory limit of the whole tree")
    add_option(parser, "--gpu-memory", metavar="8G")
    add_option(parser, "--env", help="environment variable")
    add_option(
        parser, "--backend", metavar=None, choices=BACKENDS, default="auto",
        help="process, wasm, dask, or auto: wasm for wasm modules, else process",
    )  # fmt: skip
    add("--json", action="store_true", help="print the whole result as JSON")
    add_option(parser, "--quiet", "-q", help="print no receipt")
    add_option(
        parser, "--here", metavar="DIR",
        help="work on a folder (this one without =DIR), copy-on-write: nothing in it changes until you apply",
    )  # fmt: skip
    add("--apply", action="store_true", help="write what changed to the folder when the program ends well")
    add(
        "--apply-also", action="append", metavar="PATH",
        help="with --apply: write this change too, which is written only when named (.git, .vscode, …); repeatable",
    )  # fmt: skip
    add("--diff", metavar="FILE", help="write what changed to FILE as a patch for git apply; - prints it")
    add_policy_options(parser)
    add("--require", type=names, default=[], metavar="A,B", help="fail unless these are enforced")


def run(options: argparse.Namespace) -> int:
    """Run the program. Returns its exit code, or 124 if a limit ended it, as ``timeout`` does."""
    sort_out_here(options)
    if (options.code is None) == (options.file is None):
        raise InvalidRequest("give a FILE or -c CODE, and not both; arguments of the program come after --")
    if options.code is not None:
        code: str | bytes = _as_utf8(options.code)
        language = options.language or "python"
    else:
        raw = _program(options.file)
        language = options.language or _SUFFIXES.get(os.path.splitext(options.file)[1].lower(), "")
        if not language:
            raise InvalidRequest(f"cannot tell the language of {options.file!r}; add --language NAME")
        wasm_bytes = Language.parse(language) is Language.WASM and raw.startswith(b"\0asm")
        code = raw if wasm_bytes else _decoded(raw, options.file)
    env = make_env([_as_utf8(pair) for pair in options.env], os.environ)
    policy, secrets = policy_of(options), make_secrets(options.secret, os.environ)
    stdin = None if options.file == "-" else _input()
    with Sandbox(
        policy,
        config=ProcessConfig(pool_size=0),  # there is no second run to keep jails ready for
        require=options.require,
        audit=options.audit,
        allow_private_for=options.allow_private,
        secrets=secrets,
        here=options.here,
    ) as box:
        box.on_prepare = show_bar if sys.stderr.isatty() else None
        echo = Echo()
        result = box.run(
            code, language, timeout=options.timeout, memory_mb=options.memory, env=env, stdin=stdin,
            args=[_as_utf8(word) for word in options.args],
            limits=Limits(gpu_memory_mb=options.gpu_memory), backend=options.backend,
            on_output=None if options.json else echo,
        )  # fmt: skip
        echo.close()
        status = _finish(result, options)
        if options.here is not None:
            settle_changes(box, options, ended_well=status == 0)
    return status


def _program(name: str) -> bytes:
    if name == "-":
        return sys.stdin.buffer.read(MAX_CODE_BYTES + 1)
    try:
        with open(name, "rb") as file:
            return file.read(MAX_CODE_BYTES + 1)  # one that is longer is refused
    except OSError as error:
        raise InvalidRequest(f"program {name!r} cannot be read: {error.strerror}; give a FILE, or -c CODE") from None


def _decoded(raw: bytes, name: str) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidRequest(
            f"program {name!r} is not UTF-8: byte {error.start} is 0x{raw[error.start]:02x}; save it as UTF-8"
        ) from None


def _as_utf8(word: str) -> str:
    """Return an argument decoded as UTF-8. In an ASCII locale Python passes it with surrogate escapes."""
    return os.fsencode(word).decode("utf-8", "surrogateescape")


def _input() -> BinaryIO | bytes | None:
    """Return the program's input; None without any, or if reading it would stop this process, a background job."""
    if sys.stdin is None or sys.stdin.closed:
        return None
    try:
        fd = sys.stdin.fileno()
    except OSError:
        return sys.stdin.buffer.read()
    with contextlib.suppress(OSError):  # not our controlling terminal: reading it does not stop us
        if os.isatty(fd) and os.tcgetpgrp(fd) != os.getpgrp():
            return None
    return sys.stdin.buffer


def _finish(result: ExecResult, options: argparse.Namespace) -> int:
    if options.json:
        print(json.dumps(result.to_dict(), indent=2))
    elif not options.quiet:
        for violation in result.violations:
            say(f"[{violation.sentence}]")
        # Hints for somebody who types command lines in this folder.
        for note in (*result.notes, *hints(result, Stumble("", os.path.exists, os.getcwd(), hidden=_is_hidden))):
            say(f"[{note}]")
        say(f"[{describe_end(result)} · {result.duration:.3f} s · {describe_isolation(result.isolation)}]")
    if result.exit_code is not None and result.status is not Status.MEMORY_EXCEEDED:
        return result.exit_code
    return 130 if result.status is Status.INTERRUPTED else 124


def _is_hidden(path: str) -> bool:
    from sandbox_kernel.workspace.hidden import is_hidden  # only runs on a folder need it

    return is_hidden(path)


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
    """Write the patch, apply, or ask. ``--apply`` writes nothing when the program failed: it may be half done."""
    changes = box.diff()
    if options.diff is not None:
        if options.diff == "-":
            show_patch(box.patch(), sys.stdout)
        else:
            _write_patch(box, options)
    if not changes:
        return
    number = sum(change.type != "directory" for change in changes)
    count, noun = (number, "file") if number else (len(changes), "folder")
    files = f"{count} {noun}{'' if count == 1 else 's'} changed"
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
        fd = open_host_file(options.diff, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        with open(fd, "w", encoding="utf-8") as file:
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
    if why := box.why_left_out():
        rest += f". {why}: all with --apply-also ."
    _say(options, f"[{len(done)} written to {box.here}{rest}]")


def _few(paths: Sequence[str]) -> str:
    return ", ".join([*map(display_name, paths[:5]), *(["…"] if len(paths) > 5 else [])])


def _say(options: argparse.Namespace, text: str) -> None:
    if not options.quiet:
        say(text)

"""``sandbox-kernel run``: run a file or ``-c CODE`` in a sandbox, print its output, return its exit code."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from typing import BinaryIO

from sandbox_kernel.backends.process import ProcessConfig
from sandbox_kernel.box.sandbox import BACKENDS, Sandbox
from sandbox_kernel.commands.here import add_here_options, settle_changes, sort_out_here
from sandbox_kernel.commands.shared import (
    add_option,
    add_policy_options,
    duration,
    make_env,
    make_secrets,
    megabytes,
    names,
    policy_of,
)
from sandbox_kernel.commands.terminal import Echo, say, show_bar
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.limits import DEFAULT_TIMEOUT_S, Limits
from sandbox_kernel.model import ExecResult, Language, Status, describe_end
from sandbox_kernel.model.hints import Stumble, hints
from sandbox_kernel.receipt import describe_isolation

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
        parser, "--timeout", "-t", type=duration, default=DEFAULT_TIMEOUT_S, metavar="5s",
        help=f"wall-clock limit ({DEFAULT_TIMEOUT_S:g}s)",
    )  # fmt: skip
    add_option(parser, "--memory", "-m", type=megabytes, metavar="256M", help="memory limit of the whole tree")
    add_option(parser, "--gpu-memory", type=megabytes, metavar="8G")
    add_option(parser, "--env", help="environment variable")
    add(
        "--backend", choices=BACKENDS, default="auto",
        help="process, wasm, dask, or auto: wasm for wasm modules, else process",
    )  # fmt: skip
    add("--json", action="store_true", help="print the whole result as JSON")
    add("-q", "--quiet", action="store_true", help="print no receipt")
    add_here_options(parser)
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
    stdin = None if options.file == "-" else _input()
    with Sandbox(
        policy_of(options),
        config=ProcessConfig(pool_size=0),  # there is no second run to keep jails ready for
        require=options.require,
        audit=options.audit,
        allow_private_for=options.allow_private,
        secrets=make_secrets(options.secret, os.environ),
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
        return sys.stdin.buffer.read()
    try:
        with open(name, "rb") as file:
            return file.read()
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
    """Return the standard input for the program; None if there is none, or if reading it would stop this process.

    A shell stops a background job that reads from the terminal, and most programs read nothing.
    """
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
        import json  # imported here, because most runs print text

        print(json.dumps(result.to_dict(), indent=2))
    elif not options.quiet:
        for violation in result.violations:
            allow = f"; to allow it: {violation.remedy}" if violation.remedy else ""
            say(f"[refused {violation.subject}: {violation.reason}{allow}]")
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

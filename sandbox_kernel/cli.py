"""``sandbox-kernel``: run a file or a line in a sandbox, and say what the sandbox is worth here."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NoReturn

from sandbox_kernel import (
    BackendUnavailable,
    InvalidRequest,
    Language,
    Limits,
    PolicyViolation,
    ProcessConfig,
    Sandbox,
    SandboxError,
    SandboxPolicy,
    __version__,
)
from sandbox_kernel.model import ExecResult, Status, describe_end
from sandbox_kernel.network_rule import parse_rule
from sandbox_kernel.notebook.units import parse_duration, parse_megabytes
from sandbox_kernel.policy import PRESETS
from sandbox_kernel.sandbox import BACKENDS

if TYPE_CHECKING:
    from sandbox_kernel.backends.wasm_prepare import Progress
    from sandbox_kernel.net.secret_headers import Secret

#: What ``prepare`` calls the Python of sessions inside WebAssembly.
SCIENCE = "science"
_SUFFIXES = {
    ".py": "python", ".js": "javascript", ".mjs": "javascript", ".cjs": "javascript", ".ts": "typescript",
    ".rs": "rust", ".c": "c", ".cpp": "cpp", ".cc": "cpp", ".cxx": "cpp", ".zig": "zig", ".wat": "wasm",
    ".wasm": "wasm", ".sh": "command", ".bash": "command", ".rb": "ruby", ".lua": "lua", ".go": "go", ".r": "r",
    ".pl": "perl", ".php": "php", ".sql": "sql",
}  # fmt: skip


def duration(text: str) -> float:
    """Seconds from ``500ms``, ``5s``, ``2m``."""
    try:
        return parse_duration(text, "duration")
    except InvalidRequest as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def megabytes(text: str) -> int:
    """MB from ``64M``, ``1G``, ``512K``."""
    try:
        return parse_megabytes(text, "size")
    except InvalidRequest as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def names(text: str) -> list[str]:
    """Areas or lines of the report from ``memory,network``."""
    found = [name.strip() for name in text.split(",")]
    if not all(found):
        raise argparse.ArgumentTypeError(f"{text!r} must be areas or lines of the report like memory,network")
    return found


def make_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = argparse.ArgumentParser(prog="sandbox-kernel", description="Run code nobody has vetted.")
    parser.add_argument("--version", action="version", version=f"sandbox-kernel {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run a file, or -c CODE, in a sandbox")
    run.add_argument("file", nargs="?", help="the program; '-' reads it from standard input")
    run.add_argument("args", nargs="*", help="arguments of the program; those that begin with - come after --")
    run.add_argument("-c", "--code", help="the program itself")
    run.add_argument("-l", "--language", help="language (else by the file's suffix)")
    run.add_argument("-t", "--timeout", type=duration, default=30.0, metavar="5s", help="wall-clock limit (30s)")
    run.add_argument("-m", "--memory", type=megabytes, metavar="256M", help="memory limit of the whole tree")
    run.add_argument("--env", action="append", default=[], metavar="K=V", help="environment variable")
    run.add_argument("--backend", choices=BACKENDS, default="auto", help="process, wasm, or auto: wasm for wasm alone")
    run.add_argument("--json", action="store_true", help="print the whole result as JSON")
    run.add_argument("-q", "--quiet", action="store_true", help="print no receipt")
    install = commands.add_parser("install", help="make the kernel known to a Jupyter in another environment")
    where = install.add_mutually_exclusive_group()
    where.add_argument("--user", action="store_true", help="for this user (the default)")
    where.add_argument("--sys-prefix", action="store_true", help="into this environment")
    where.add_argument("--prefix", metavar="PATH", help="below this folder")
    install.add_argument("--name", default="sandbox", help="the kernel's name (sandbox)")
    install.add_argument("--display-name", default="Sandbox", help="what people see (Sandbox)")
    lab = commands.add_parser("lab", help="open JupyterLab on a notebook")
    lab.add_argument("notebook", nargs="?", help="the notebook or folder (the tour, if it is here)")
    mcp = commands.add_parser("mcp", help="serve the sandbox to agents over MCP, on standard input and output")
    mcp.add_argument("--http", action="store_true", help="streamable HTTP on a loopback address instead")
    mcp.add_argument("--host", help="loopback address for --http (127.0.0.1)")
    mcp.add_argument("--port", type=int, help="port for --http (a free one)")
    mcp.add_argument("--token-file", metavar="FILE", help="bearer token for --http (else made and shown once)")
    for command in (run, mcp):
        _add_policy_options(command)
    prepare = commands.add_parser("prepare", help="make languages ready that run inside WebAssembly")
    prepare.add_argument(
        "languages", nargs="*", metavar="LANGUAGE",
        help="which (all of the catalogue but science: Python sessions with numpy and pandas, which take minutes)",
    )  # fmt: skip
    prepare.add_argument("--background", action="store_true", help="go on meanwhile; what it says is in a file")
    report = commands.add_parser("report", help="what is enforced here, measured")
    form = report.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="as JSON")
    form.add_argument("--html", action="store_true", help="as an HTML page")
    report.add_argument("--backend", choices=BACKENDS, default="auto", help="whose walls (auto: of processes)")
    _add_policy_options(report)
    report.add_argument("--fresh", action="store_true", help="measure again, although this boot has been measured")
    for command in (run, report):
        command.add_argument("--require", type=names, default=[], metavar="A,B", help="fail unless these are enforced")
    return parser


def _add_policy_options(command: argparse.ArgumentParser) -> None:
    """What may be touched: the same words for every command that runs code."""
    add = command.add_argument
    add("--mount", action="append", default=[], metavar="HOST:GUEST[:rw]", help="show a host path inside")
    add("--allow-net", action="append", default=[], metavar="DOMAIN[:PORT]", help="let it reach a domain")
    add("--allow-private", action="append", default=[], metavar="HOST", help="an allowed domain may be on this network")
    add(
        "--secret", action="append", default=[], metavar="NAME@HOST",
        help="a variable of yours that stays outside: programs have a placeholder, requests to HOST the value",
    )  # fmt: skip
    add("--policy", metavar="FILE|PRESET", help=f"policy file, or one of: {', '.join(PRESETS)}")
    add("--audit", metavar="FILE", help="append every decision about the network to this file, as JSON lines")


def make_policy(name: str | None, mounts: Sequence[str], domains: Sequence[str]) -> SandboxPolicy:
    """The policy that the options describe."""
    if name is None:
        policy = SandboxPolicy.preset("standard")
    elif name in PRESETS:
        policy = SandboxPolicy.preset(name)
    else:
        try:
            policy = SandboxPolicy.load(name)
        except PolicyViolation as error:
            raise PolicyViolation(
                f"{error}; --policy takes a .toml or .json file, or one of: {', '.join(PRESETS)}"
            ) from None
    for mount in mounts:
        parts = mount.split(":")
        if len(parts) not in (2, 3) or (len(parts) == 3 and parts[2] not in ("rw", "ro")):
            raise InvalidRequest(f"--mount {mount!r} must be HOST:GUEST or HOST:GUEST:rw")
        policy = policy.mount(parts[0], parts[1], writable=parts[2:] == ["rw"])
    for rule in domains:
        try:
            read = parse_rule(rule)
        except PolicyViolation as error:
            raise InvalidRequest(f"--allow-net {error}") from None
        policy = policy.allow_domain(read.domain, *read.ports)
    return policy


def make_secrets(words: Sequence[str], host: Mapping[str, str]) -> tuple[Secret, ...]:
    """Secrets from ``NAME@HOST``, whose values are the caller's own variables."""
    if not words:
        return ()
    from sandbox_kernel.net.secret_headers import read_secrets

    try:
        return read_secrets(words, host)
    except PolicyViolation as error:
        raise InvalidRequest(f"--secret {error}") from None


def make_env(pairs: Sequence[str], host: Mapping[str, str]) -> dict[str, str]:
    """Variables from ``K=V``, or from ``K`` alone, which takes the caller's own value."""
    env = {}
    for pair in pairs:
        name, given, value = pair.partition("=")
        if not given and name not in host:
            raise InvalidRequest(f"--env {name} names a variable that is not set here; give its value: {name}=VALUE")
        env[name] = value if given else host[name]
    return env


def split_arguments(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Our own words, and those after the first ``--``, which are the program's whatever they look like."""
    if "--" not in words:
        return list(words), []
    place = list(words).index("--")
    return list(words[:place]), list(words[place + 1 :])


def run_command(options: argparse.Namespace) -> int:
    """``sandbox-kernel run``: the program's own exit code, or 124 for a limit, as ``timeout`` does."""
    if (options.code is None) == (options.file is None):
        raise InvalidRequest("give a FILE or -c CODE, and not both; arguments of the program come after --")
    if options.code is not None:
        code: str | bytes = _as_utf8(options.code)
        language = options.language or "python"
    else:
        raw = _program(options.file)
        language = options.language or _SUFFIXES.get(Path(options.file).suffix.lower(), "")
        if not language:
            raise InvalidRequest(f"cannot tell the language of {options.file!r}; add --language NAME")
        wasm_bytes = Language.parse(language) is Language.WASM and raw.startswith(b"\0asm")
        code = raw if wasm_bytes else _decoded(raw, options.file)
    env = make_env([_as_utf8(pair) for pair in options.env], os.environ)
    policy = make_policy(options.policy, options.mount, options.allow_net)
    secrets = make_secrets(options.secret, os.environ)
    stdin = None if options.file == "-" else _input()
    with Sandbox(
        policy,
        config=ProcessConfig(pool_size=0),  # nobody comes for a second one
        require=options.require,
        audit=options.audit,
        allow_private_for=options.allow_private,
        secrets=secrets,
    ) as box:
        box.on_prepare = _bar if sys.stderr.isatty() else None
        result = box.run(
            code, language, timeout=options.timeout, memory_mb=options.memory, env=env, stdin=stdin,
            args=[_as_utf8(word) for word in options.args],
            limits=Limits(), backend=options.backend, on_output=None if options.json else _echo,
        )  # fmt: skip
    return _finish(result, options)


def _program(name: str) -> bytes:
    if name == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(name).read_bytes()
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
    """An argument as it was typed: in a locale that knows only ASCII, Python hands over what it could not decode."""
    return os.fsencode(word).decode("utf-8", "surrogateescape")


def _input() -> BinaryIO | bytes | None:
    """What the program reads, as it comes; None where there is nothing to read, or where reading would stop us.

    A shell stops a job in the background that reads from its terminal, and most programs never ask.
    """
    if sys.stdin is None or sys.stdin.closed:
        return None
    try:
        fd = sys.stdin.fileno()
    except OSError:
        return sys.stdin.buffer.read()
    with contextlib.suppress(OSError):  # a terminal that is not ours to wait for stops nobody
        if os.isatty(fd) and os.tcgetpgrp(fd) != os.getpgrp():
            return None
    return sys.stdin.buffer


def _echo(stream: str, text: str) -> None:
    target = sys.stdout if stream == "stdout" else sys.stderr
    target.write(text)
    target.flush()


def _finish(result: ExecResult, options: argparse.Namespace) -> int:
    if options.json:
        print(json.dumps(result.to_dict(), indent=2))
    elif not options.quiet:
        for violation in result.violations:
            allow = f"; to allow it: {violation.remedy}" if violation.remedy else ""
            print(_printable(f"[refused {violation.subject}: {violation.reason}{allow}]"), file=sys.stderr)
        for note in result.notes:
            print(_printable(f"[{note}]"), file=sys.stderr)
        print(f"[{describe_end(result)} · {result.duration:.3f} s · {result.isolation}]", file=sys.stderr)
    if result.exit_code is not None and result.status is not Status.MEMORY_EXCEEDED:
        return result.exit_code
    return 130 if result.status is Status.INTERRUPTED else 124


def _printable(text: str) -> str:
    """What quotes a program must not drive the terminal."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)


def report_command(options: argparse.Namespace) -> int:
    """``sandbox-kernel report``."""
    policy = make_policy(options.policy, options.mount, options.allow_net)
    with Sandbox(policy, options.backend, audit=options.audit, allow_private_for=options.allow_private) as box:
        progress = _measuring if sys.stderr.isatty() else None
        report = box.report(fresh=options.fresh, require=options.require, on_progress=progress)
    if options.json:
        print(json.dumps(report.to_dict(), indent=2))
    elif options.html:
        print(report._repr_html_())
    else:
        print(report)
    return 0


def install_command(options: argparse.Namespace) -> int:
    """``sandbox-kernel install``."""
    from sandbox_kernel.notebook.install import install

    place = install(
        user=options.user, prefix=options.prefix, sys_prefix=options.sys_prefix, name=options.name,
        display_name=options.display_name,
    )  # fmt: skip
    print(f"installed kernel {options.name!r} in {place}")
    return 0


def lab_command(options: argparse.Namespace) -> NoReturn:
    """``sandbox-kernel lab``: this process becomes JupyterLab."""
    if importlib.util.find_spec("jupyterlab") is None:
        raise BackendUnavailable("JupyterLab is not installed here; install it with: pip install jupyterlab")
    tour = Path("notebooks") / "tour.ipynb"
    target = options.notebook or (str(tour) if tour.exists() else ".")
    os.execv(sys.executable, [sys.executable, "-m", "jupyterlab", target])


def mcp_command(options: argparse.Namespace) -> int:
    """``sandbox-kernel mcp``: until the client closes the connection, or Ctrl-C."""
    policy = make_policy(options.policy, options.mount, options.allow_net)
    secrets = make_secrets(options.secret, os.environ)
    if not options.http and (options.host or options.port is not None or options.token_file):
        raise InvalidRequest("--host, --port and --token-file are of the HTTP server; add --http")
    if options.http:
        from sandbox_kernel.agent.mcp_http import serve_http

        serve_http(
            policy, host=options.host or "127.0.0.1", port=options.port or 0, token_file=options.token_file,
            version=__version__, audit=options.audit, allow_private_for=options.allow_private, secrets=secrets,
        )  # fmt: skip
    else:
        from sandbox_kernel.agent.mcp import serve_stdio

        serve_stdio(
            policy, version=__version__, audit=options.audit, allow_private_for=options.allow_private, secrets=secrets
        )
    return 0


def prepare_command(options: argparse.Namespace) -> int:
    """``sandbox-kernel prepare``: fetch and compile what languages inside WebAssembly need, with a bar."""
    from sandbox_kernel.backends.wasm import WasmBackend

    names = [name for name in options.languages if name != SCIENCE]
    languages = [Language.parse(name) for name in names]
    if options.background:
        return _prepare_in_background(options.languages)
    tell = _bar if sys.stderr.isatty() else _Lines()
    backend = WasmBackend()
    if languages or not options.languages:
        backend.prepare(languages, tell)
    if SCIENCE in options.languages:
        backend.prepare_science(tell)
    return 0


def _prepare_in_background(names: Sequence[str]) -> int:
    """The same command, in a process of its own that outlives this one; two at once wait for each other."""
    from sandbox_kernel.backends.wasm_store import WasmStore

    told = os.path.join(WasmStore().folder, ".prepare.log")
    with open(told, "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as log:
        child = subprocess.Popen(
            [sys.executable, "-m", "sandbox_kernel", "prepare", *names],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    print(f"preparing in the background as process {child.pid}; what it says is in {told}")
    return 0


def _measuring(done: int, total: int) -> None:
    filled = round(done / total * 24)
    end = "\r\033[K" if done == total else ""
    print(f"\r\033[Kmeasuring {'█' * filled}{'·' * (24 - filled)}{end}", end="", file=sys.stderr, flush=True)


def _bar(progress: Progress) -> None:
    filled = round(progress.fraction * 24)
    bar = "█" * filled + "·" * (24 - filled)
    print(f"\r\033[K{progress.language:12} {bar} {progress.text}", end="", file=sys.stderr, flush=True)
    if progress.fraction >= 1:
        print(file=sys.stderr)


class _Lines:
    """For logs: a line for each step, not for each second of it."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, progress: Progress) -> None:
        line = f"{progress.language}: {progress.text}"
        if line != self._last:
            print(line, file=sys.stderr, flush=True)
            self._last = line


_COMMANDS = {
    "run": run_command,
    "report": report_command,
    "install": install_command,
    "lab": lab_command,
    "mcp": mcp_command,
    "prepare": prepare_command,
}


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
    parser = make_parser()
    ours, theirs = split_arguments(sys.argv[1:] if arguments is None else arguments)
    options = parser.parse_args(ours)
    if theirs and options.command != "run":
        parser.error(f"{options.command} takes no arguments after --")
    if options.command == "run":
        options.args = [*options.args, *theirs]
    try:
        return _COMMANDS[options.command](options)
    except BrokenPipeError:
        raise
    except (SandboxError, OSError) as error:
        print(f"sandbox-kernel: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())

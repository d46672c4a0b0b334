"""``sandbox-kernel``: run a file or a line in a sandbox, and say what the sandbox is worth here."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from sandbox_kernel import Language, Limits, Sandbox, SandboxError, SandboxPolicy, __version__
from sandbox_kernel.model import ExecResult, Status, describe_end
from sandbox_kernel.policy import PRESETS

_SUFFIXES = {
    ".py": "python", ".js": "javascript", ".mjs": "javascript", ".cjs": "javascript", ".ts": "typescript",
    ".rs": "rust", ".c": "c", ".cpp": "cpp", ".cc": "cpp", ".cxx": "cpp", ".zig": "zig", ".wat": "wasm",
    ".wasm": "wasm", ".sh": "command", ".bash": "command", ".rb": "ruby", ".lua": "lua", ".go": "go", ".r": "r",
    ".pl": "perl", ".php": "php", ".sql": "sql",
}  # fmt: skip
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)?\Z")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMG])(?:i?B)?\Z", re.IGNORECASE)


def duration(text: str) -> float:
    """Seconds from ``500ms``, ``5s``, ``2m``."""
    match = _DURATION.match(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration; for example 500ms, 5s or 2m")
    return float(match[1]) * {"ms": 0.001, None: 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def megabytes(text: str) -> int:
    """MB from ``64M``, ``1G``, ``512K``."""
    match = _SIZE.match(text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; for example 64M, 1G or 2048K")
    return max(1, round(float(match[1]) * {"k": 1 / 1024, "m": 1, "g": 1024}[match[2].lower()]))


def make_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = argparse.ArgumentParser(prog="sandbox-kernel", description="Run code nobody has vetted.")
    parser.add_argument("--version", action="version", version=f"sandbox-kernel {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run a file, or -c CODE, in a sandbox")
    run.add_argument("file", nargs="?", help="the program; '-' reads it from standard input")
    run.add_argument("args", nargs=argparse.REMAINDER, help="arguments of the program")
    run.add_argument("-c", "--code", help="the program itself")
    run.add_argument("-l", "--language", help="language (else by the file's suffix)")
    run.add_argument("-t", "--timeout", type=duration, default=30.0, metavar="5s", help="wall-clock limit (30s)")
    run.add_argument("-m", "--memory", type=megabytes, metavar="256M", help="memory limit of the whole tree")
    run.add_argument("--env", action="append", default=[], metavar="K=V", help="environment variable")
    run.add_argument("--json", action="store_true", help="print the whole result as JSON")
    run.add_argument("-q", "--quiet", action="store_true", help="print no receipt")
    mcp = commands.add_parser("mcp", help="serve the sandbox to agents over MCP, on standard input and output")
    mcp.add_argument("--http", action="store_true", help="streamable HTTP on a loopback address instead")
    mcp.add_argument("--host", default="127.0.0.1", help="loopback address for --http (127.0.0.1)")
    mcp.add_argument("--port", type=int, default=0, help="port for --http (a free one)")
    mcp.add_argument("--token-file", metavar="FILE", help="bearer token for --http (else made and shown once)")
    for command in (run, mcp):
        _add_policy_options(command)
    report = commands.add_parser("report", help="what is enforced here, measured")
    report.add_argument("--json", action="store_true", help="as JSON")
    report.add_argument("--html", action="store_true", help="as an HTML table")
    report.add_argument("--require", default="", metavar="A,B", help="fail unless these areas or lines are enforced")
    return parser


def _add_policy_options(command: argparse.ArgumentParser) -> None:
    """What may be touched: the same words for every command that runs code."""
    add = command.add_argument
    add("--mount", action="append", default=[], metavar="HOST:GUEST[:rw]", help="show a host path inside")
    add("--allow-net", action="append", default=[], metavar="DOMAIN[:PORT]", help="let it reach a domain")
    add("--policy", metavar="FILE|PRESET", help=f"policy file, or one of: {', '.join(PRESETS)}")


def make_policy(name: str | None, mounts: Sequence[str], domains: Sequence[str]) -> SandboxPolicy:
    """The policy that the options describe."""
    if name is None:
        policy = SandboxPolicy.preset("standard")
    elif name in PRESETS:
        policy = SandboxPolicy.preset(name)
    else:
        policy = SandboxPolicy.load(name)
    for mount in mounts:
        parts = mount.split(":")
        if len(parts) not in (2, 3) or (len(parts) == 3 and parts[2] not in ("rw", "ro")):
            raise SystemExit(f"sandbox-kernel: --mount {mount!r} must be HOST:GUEST or HOST:GUEST:rw")
        policy = policy.mount(parts[0], parts[1], writable=parts[2:] == ["rw"])
    for rule in domains:
        domain, _, port = rule.partition(":")
        if port and not port.isdigit():
            raise SystemExit(f"sandbox-kernel: --allow-net {rule!r} must be DOMAIN or DOMAIN:PORT")
        policy = policy.allow_domain(domain, *([int(port)] if port else []))
    return policy


def run_command(options: argparse.Namespace) -> int:
    """``sandbox-kernel run``: the program's own exit code, or 124 for a limit, as ``timeout`` does."""
    if (options.code is None) == (options.file is None):
        raise SystemExit("sandbox-kernel: give a FILE or -c CODE, and not both")
    if options.code is not None:
        code: str | bytes = options.code
        language = options.language or "python"
    else:
        raw = sys.stdin.buffer.read() if options.file == "-" else Path(options.file).read_bytes()
        language = options.language or _SUFFIXES.get(Path(options.file).suffix.lower(), "")
        if not language:
            raise SystemExit(f"sandbox-kernel: cannot tell the language of {options.file!r}; add --language NAME")
        wasm_bytes = Language.parse(language) is Language.WASM and raw.startswith(b"\0asm")
        code = raw if wasm_bytes else raw.decode("utf-8")
    env = dict(pair.split("=", 1) if "=" in pair else (pair, os.environ.get(pair, "")) for pair in options.env)
    stdin = sys.stdin.buffer.read() if options.file != "-" and not sys.stdin.isatty() else None
    policy = make_policy(options.policy, options.mount, options.allow_net)
    with Sandbox(policy) as box:
        result = box.run(
            code, language, timeout=options.timeout, memory_mb=options.memory, env=env, args=options.args, stdin=stdin,
            limits=Limits(), on_output=None if options.json else _echo,
        )  # fmt: skip
    return _finish(result, options)


def _echo(stream: str, text: str) -> None:
    target = sys.stdout if stream == "stdout" else sys.stderr
    target.write(text)
    target.flush()


def _finish(result: ExecResult, options: argparse.Namespace) -> int:
    if options.json:
        print(json.dumps(result.to_dict(), indent=2))
    elif not options.quiet:
        print(f"[{describe_end(result)} · {result.duration:.3f} s · {result.isolation}]", file=sys.stderr)
    if result.exit_code is not None:
        return result.exit_code
    return 130 if result.status is Status.INTERRUPTED else 124


def report_command(options: argparse.Namespace) -> int:
    """``sandbox-kernel report``."""
    with Sandbox() as box:
        report = box.report()
        if options.require:
            report.require(*[name.strip() for name in options.require.split(",")])
    if options.json:
        print(json.dumps(report.to_dict(), indent=2))
    elif options.html:
        print(report._repr_html_())
    else:
        print(report)
    return 0


def mcp_command(options: argparse.Namespace) -> int:
    """``sandbox-kernel mcp``: until the client closes the connection, or Ctrl-C."""
    policy = make_policy(options.policy, options.mount, options.allow_net)
    if options.http:
        from sandbox_kernel.agent.mcp_http import serve_http

        serve_http(
            policy, host=options.host, port=options.port, token_file=options.token_file, version=__version__
        )  # fmt: skip
    else:
        from sandbox_kernel.agent.mcp import serve_stdio

        serve_stdio(policy, version=__version__)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; errors are one line and exit code 2."""
    options = make_parser().parse_args(arguments)
    try:
        return {"run": run_command, "report": report_command, "mcp": mcp_command}[options.command](options)
    except (SandboxError, OSError, UnicodeDecodeError) as error:
        print(f"sandbox-kernel: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())

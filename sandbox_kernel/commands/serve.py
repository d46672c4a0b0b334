"""The servers: ``serve`` runs programs over HTTP, as SandboxFusion's ``POST /run_code`` does; ``mcp`` serves agents."""

from __future__ import annotations

import argparse
import asyncio
import os

from sandbox_kernel import __version__
from sandbox_kernel.agent.http_server import announce, listen, need_http, read_token
from sandbox_kernel.box.sandbox import Sandbox
from sandbox_kernel.commands.shared import POLICY_HELP, add_option, add_policy_options, make_secrets, policy_of
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.policy.sandbox_policy import policy_with

TOKEN_VARIABLE = "SANDBOX_KERNEL_SERVE_TOKEN"  # noqa: S105


def add_serve_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``serve``."""
    parser.add_argument("--host", default="127.0.0.1", help="loopback address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=int, default=8080, help="port to listen on (8080; 0 for a free one)")
    parser.add_argument("--token-file", metavar="FILE", help="bearer token of clients (else made and shown once)")
    parser.add_argument("--workers", type=int, help="programs that run at the same time (two for each core)")
    parser.add_argument("--queue", type=int, default=256, help="requests that may wait (256); more get 429")
    add_option(parser, "--policy", help=POLICY_HELP)


def serve(options: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C, then finish what was taken."""
    workers = options.workers if options.workers is not None else 2 * (os.cpu_count() or 1)
    if not 1 <= workers <= 1024:
        raise InvalidRequest(f"--workers {workers} must be between 1 and 1024")
    if not 0 <= options.queue <= 1_000_000:
        raise InvalidRequest(f"--queue {options.queue} must be between 0 and 1000000")
    need_http()
    policy = policy_with(options.policy or "standard")
    token, made = read_token(options.token_file, TOKEN_VARIABLE)
    with listen(options.host, options.port) as listener:
        announce(f"Serving with {workers} workers", listener, "/run_code", token, made=made)
        from sandbox_kernel.agent.run_service import RunQueue, RunService  # an extra

        async def service() -> None:
            await RunService(RunQueue(policy, workers, options.queue), token).serve(listener)

        asyncio.run(service())
    return 0


def add_mcp_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``mcp``."""
    add = parser.add_argument
    add("--http", action="store_true", help="streamable HTTP on a loopback address instead")
    add("--host", help="loopback address for --http (127.0.0.1)")
    add("--port", type=int, help="port for --http (a free one)")
    add("--token-file", metavar="FILE", help="bearer token for --http (else made and shown once)")
    add_option(parser, "--here", metavar="DIR", help="programs work on this folder, copy-on-write")
    add("--apply", action="store_true", help="let the agent write changes to the folder of --here")
    add_policy_options(parser)


def mcp(options: argparse.Namespace) -> int:
    """Serve until the client closes the connection, or until Ctrl-C."""
    if not options.http and (options.host or options.port is not None or options.token_file):
        raise InvalidRequest("--host, --port and --token-file are for the HTTP server; add --http")
    if options.apply and options.here is None:
        raise InvalidRequest("--apply is about the folder of --here; add --here")
    from sandbox_kernel.agent.mcp.mcp_server import need_sdk, serve_http, serve_stdio  # an extra
    from sandbox_kernel.agent.mcp.toolbox import Toolbox

    need_sdk()
    with Sandbox(
        policy_of(options), audit=options.audit, allow_private_for=options.allow_private,
        secrets=make_secrets(options.secret, os.environ), here=options.here,
    ) as box:  # fmt: skip
        toolbox = Toolbox(box, may_apply=options.apply)
        if options.http:
            host, port = options.host or "127.0.0.1", options.port or 0
            asyncio.run(serve_http(toolbox, __version__, host, port, options.token_file))
        else:
            asyncio.run(serve_stdio(toolbox, __version__))
    return 0

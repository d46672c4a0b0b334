"""``sandbox-kernel serve``: runs programs over HTTP, as SandboxFusion's ``POST /run_code`` does."""

from __future__ import annotations

import argparse
import asyncio
import os
import socket

from sandbox_kernel.agent.http_server import announce, listen, need_http, read_token
from sandbox_kernel.commands.shared import POLICY_HELP, add_option
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.policy import SandboxPolicy
from sandbox_kernel.policy.document import make_policy

TOKEN_VARIABLE = "SANDBOX_KERNEL_SERVE_TOKEN"  # noqa: S105


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See ``Command``."""
    parser.add_argument("--host", default="127.0.0.1", help="loopback address to listen on (127.0.0.1)")
    parser.add_argument("--port", type=int, default=8080, help="port to listen on (8080; 0 for a free one)")
    parser.add_argument("--token-file", metavar="FILE", help="bearer token of clients (else made and shown once)")
    parser.add_argument("--workers", type=int, help="programs that run at the same time (two for each core)")
    parser.add_argument("--queue", type=int, default=256, help="requests that may wait (256); more get 429")
    add_option(parser, "--policy", help=POLICY_HELP)


def execute(options: argparse.Namespace) -> int:
    """Serve until SIGTERM or Ctrl-C, then finish what was taken."""
    workers = options.workers if options.workers is not None else 2 * (os.cpu_count() or 1)
    if not 1 <= workers <= 1024:
        raise InvalidRequest(f"--workers {workers} must be between 1 and 1024")
    if not 0 <= options.queue <= 1_000_000:
        raise InvalidRequest(f"--queue {options.queue} must be between 0 and 1000000")
    need_http("serve", "serve")
    policy = make_policy(options.policy, [], [])
    token, made = read_token(options.token_file, TOKEN_VARIABLE)
    with listen(options.host, options.port) as listener:
        announce(f"Serving with {workers} workers", listener, "/run_code", token, made=made)
        asyncio.run(_serve(listener, policy, token, workers, options.queue))
    return 0


async def _serve(listener: socket.socket, policy: SandboxPolicy, token: str, workers: int, waiting: int) -> None:
    from sandbox_kernel.agent.run_service import RunQueue, RunService

    await RunService(RunQueue(policy, workers, waiting), token).serve(listener)

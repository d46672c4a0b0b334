"""``sandbox-kernel mcp``: an MCP server that offers the sandbox to agents as tools."""

from __future__ import annotations

import argparse
import os

from sandbox_kernel import __version__
from sandbox_kernel.commands.shared import add_option, add_policy_options, make_secrets, policy_of
from sandbox_kernel.errors import InvalidRequest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See ``Command``."""
    add = parser.add_argument
    add("--http", action="store_true", help="streamable HTTP on a loopback address instead")
    add("--host", help="loopback address for --http (127.0.0.1)")
    add("--port", type=int, help="port for --http (a free one)")
    add("--token-file", metavar="FILE", help="bearer token for --http (else made and shown once)")
    add_option(parser, "--here", metavar="DIR", help="programs work on this folder, copy-on-write")
    add("--apply", action="store_true", help="let the agent write changes to the folder of --here")
    add_policy_options(parser)


def execute(options: argparse.Namespace) -> int:
    """Serve until the client closes the connection, or until Ctrl-C."""
    if not options.http and (options.host or options.port is not None or options.token_file):
        raise InvalidRequest("--host, --port and --token-file are for the HTTP server; add --http")
    if options.apply and options.here is None:
        raise InvalidRequest("--apply is about the folder of --here; add --here")
    policy, secrets = policy_of(options), make_secrets(options.secret, os.environ)
    given = {
        "version": __version__, "audit": options.audit, "allow_private_for": options.allow_private, "secrets": secrets,
        "here": options.here, "may_apply": options.apply,
    }  # fmt: skip
    if options.http:
        from sandbox_kernel.agent.mcp.mcp_http import serve_http

        serve_http(
            policy, host=options.host or "127.0.0.1", port=options.port or 0, token_file=options.token_file, **given
        )
    else:
        from sandbox_kernel.agent.mcp.mcp_server import serve_stdio

        serve_stdio(policy, **given)
    return 0

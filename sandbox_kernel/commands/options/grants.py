"""The options for policy, secrets and variables, shared by all commands that run code."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sandbox_kernel.errors import InvalidRequest, PolicyViolation
from sandbox_kernel.policy import PRESETS
from sandbox_kernel.policy.sandbox_policy import make_policy

__all__ = ["add_policy_options", "make_env", "make_policy", "make_secrets"]

if TYPE_CHECKING:
    from sandbox_kernel.net.secret_headers import Secret


def add_policy_options(command: argparse.ArgumentParser) -> None:
    """Add the options for ``make_policy`` and ``make_secrets`` to a command."""
    add = command.add_argument
    add("--mount", action="append", default=[], metavar="HOST:GUEST[:rw]", help="show a host path inside")
    add("--allow-net", action="append", default=[], metavar="DOMAIN[:PORT]", help="let it reach a domain")
    add(
        "--allow-private",
        action="append",
        default=[],
        metavar="HOST",
        help="let an allowed domain have a private address",
    )
    add(
        "--secret", action="append", default=[], metavar="NAME@HOST",
        help="pass an environment variable as a secret: programs see a placeholder, requests to HOST the value",
    )  # fmt: skip
    add("--gpu", nargs="?", const="all", metavar="CARDS", help="let it use accelerators: all, or numbers like 0,1")
    add("--policy", metavar="FILE|PRESET", help=f"policy file, or one of: {', '.join(PRESETS)}")
    add("--audit", metavar="FILE", help="append every decision about the network to this file, as JSON lines")


def make_secrets(words: Sequence[str], host: Mapping[str, str]) -> tuple[Secret, ...]:
    """Return secrets from ``NAME@HOST``; the values are environment variables of the caller."""
    if not words:
        return ()
    from sandbox_kernel.net.secret_headers import read_secrets

    try:
        return read_secrets(words, host)
    except PolicyViolation as error:
        raise InvalidRequest(f"--secret {error}") from None


def make_env(pairs: Sequence[str], host: Mapping[str, str]) -> dict[str, str]:
    """Return variables from ``K=V``, or from ``K``, which takes the value from the caller's environment."""
    env = {}
    for pair in pairs:
        name, given, value = pair.partition("=")
        if not given and name not in host:
            raise InvalidRequest(f"--env {name} names a variable that is not set here; give its value: {name}=VALUE")
        env[name] = value if given else host[name]
    return env

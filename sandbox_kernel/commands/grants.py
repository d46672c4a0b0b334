"""The options for policy, secrets and variables, shared by all commands that run code."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sandbox_kernel.errors import InvalidRequest, PolicyViolation
from sandbox_kernel.policy import PRESETS, SandboxPolicy
from sandbox_kernel.policy.gpu import parse_gpu
from sandbox_kernel.policy.network_rule import parse_rule
from sandbox_kernel.policy.sandbox_policy import parse_mount

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


def make_policy(
    name: str | None, mounts: Sequence[str], domains: Sequence[str], gpu: str | None = None
) -> SandboxPolicy:
    """Return the policy that the options describe."""
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
        try:
            shown = parse_mount(mount)
        except PolicyViolation as error:
            raise InvalidRequest(f"--mount {mount!r}: {error}; give HOST:GUEST or HOST:GUEST:rw") from None
        policy = policy.mount(shown.host, shown.guest, shown.writable)
    for rule in domains:
        try:
            read = parse_rule(rule)
        except PolicyViolation as error:
            raise InvalidRequest(f"--allow-net {error}") from None
        policy = policy.allow_domain(read.domain, *read.ports)
    if gpu is not None:
        try:
            policy = replace(policy, gpu=parse_gpu(gpu))
        except PolicyViolation as error:
            raise InvalidRequest(f"--gpu {error}") from None
    return policy


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

"""What several commands share: options of the one table, types of their values, policies, secrets and variables."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from sandbox_kernel.errors import InvalidRequest, PolicyViolation
from sandbox_kernel.model.units import parse_duration, parse_megabytes
from sandbox_kernel.notebook.options.option_table import BY_NAME
from sandbox_kernel.policy import PRESETS, SandboxPolicy
from sandbox_kernel.policy.sandbox_policy import make_policy

if TYPE_CHECKING:
    from sandbox_kernel.net.secret_headers import Secret

POLICY_HELP = f"policy file, or one of: {', '.join(PRESETS)}"

T = TypeVar("T")


def _type(parse: Callable[[str, str], T], what: str) -> Callable[[str], T]:
    """Return a type for argparse, which prints the message of a wrong value together with the option."""

    def convert(text: str) -> T:
        try:
            return parse(text, what)
        except InvalidRequest as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


#: Seconds from text like ``500ms``, ``5s`` or ``2m``; MB from text like ``64M``, ``1G`` or ``512K``.
duration, megabytes = _type(parse_duration, "duration"), _type(parse_megabytes, "size")


def names(text: str) -> list[str]:
    """Return areas or lines of the report from text like ``memory,network``."""
    found = [name.strip() for name in text.split(",")]
    if not all(found):
        raise argparse.ArgumentTypeError(f"{text!r} must be areas or lines of the report like memory,network")
    return found


def add_option(parser: argparse.ArgumentParser, name: str, *aliases: str, **given: Any) -> None:
    """Add an option that notebooks have too, as their table describes it; ``given`` is what differs here."""
    option = BY_NAME[name]
    known: dict[str, Any] = {"metavar": option.value, "help": option.help}
    if option.repeats:
        known |= {"action": "append", "default": []}
    if option.optional:
        known |= {"nargs": "?", "const": "."}
    parser.add_argument(*aliases, name, **(known | given))


def add_policy_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for ``policy_of`` and ``make_secrets`` to a command."""
    add = parser.add_argument
    add_option(parser, "--mount")
    add_option(parser, "--allow-net")
    add(
        "--allow-private", action="append", default=[], metavar="HOST",
        help="let an allowed domain have a private address",
    )  # fmt: skip
    add(
        "--secret", action="append", default=[], metavar="NAME@HOST",
        help="pass an environment variable as a secret: programs see a placeholder, requests to HOST the value",
    )  # fmt: skip
    add_option(parser, "--gpu", nargs="?", const="all")
    add_option(parser, "--policy", help=POLICY_HELP)
    add("--audit", metavar="FILE", help="append every decision about the network to this file, as JSON lines")


def policy_of(options: argparse.Namespace) -> SandboxPolicy:
    """Return the policy that the options of a command describe."""
    return make_policy(options.policy, options.mount, options.allow_net, options.gpu)


def make_secrets(words: Sequence[str], host: Mapping[str, str]) -> tuple[Secret, ...]:
    """Return secrets from ``NAME@HOST``; the values are environment variables of the caller."""
    if not words:
        return ()
    from sandbox_kernel.net.secret_headers import read_secrets  # few runs have secrets

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


def add_place_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where a kernelspec goes."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--user", action="store_true", help="for this user (the default)")
    where.add_argument("--sys-prefix", action="store_true", help="into this environment")
    where.add_argument("--prefix", metavar="PATH", help="below this folder")

"""What several commands share: options of the one table and types of their values, and what a terminal shows."""

from __future__ import annotations

import argparse
import sys
import termios
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from sandbox_kernel.errors import InvalidRequest, PolicyViolation
from sandbox_kernel.notebook.options import cell_options
from sandbox_kernel.notebook.options.option_table import BY_NAME, Option, parse_fields
from sandbox_kernel.policy import PRESETS, SandboxPolicy
from sandbox_kernel.receipt import INVISIBLE, MARK, unmarked

if TYPE_CHECKING:
    from sandbox_kernel.backends.wasm.prepare import PrepareProgress
    from sandbox_kernel.net.secret_headers import Secret
    from sandbox_kernel.untrusted.ansi import ColourFilter

POLICY_HELP = f"policy file, or one of: {', '.join(PRESETS)}"


def _type(option: Option) -> Callable[[str], object]:
    """Return a type for argparse, which prints the message of a wrong value together with the option."""

    def convert(text: str) -> object:
        try:
            return option.parse(text, option.value.lower())
        except InvalidRequest as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def names(text: str) -> list[str]:
    """Return areas or lines of the report from text like ``memory,network``."""
    found = [name.strip() for name in text.split(",")]
    if not all(found):
        raise argparse.ArgumentTypeError(f"{text!r} must be areas or lines of the report like memory,network")
    return found


def add_option(parser: argparse.ArgumentParser, name: str, *aliases: str, **given: Any) -> None:
    """Add an option that notebooks have too, as their table describes it; ``given`` is what differs here."""
    option = BY_NAME[name]
    known: dict[str, Any] = {"help": option.help}
    known |= {"action": "store_true"} if option.is_flag else {"metavar": option.value}
    if option.value in ("DURATION", "SIZE"):  # ``policy_of`` parses the others
        known["type"] = _type(option)
    if option.repeats:
        known |= {"action": "append", "default": []}
    if option.alone:
        known |= {"nargs": "?", "const": option.alone}
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
    add_option(parser, "--gpu")
    add_option(parser, "--policy", help=POLICY_HELP)
    add("--audit", metavar="FILE", help="append every decision about the network to this file, as JSON lines")


def policy_of(options: argparse.Namespace) -> SandboxPolicy:
    """Return the policy that the options of a command describe."""
    given = {f"--{name.replace('_', '-')}": getattr(options, name) for name in ("mount", "allow_net", "gpu", "policy")}
    return cell_options.policy_of(cell_options.CellOptions(**parse_fields(given, BY_NAME)))


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
    """Add the options that say where a kernelspec goes: all set ``prefix``, which is None for the user's folder."""
    add = parser.add_mutually_exclusive_group().add_argument
    add("--user", action="store_const", dest="prefix", const=None, help="for this user (the default)")
    add("--sys-prefix", action="store_const", dest="prefix", const=sys.prefix, help="into this environment")
    add("--prefix", metavar="PATH", help="below this folder")


class Echo:
    """Prints the output of one run. Call ``close`` after the run, before anything of ours is printed.

    A program must not hide or imitate our lines. At a terminal its output holds colours and no other escape sequence,
    and never our mark, with which our lines begin. Redirected output is not changed: other programs read it.
    """

    def __init__(self) -> None:
        streams = {"stdout": sys.stdout, "stderr": sys.stderr}
        self._filters: dict[str, ColourFilter] = {}
        self._amid_line = False
        terminals = [name for name, stream in streams.items() if stream.isatty()]
        if terminals:
            from sandbox_kernel.untrusted.ansi import ColourFilter  # redirected output needs no filter

            self._filters = {name: ColourFilter(None) for name in terminals}

    def __call__(self, stream: str, text: str) -> None:
        """Print text of ``stdout`` or ``stderr``. Called as output arrives."""
        colours = self._filters.get(stream)
        self._print(stream, text if colours is None else unmarked(colours.feed(text)))

    def close(self) -> None:
        """Print text that was held back as the start of an escape sequence; end the colours and the line."""
        for stream, colours in self._filters.items():
            self._print(stream, unmarked(colours.close()))
            self._print(stream, colours.end_colours())
        if self._amid_line and "stderr" in self._filters:
            self._print("stderr", "\n")

    def _print(self, stream: str, text: str) -> None:
        target = sys.stdout if stream == "stdout" else sys.stderr
        target.write(text)
        target.flush()
        if text and stream in self._filters:
            self._amid_line = not text.endswith("\n")


def say(text: str, *, to: TextIO | None = None, end: str = "\n") -> None:
    """Print a line of ours on standard error; what a command was asked for goes ``to`` standard output, unmarked."""
    ours = f"\x1b[0m{MARK} " if to is None and sys.stderr.isatty() else ""
    # A text may quote a program: only its first line can pass for ours.
    print(ours + _visible(text).replace("\n", "\n  "), end=end, file=to or sys.stderr, flush=True)


def ask(question: str, *words: str) -> str:
    """Ask at the terminal, and return the word that was typed; empty for every other answer."""
    # What was typed before the question answers another one, perhaps of the program.
    termios.tcflush(sys.stdin, termios.TCIFLUSH)
    say(f"{question} Type {' or '.join(words)}; Enter: no. ", end="")
    answer = sys.stdin.readline().strip().lower()
    return answer if answer in words else ""


def show_patch(patch: str, to: TextIO) -> None:
    """Print a patch of what a program wrote: unchanged, or for a terminal with every sign visible."""
    print(_visible(patch) if to.isatty() else patch, end="", file=to, flush=True)


def _visible(text: str) -> str:
    """Return text that may quote a program without control characters, invisible letters and our mark."""
    return INVISIBLE.sub(lambda found: found[0] if found[0] in "\n\t" else "\ufffd", unmarked(text))


def _bar(fraction: float) -> str:
    filled = round(fraction * 24)
    return "█" * filled + "·" * (24 - filled)


def show_measuring(done: int, total: int) -> None:
    """Draw a bar of the canaries that have finished; remove it after the last one."""
    end = "\r\033[K" if done == total else ""
    print(f"\r\033[Kmeasuring {_bar(done / total)}{end}", end="", file=sys.stderr, flush=True)


def show_bar(progress: PrepareProgress) -> None:
    """Draw a bar for each language that is prepared; in a log its last line alone."""
    line, ended = f"{progress.language:12} {_bar(progress.fraction)} {progress.text}", progress.fraction >= 1
    if sys.stderr.isatty():
        print(f"\r\033[K{line}", end="\n" if ended else "", file=sys.stderr, flush=True)
    elif ended:
        print(line, file=sys.stderr, flush=True)

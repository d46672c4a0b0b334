"""Prints what the command line shows: a program's output while it runs, our own lines, and our questions.

A program must not be able to hide or imitate our lines. At a terminal its output holds colours and no other escape
sequence, and never our mark; our lines begin at the left, without its colours, with the mark. Redirected output is not
changed: other programs read it. Everything that may quote a program is printed by ``say``, ``ask`` and ``show_patch``.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

from sandbox_kernel.ground.visible import INVISIBLE
from sandbox_kernel.receipt import MARK, unmarked

if TYPE_CHECKING:
    from sandbox_kernel.untrusted.ansi import ColourFilter

_END_OF_COLOURS = "\x1b[0m"


class Echo:
    """Prints the output of one run. Call ``close`` after the run, before anything of ours is printed."""

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
        if colours is not None:
            text = unmarked(colours.feed(text))
            self._amid_line = not text.endswith("\n") if text else self._amid_line
        self._print(stream, text)

    def close(self) -> None:
        """Print text that was held back as the start of an escape sequence; end the colours and the line."""
        for stream, colours in self._filters.items():
            self(stream, colours.close())
            self._print(stream, colours.end_colours())
        if self._amid_line and "stderr" in self._filters:
            self._print("stderr", "\n")

    @staticmethod
    def _print(stream: str, text: str) -> None:
        target = sys.stdout if stream == "stdout" else sys.stderr
        target.write(text)
        target.flush()


def say(text: str, *, to: TextIO | None = None) -> None:
    """Print a line of ours on standard error; what a command was asked for goes ``to`` standard output, unmarked.

    Text with several lines, perhaps because it quotes a program, is indented: only the first can pass for ours.
    """
    shown = text.replace("\n", "\n  ")
    print(_visible(shown) if to else _ours(shown), file=to or sys.stderr, flush=True)


def ask(question: str, *words: str) -> str:
    """Ask at the terminal, and return the word that was typed; empty for every other answer.

    What was typed before the question was there answers another one, perhaps of the program: it is dropped.
    """
    import termios  # few runs ask

    termios.tcflush(sys.stdin, termios.TCIFLUSH)
    print(_ours(f"{question} Type {' or '.join(words)}; Enter: no. "), end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline().strip().lower()
    return answer if answer in words else ""


def show_patch(patch: str, to: TextIO) -> None:
    """Print a patch of what a program wrote: unchanged, or for a terminal with every sign visible."""
    print(_visible(patch) if to.isatty() else patch, end="", file=to, flush=True)


def _ours(text: str) -> str:
    return f"{_END_OF_COLOURS}{MARK} {_visible(text)}" if sys.stderr.isatty() else _visible(text)


def _visible(text: str) -> str:
    """Return text that may quote a program without control characters, invisible letters and our mark."""
    return INVISIBLE.sub(lambda found: found[0] if found[0] in "\n\t" else "\ufffd", unmarked(text))

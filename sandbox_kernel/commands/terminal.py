"""Prints what the command line shows: a program's output while it runs, our own lines, questions and progress.

A program must not hide or imitate our lines. At a terminal its output holds colours and no other escape sequence, and
never our mark, with which our lines begin. Redirected output is not changed: other programs read it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, TextIO

from sandbox_kernel.receipt import INVISIBLE, MARK, unmarked

if TYPE_CHECKING:
    from sandbox_kernel.backends.wasm.prepare import PrepareProgress
    from sandbox_kernel.untrusted.ansi import ColourFilter


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
    """Print a line of ours on standard error; what a command was asked for goes ``to`` standard output, unmarked.

    Text with several lines, perhaps because it quotes a program, is indented: only the first can pass for ours.
    """
    ours = f"\x1b[0m{MARK} " if to is None and sys.stderr.isatty() else ""
    print(ours + _visible(text).replace("\n", "\n  "), end=end, file=to or sys.stderr, flush=True)


def ask(question: str, *words: str) -> str:
    """Ask at the terminal, and return the word that was typed; empty for every other answer.

    What was typed before the question was there answers another one, perhaps of the program: it is dropped.
    """
    import termios  # few runs ask

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
    """Draw a bar for each language that is prepared."""
    line = f"{progress.language:12} {_bar(progress.fraction)} {progress.text}"
    print(f"\r\033[K{line}", end="\n" if progress.fraction >= 1 else "", file=sys.stderr, flush=True)


class Lines:
    """Prints progress for logs: one line for each step."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, progress: PrepareProgress) -> None:
        """Print the step, unless it was printed before."""
        line = f"{progress.language}: {progress.text}"
        if line != self._last:
            print(line, file=sys.stderr, flush=True)
            self._last = line

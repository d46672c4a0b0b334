"""Prints a program's output while it runs: unchanged to files and pipes, with colours only to terminals."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sandbox_kernel.untrusted.ansi import ColourFilter


class Echo:
    """Prints the output of one run. Call ``close`` after the run.

    Escape sequences can change a terminal's clipboard and title, and overwrite earlier lines. So on a terminal all but
    colours are removed, as in the notebook. Redirected output is not changed.
    """

    def __init__(self) -> None:
        streams = {"stdout": sys.stdout, "stderr": sys.stderr}
        self._filters: dict[str, ColourFilter] = {}
        terminals = [name for name, stream in streams.items() if stream.isatty()]
        if terminals:
            from sandbox_kernel.untrusted.ansi import ColourFilter  # redirected output needs no filter

            self._filters = {name: ColourFilter() for name in terminals}

    def __call__(self, stream: str, text: str) -> None:
        """Print text of ``stdout`` or ``stderr``. Called as output arrives."""
        colours = self._filters.get(stream)
        self._print(stream, text if colours is None else colours.feed(text))

    def close(self) -> None:
        """Print text that was held back because it could be the start of an escape sequence."""
        for stream, colours in self._filters.items():
            self._print(stream, colours.close())

    @staticmethod
    def _print(stream: str, text: str) -> None:
        target = sys.stdout if stream == "stdout" else sys.stderr
        target.write(text)
        target.flush()

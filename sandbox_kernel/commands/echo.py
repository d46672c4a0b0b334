"""What a program prints, on the caller's own streams as it comes: untouched for files and pipes, tame for terminals."""

from __future__ import annotations

import sys

from sandbox_kernel.untrusted.ansi import ColourFilter


class Echo:
    """Prints for one run; ``close`` when it has ended.

    A terminal obeys what is printed on it: escape sequences write its clipboard, its title and over what stands above.
    So there only colours are let through, as in the notebook. What is redirected is the program's own text.
    """

    def __init__(self) -> None:
        streams = {"stdout": sys.stdout, "stderr": sys.stderr}
        self._filters = {name: ColourFilter() for name, stream in streams.items() if stream.isatty()}

    def __call__(self, stream: str, text: str) -> None:
        """Called with output as it arrives."""
        colours = self._filters.get(stream)
        self._print(stream, text if colours is None else colours.feed(text))

    def close(self) -> None:
        """Print what was held back because it might have become an escape sequence."""
        for stream, colours in self._filters.items():
            self._print(stream, colours.close())

    @staticmethod
    def _print(stream: str, text: str) -> None:
        target = sys.stdout if stream == "stdout" else sys.stderr
        target.write(text)
        target.flush()

"""An open file of the caller's as standard input, for backends whose programs it cannot reach as a terminal."""

from __future__ import annotations

import os


def unless_terminal(source: int | None) -> int | None:
    """A descriptor to read from; None for a terminal, on which nobody would know that something waits for an end."""
    return None if source is None or os.isatty(source) else source


def read_to_end(source: int) -> bytes:
    """Everything that a descriptor has, waiting for its end; it stays the caller's."""
    with open(source, "rb", closefd=False) as file:
        return file.read()

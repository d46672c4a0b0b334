"""Standard input from an open file of the caller, for backends that cannot pass a terminal to the program."""

from __future__ import annotations

import os


def unless_terminal(source: int | None) -> int | None:
    """Return the descriptor; None for a terminal, because its user would not know that the end of input is needed."""
    return None if source is None or os.isatty(source) else source


def read_to_end(source: int) -> bytes:
    """Read a descriptor to its end; does not close it."""
    with open(source, "rb", closefd=False) as file:
        return file.read()

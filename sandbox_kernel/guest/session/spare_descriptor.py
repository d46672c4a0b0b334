"""Keeps one descriptor in reserve, so that a checkpoint can be made of a session whose cells have used up all others.

A checkpoint notes which files are open, which takes a descriptor for a moment. Runs inside the jail: standard library
only, Python 3.8 or later.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Tuple

#: References taken before the first cell, because a cell may replace these functions.
_make, _close, _stat = getattr(os, "memfd_create", None), os.close, os.fstat


class SpareDescriptor:
    """One open file that nobody needs. A cell may close it, and its number may then belong to a file of the cell."""

    def __init__(self) -> None:
        self._fd = -1
        self._file: Tuple[int, int] | None = None
        self.take()

    def take(self) -> None:
        """Take a descriptor into reserve, if one is free."""
        try:
            self._fd = _make("spare") if _make is not None else -1
            self._file = _which(self._fd)
        except OSError:
            self._file = None

    def give(self) -> None:
        """Give the descriptor back, if it is still ours."""
        try:
            if self._file is not None and _which(self._fd) == self._file:
                _close(self._fd)
        except OSError:
            pass  # a cell has closed it
        self._file = None


def _which(fd: int) -> Tuple[int, int]:
    """Return what tells a file in memory from every other file."""
    found = _stat(fd)
    return found.st_dev, found.st_ino

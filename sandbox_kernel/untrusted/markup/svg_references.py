"""Bounds the work of drawing something after its references are followed.

Ten elements that each use the next one ten times are a few bytes, but ten thousand million shapes for a browser. The
same holds for a marker that is drawn at each point of a line.
"""

from __future__ import annotations

from collections.abc import Iterable

from sandbox_kernel.untrusted import ContentRefused

MAX_DRAWN = 200_000
_MAX_CHAIN = 50


class References:
    """Collects which elements contain or use which others. ``check`` refuses a drawing that would become too large."""

    def __init__(self) -> None:
        self._names: list[str] = [""]
        self._uses: dict[str, list[tuple[str, int]]] = {}
        self._sizes: dict[str, int] = {"": 0}

    def enter(self, name: str) -> None:
        """Register the start of an element; ``name`` is its id, or empty."""
        inside = self._names[-1]
        if name and name != inside:
            self._uses.setdefault(inside, []).append((name, 1))
        self._names.append(name or inside)
        self.weigh(1)

    def weigh(self, work: int) -> None:
        """Add to the work of drawing the current element; 1 is a simple shape."""
        self._sizes[self._names[-1]] = self._sizes.get(self._names[-1], 0) + work

    def leave(self) -> None:
        """Register the end of an element."""
        self._names.pop()

    def refer(self, names: Iterable[str], times: int = 1) -> None:
        """Register that the current element draws other elements, by their ids, so many times each."""
        self._uses.setdefault(self._names[-1], []).extend((name, times) for name in names)

    def check(self) -> None:
        """Raise ``ContentRefused`` if the work is too much, or references form too long a chain."""
        known: dict[str, int] = {}
        if self._drawn("", known, 0) > MAX_DRAWN:
            raise ContentRefused(f"to draw it is the work of more than {MAX_DRAWN} shapes")

    def _drawn(self, name: str, known: dict[str, int], chain: int) -> int:
        if name in known:
            return known[name]
        if chain > _MAX_CHAIN:
            raise ContentRefused(f"its parts refer to each other along more than {_MAX_CHAIN} steps")
        known[name] = 1  # an element that uses itself is drawn once, as in browsers
        total = self._sizes.get(name, 0)
        for used, times in self._uses.get(name, ()):
            total = min(total + times * self._drawn(used, known, chain + 1), MAX_DRAWN + 1)
        known[name] = total
        return total

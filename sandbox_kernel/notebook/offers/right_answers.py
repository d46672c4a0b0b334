"""What the user has answered to offers: rights for the next cell, and what is never to be offered again."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from sandbox_kernel.model.notes import Wanted


class RightAnswers:
    """The answers of one notebook, until its kernel ends; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._once: dict[Wanted, None] = {}
        self._never: set[Wanted] = set()
        self._asked: set[Wanted] = set()
        self._copies: dict[Wanted, tuple[str, ...]] = {}

    @property
    def never(self) -> frozenset[Wanted]:
        """What the user never wants to give in this notebook."""
        with self._lock:
            return frozenset(self._never)

    def refuse(self, wanted: Wanted) -> None:
        """Offer this no more."""
        with self._lock:
            self._never.add(wanted)
            self._once.pop(wanted, None)

    def allow(self, wanted: Wanted, *, once: bool) -> None:
        """Forget an earlier ``refuse``; with ``once``, give the right to the next cell."""
        with self._lock:
            self._never.discard(wanted)
            if once:
                self._once[wanted] = None

    def take_once(self) -> tuple[Wanted, ...]:
        """Return the rights of the cell that begins now. The cell after it does not have them."""
        with self._lock:
            found, self._once = tuple(self._once), {}
            return found

    def copied(self, wanted: Wanted, paths: tuple[str, ...]) -> None:
        """Remember which files of the work folder are copies that the user allowed."""
        with self._lock:
            self._copies[wanted] = paths

    def copies(self, wanted: Wanted | None = None) -> tuple[str, ...]:
        """Return the paths of all copies, or of those that one right brought."""
        with self._lock:
            kept = self._copies if wanted is None else {wanted: self._copies.get(wanted, ())}
            return tuple(path for paths in kept.values() for path in paths)

    def forget_copies(self, wanted: Wanted) -> tuple[str, ...]:
        """Return the paths that one right brought, which the caller removes."""
        with self._lock:
            return self._copies.pop(wanted, ())

    def not_asked(self, wanted: Iterable[Wanted]) -> tuple[Wanted, ...]:
        """Return what the user was not asked about yet. They are asked about each right one time."""
        with self._lock:
            new = tuple(one for one in wanted if one not in self._asked)
            self._asked.update(new)
            return new

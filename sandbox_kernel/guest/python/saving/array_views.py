"""Stores the memory that arrays of numpy share once, so that they share it again when they are loaded.

``pickle`` copies each array. Here arrays whose memory overlaps are stored as views of one array of bytes, which covers
what they use and no more. Each array is seen twice: when its variable is tried (``note``), and when it is stored
(``reduced``).

Arrays that pandas holds are stored apart. pandas counts who shares its memory, to copy it before a write, and would not
know of what was shared through a file.
"""

from __future__ import annotations

import bisect
import gc
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Tuple

    Range = Tuple[int, int]


class SharedArrays:
    """The arrays that were seen, by the array that owns their memory. Arrays are known by their addresses."""

    def __init__(self) -> None:
        self._ranges: Dict[int, Dict[int, Range]] = {}
        self._apart: set[int] = set()
        self._merged: Dict[int, List[Range]] = {}
        #: The arrays of bytes, by owner and place, and their addresses. They live until all is stored.
        self._bytes: Dict[Tuple[int, int], Any] = {}
        self._ours: set[int] = set()

    def note(self, value: Any) -> None:
        """See a value while its variable is tried."""
        if _is_array(value):
            place = None if id(value) in self._apart else _place(value)
            if place is not None:
                self._ranges.setdefault(id(place[0]), {})[id(value)] = place[1]
        elif _is_of_pandas(value):
            self._keep_apart(value)

    def reduced(self, value: Any) -> Any:
        """Return how an array is made again of memory that it shares; ``NotImplemented`` for everything else."""
        if not _is_array(value):
            if _is_of_pandas(value):
                self._keep_apart(value)
            return NotImplemented
        place = None if id(value) in self._apart or id(value) in self._ours else _place(value)
        if place is None:
            return NotImplemented
        owner, (low, high) = place
        shared = self._shared(id(owner))
        at = bisect.bisect_right(shared, (low, sys.maxsize)) - 1
        if at < 0 or high > shared[at][1]:
            return NotImplemented
        begin, end = shared[at]
        view = (value.dtype, value.shape, value.strides, _address(value) - _address(owner) - begin)
        return make_view, (self._part(owner, begin, end), *view, bool(value.flags.writeable))

    def _keep_apart(self, holder: Any) -> None:
        """Note all arrays that an object of pandas holds, also through others: it may hand out those of its parts."""
        todo, seen = [holder], set()
        while todo:
            part = todo.pop()
            if _is_array(part):
                self._apart.add(id(part))
            elif id(part) not in seen and (type(part) in (dict, list, tuple) or _is_of_pandas(part)):
                seen.add(id(part))
                todo += gc.get_referents(part)

    def _shared(self, owner: int) -> List[Range]:
        """Return the ranges of an owner's memory that more than one array uses."""
        if owner not in self._merged:
            seen = self._ranges.get(owner, {})
            ranges = sorted(place for address, place in seen.items() if address not in self._apart)
            self._merged[owner] = _overlapping(ranges)
        return self._merged[owner]

    def _part(self, owner: Any, begin: int, end: int) -> Any:
        place = id(owner), begin
        if place not in self._bytes:
            flat = (owner if owner.flags.c_contiguous else owner.T).reshape(-1)
            made = flat.view("u1")[begin:end]
            self._bytes[place] = made
            self._ours.add(id(made))
        return self._bytes[place]


def _overlapping(ranges: List[Range]) -> List[Range]:
    """Return what ranges cover together, where at least two of them overlap. They are sorted."""
    found: List[Range] = []
    begin, end, count = 0, 0, 0
    for low, high in [*ranges, (sys.maxsize, sys.maxsize)]:
        if count and low < end:
            end, count = max(end, high), count + 1
            continue
        if count > 1:
            found.append((begin, end))
        begin, end, count = low, high, 1
    return found


def _is_array(value: Any) -> bool:
    return type(value).__module__ == "numpy" and type(value).__name__ == "ndarray"


def _is_of_pandas(value: Any) -> bool:
    module = type(value).__module__
    return type(module) is str and module[:7] == "pandas."


def _address(array: Any) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _place(array: Any) -> Tuple[Any, Range] | None:
    """Return the array that owns an array's memory, and which bytes of it are used; None where that is not simple."""
    owner = array
    while type(owner.base) is type(array):
        owner = owner.base
    if array.dtype.hasobject or owner.dtype.hasobject or not array.nbytes:
        return None
    if not (owner.flags.c_contiguous or owner.flags.f_contiguous):
        return None
    low = _address(array) - _address(owner)
    high = low + array.itemsize
    for count, stride in zip(array.shape, array.strides):  # noqa: B905 - Python 3.8
        low += min(0, stride * (count - 1))
        high += max(0, stride * (count - 1))
    return (owner, (low, high)) if low >= 0 and high <= owner.nbytes else None


def make_view(memory: Any, kind: Any, shape: Any, strides: Any, offset: int, writeable: bool) -> Any:
    """Make an array of memory that others may use too."""
    made = sys.modules["numpy"].ndarray(shape, kind, memory, offset, strides)
    made.flags.writeable = writeable and made.flags.writeable
    return made

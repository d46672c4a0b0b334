"""Stores the memory that arrays of numpy share once, so that they share it again when they are loaded.

``pickle`` copies each array. Here arrays whose memory overlaps are stored as views of one array of bytes, which covers
what they use and no more; arrays of objects as views of the array that owns the memory. Each array is seen twice: when
its variable is tried (``note``), and when it is stored (``reduced``).

Arrays that pandas holds are stored apart. pandas counts who shares its memory, to copy it before a write, and would not
know of what was shared through a file. Subclasses of ``ndarray`` are stored apart too. ``apart`` names the variables
that share memory no longer.
"""

from __future__ import annotations

import bisect
import functools
import gc
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Set, Tuple

    Range = Tuple[int, int]
    #: Begin and end of the memory that an array uses, its identity, its variable, and how it is stored.
    Use = Tuple[int, int, int, str, int]


def altered(value: Any) -> str:
    """Return what will be different in a value; empty when nothing is known."""
    if type(value) is functools._lru_cache_wrapper and value.cache_info().currsize:
        return f"the cache of {value.__name__} is empty"
    numpy = sys.modules.get("numpy")
    if numpy is not None and issubclass(type(value), numpy.memmap) and getattr(value, "_mmap", None) is not None:
        return "it is in memory and no longer mapped to its file"
    return ""


#: How arrays are stored: sharing memory as before, alone, or by pandas.
_KEPT, _APART, _OF_PANDAS = range(3)


class SharedArrays:
    """The arrays that were seen, by the array that owns their memory. Arrays are known by their addresses."""

    def __init__(self) -> None:
        self._ranges: Dict[int, Dict[int, Range]] = {}
        self._apart: set[int] = set()
        self._merged: Dict[int, List[Range]] = {}
        #: The arrays of bytes, by owner and place, and their addresses. They live until all is stored.
        self._bytes: Dict[Tuple[int, int], Any] = {}
        self._ours: set[int] = set()
        #: Which memory each variable uses.
        self._used: Set[Use] = set()

    def note(self, value: Any, variable: str = "") -> None:
        """See a value while its variable is tried."""
        if _is_array(value):
            place = None if id(value) in self._apart else _place(value)
            if place is not None:
                self._ranges.setdefault(id(place[0]), {})[id(value)] = place[1]
            self._use(value, variable, _KEPT if place is not None else _APART)
        elif _is_subclass(value):
            self._use(value, variable, _APART)
        elif _is_of_pandas(value):
            for array in self._keep_apart(value):
                self._use(array, variable, _OF_PANDAS)

    def _use(self, array: Any, variable: str, how: int) -> None:
        if array.nbytes:
            low, high = _extent(array)
            self._used.add((low, high, id(array), variable, how))

    def apart(self) -> Dict[str, str]:
        """Return the variables that share memory with others and will not any more, each with the reason.

        What pandas shares between its own objects is no part of what a user sees.
        """
        found: Dict[str, Set[str]] = {}
        held: Dict[Tuple[str, int, int], Use] = {}
        # pandas makes new arrays of its memory when it is pickled.
        own: Dict[str, List[Use]] = {}
        for each in self._used:
            if each[4] == _OF_PANDAS:
                own.setdefault(each[3], []).append(each)
        for one in sorted(self._used):
            if one[4] != _OF_PANDAS and any(each[0] <= one[0] < each[1] for each in own.get(one[3], ())):
                continue
            held = {key: each for key, each in held.items() if each[1] > one[0]}
            for other in held.values():
                both = one[4], other[4]
                if other[3] != one[3] and other[2] != one[2] and both not in ((_KEPT, _KEPT), (_OF_PANDAS, _OF_PANDAS)):
                    found.setdefault(one[3], set()).add(other[3])
                    found.setdefault(other[3], set()).add(one[3])
            # Of all arrays that a variable holds, the one that ends last stands for the others.
            key = one[3], one[4], 0 if one[4] == _KEPT else one[2]
            if key not in held or held[key][1] < one[1]:
                held[key] = one
        return {name: f"it no longer shares memory with {', '.join(sorted(others))}" for name, others in found.items()}

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
        if value.dtype.hasobject:
            if value is owner:
                return NotImplemented
            offset = (_address(value) - _address(owner)) // value.itemsize
            return make_object_view, (owner, value.shape, value.strides, offset, bool(value.flags.writeable))
        view = (value.dtype, value.shape, value.strides, _address(value) - _address(owner) - begin)
        return make_view, (self._part(owner, begin, end), *view, bool(value.flags.writeable))

    def _keep_apart(self, holder: Any) -> List[Any]:
        """Note all arrays that an object of pandas holds, also through others: it may hand out those of its parts."""
        todo, seen, found = [holder], set(), []
        while todo:
            part = todo.pop()
            if _is_array(part):
                self._apart.add(id(part))
                found.append(part)
            elif id(part) not in seen and (type(part) in (dict, list, tuple) or _is_of_pandas(part)):
                seen.add(id(part))
                todo += gc.get_referents(part)
        return found

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


def _is_subclass(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and issubclass(type(value), numpy.ndarray)


def _is_of_pandas(value: Any) -> bool:
    module = type(value).__module__
    return type(module) is str and module[:7] == "pandas."


def _address(array: Any) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _are_plain_objects(array: Any, owner: Any) -> bool:
    """Whether both are arrays of whole objects, in the order of their addresses."""
    return array.dtype.char == owner.dtype.char == "O" and bool(owner.flags.c_contiguous)


def _extent(array: Any) -> Range:
    """Return the addresses where the memory of an array begins and ends."""
    low = _address(array)
    high = low + array.itemsize
    for count, stride in zip(array.shape, array.strides):  # noqa: B905 - Python 3.8
        low += min(0, stride * (count - 1))
        high += max(0, stride * (count - 1))
    return low, high


def _place(array: Any) -> Tuple[Any, Range] | None:
    """Return the array that owns an array's memory, and which bytes of it are used; None where that is not simple."""
    owner = array
    while type(owner.base) is type(array):
        owner = owner.base
    has_objects = array.dtype.hasobject or owner.dtype.hasobject
    if not array.nbytes or (has_objects and not _are_plain_objects(array, owner)):
        return None
    if not (owner.flags.c_contiguous or owner.flags.f_contiguous):
        return None
    low, high = (place - _address(owner) for place in _extent(array))
    return (owner, (low, high)) if low >= 0 and high <= owner.nbytes else None


def make_view(memory: Any, kind: Any, shape: Any, strides: Any, offset: int, writeable: bool) -> Any:
    """Make an array of memory that others may use too."""
    made = sys.modules["numpy"].ndarray(shape, kind, memory, offset, strides)
    made.flags.writeable = writeable and made.flags.writeable
    return made


def make_object_view(owner: Any, shape: Any, strides: Any, offset: int, writeable: bool) -> Any:
    """Make an array of objects that uses memory of another one."""
    as_strided: Any = sys.modules["numpy"].lib.stride_tricks.as_strided
    made = as_strided(owner.reshape(-1)[offset:], shape, strides)
    if not writeable:
        made.flags.writeable = False
    return made

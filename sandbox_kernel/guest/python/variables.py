"""What each variable of a Python session is, short: its type, a mark that changes with its value, a few words.

Runs in a fork that ends afterwards (``session/observer.py``). The mark is a checksum over the pickled value, with large
buffers read where they lie. A value that cannot be pickled, or is too large, is marked by its address: two equal
addresses then say little.
"""

from __future__ import annotations

import gc
import marshal
import pickle
import reprlib
import sys
import time
import types
import zlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List

    Found = Dict[str, List[str]]

#: The most variables of one look, and the longest name and text.
MAX_VARIABLES, MAX_NAME, MAX_TEXT = 10_000, 100, 80
#: The most bytes of one value that are pickled, and of large buffers that are read.
MAX_PICKLED, MAX_BUFFERS = 8 << 20, 1 << 30
#: How often an unfinished look is written down, in seconds.
_STEP_S = 0.05
#: What leads to values of others: their variables, all classes.
_NOT_ITS_OWN = (types.FunctionType, types.ModuleType, type)
#: What a class has by itself, and what pickling puts there (``__slotnames__``).
_NO_PART_OF_CLASSES = ("__dict__", "__weakref__", "__slotnames__", "_abc_impl")


class _TooLarge(Exception):
    """Raised to end the pickling of a value that is too large."""


class _Checksum:
    """A file that keeps only a checksum of what is written to it."""

    def __init__(self) -> None:
        self.crc, self.size, self.buffers = 0, 0, 0

    def write(self, data: Any) -> int:
        """Add what ``pickle`` writes."""
        self.crc = zlib.crc32(data, self.crc)
        self.size += len(data)
        if self.size > MAX_PICKLED:
            raise _TooLarge
        return len(data)

    def buffer(self, given: pickle.PickleBuffer) -> None:
        """Add a large buffer, which is read where it lies."""
        raw = given.raw()
        self.buffers += raw.nbytes
        if self.buffers > MAX_BUFFERS:
            raise _TooLarge
        self.crc = zlib.crc32(raw, self.crc)


class _Pickler(pickle.Pickler):
    """Pickles functions and classes of the user by what they do, not by their names alone."""

    def reducer_override(self, value: Any) -> Any:
        """See ``pickle``."""
        if isinstance(value, types.ModuleType):
            return str, (value.__name__,)
        if isinstance(value, types.FunctionType) and value.__module__ == "__main__":
            cells = []
            for cell in value.__closure__ or ():
                try:
                    cells.append(cell.cell_contents)
                except ValueError:
                    cells.append(None)
            # Version 2 of marshal has no references: others depend on who else uses a constant just now.
            code = marshal.dumps(value.__code__, 2)
            return tuple, ((code, value.__defaults__, value.__kwdefaults__, cells, vars(value)),)
        if isinstance(value, type) and value.__module__ == "__main__":
            held = {name: part for name, part in vars(value).items() if name not in _NO_PART_OF_CLASSES}
            parts = [(name, getattr(part, "__func__", part)) for name, part in held.items()]
            return tuple, ((value.__qualname__, value.__bases__, parts),)
        return NotImplemented


def mark_of(value: Any) -> str:
    """Return a mark of a value; it begins with ``@`` when it is only the value's address, and its size."""
    into = _Checksum()
    try:
        _Pickler(into, protocol=5, buffer_callback=into.buffer).dump(value)
        return f"{into.crc:08x}{into.size + into.buffers:x}"
    except BaseException:
        try:
            held = {id(value): value}
            for _ in range(2):  # with what it holds: a model is small without its arrays
                parts = [part for part in list(held.values())[:1000] if not isinstance(part, _NOT_ITS_OWN)]
                few = [part for part in parts if sys.getsizeof(part) < 1 << 16]
                held.update((id(part), part) for part in gc.get_referents(*few))
            return f"@{id(value):x}:{sum(map(sys.getsizeof, held.values())):x}"
        except BaseException:
            return f"@{id(value):x}"


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 40
_SHORT.maxlevel = 2


def text_of(value: Any) -> str:
    """Return a value in a few words: its shape, its size or its beginning."""
    try:
        shape = getattr(value, "shape", None)
        if isinstance(shape, tuple):
            return f"{'×'.join(map(str, map(int, shape))) or '()'} {getattr(value, 'dtype', '')}".rstrip()
        if isinstance(value, (types.FunctionType, types.ModuleType, type)):
            return str(value.__name__)[:MAX_TEXT]
        return _SHORT.repr(value)[:MAX_TEXT]
    except BaseException:
        return "…"


def look(space: Dict[str, Any], first: str) -> Iterator[Found]:
    """Yield what each variable is, ever more exactly. Variables that occur in the code ``first`` come first."""
    # The same names in each look, whatever the code: a host takes one that is missing for removed.
    names = [name for name in space if isinstance(name, str) and len(name) <= MAX_NAME and name.isidentifier()]
    del names[MAX_VARIABLES:]
    names.sort(key=lambda name: name not in first)
    found: Found = {name: [type(space[name]).__name__[:MAX_NAME], f"@{id(space[name]):x}", ""] for name in names}
    yield found
    written = time.monotonic()
    for name in found:
        found[name][1:] = [mark_of(space[name]), text_of(space[name])]
        if time.monotonic() - written > _STEP_S:
            yield found
            written = time.monotonic()
    yield found

"""Writes the variables of a Python session to a file, and reads them back. Both happen only inside a jail.

The file: one line of JSON (versions, names, the sizes of the parts), the pickle of all variables that can be stored,
then their large buffers. All are pickled together, so that what they share is shared again. Functions and classes of
cells are stored with their code and get the session's own variables as globals.
"""

from __future__ import annotations

import io
import json
import marshal
import pickle
import sys
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO, Dict, List, Tuple

#: Python versions read each other's code objects wrongly, so the file fits one version only.
VERSION = f"{sys.implementation.name} {sys.version_info[0]}.{sys.version_info[1]}"
MAX_HEADER, MAX_REASON = 4 << 20, 200
#: What a class has by itself.
_OF_CLASSES = ("__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__slots__")


class StatePickler(pickle.Pickler):
    """Pickles functions and classes of cells by what they are made of, and memory that tensors share once."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._tensors: Dict[Tuple[str, int], Any] = {}

    def reducer_override(self, value: Any) -> Any:
        """See ``pickle``. What may refer to itself (a method to its class) is filled in after it was made."""
        if isinstance(value, types.ModuleType):
            return import_again, (value.__name__,)
        if type(value).__name__ == "TypedStorage" and type(value).__module__ == "torch.storage":
            # torch makes a new object for each tensor that uses this memory; all of them refer to the first one.
            place = str(value.device), value.data_ptr()
            first = self._tensors.setdefault(place, value)
            return NotImplemented if first is value or not place[1] else (_same, (first,))
        if isinstance(value, types.MappingProxyType):
            return read_only, (dict(value),)
        if type(value).__module__ == "dataclasses" and (name := _mark_of_dataclasses(value)):
            return getattr, (sys.modules["dataclasses"], name)
        if isinstance(value, types.FunctionType) and value.__module__ == "__main__":
            # A function that a library made around one of a cell says that it is the cell's, and is the library's.
            home = value.__globals__.get("__name__", "")
            if vars(sys.modules.get(home, types)) is not value.__globals__:
                raise pickle.PicklingError(f"the globals of {value.__qualname__} are of no module")
            made = (marshal.dumps(value.__code__), value.__name__, len(value.__closure__ or ()), home)
            inner = []
            for cell in value.__closure__ or ():
                try:
                    inner.append((True, cell.cell_contents))
                except ValueError:
                    inner.append((False, None))
            state = (value.__qualname__, value.__defaults__, value.__kwdefaults__, value.__dict__, inner, value.__doc__)
            return make_function, made, state, None, None, fill_function
        if isinstance(value, type) and value.__module__ == "__main__" and type(value) is type:
            slots = value.__dict__.get("__slots__")
            held = {
                name: part
                for name, part in vars(value).items()
                if name not in _OF_CLASSES and not isinstance(part, types.MemberDescriptorType)
            }
            return (
                make_class,
                (value.__name__, value.__qualname__, value.__bases__, slots),
                (held, value.__doc__),
                None,
                None,
                fill_class,
            )
        return NotImplemented


def _mark_of_dataclasses(value: Any) -> str:
    """Return the name of a value that ``dataclasses`` knows by its identity; empty for others."""
    marks = ("MISSING", "KW_ONLY", "_FIELD", "_FIELD_CLASSVAR", "_FIELD_INITVAR", "_HAS_DEFAULT_FACTORY")
    return next((name for name in marks if value is getattr(sys.modules["dataclasses"], name, None)), "")


def _same(value: Any) -> Any:
    return value


def read_only(content: Dict[Any, Any]) -> types.MappingProxyType[Any, Any]:
    """Make a mapping that cannot be changed."""
    return types.MappingProxyType(content)


def import_again(name: str) -> types.ModuleType:
    """Import a module."""
    __import__(name)
    return sys.modules[name]


def make_function(code: bytes, name: str, cells: int, home: str = "__main__") -> types.FunctionType:
    """Make a function without what it refers to; ``home`` is the module of its globals."""
    space = import_again(home).__dict__
    program = marshal.loads(code)  # noqa: S302 - inside the jail
    return types.FunctionType(program, space, name, None, tuple(types.CellType() for _ in range(cells)))


def fill_function(made: types.FunctionType, state: Tuple[Any, ...]) -> None:
    """Give a function what it refers to."""
    made.__qualname__, made.__defaults__, made.__kwdefaults__, attributes, inner, made.__doc__ = state
    made.__dict__.update(attributes)
    made.__module__ = "__main__"
    for cell, (filled, content) in zip(made.__closure__ or (), inner):  # noqa: B905 - Python 3.8
        if filled:
            cell.cell_contents = content


def make_class(name: str, qualname: str, bases: Tuple[type, ...], slots: Any) -> type:
    """Make a class without its methods."""
    own = {"__module__": "__main__", "__qualname__": qualname, **({} if slots is None else {"__slots__": slots})}
    return types.new_class(name, bases, {}, lambda space: space.update(own))


def fill_class(made: type, state: Tuple[Dict[str, Any], str | None]) -> None:
    """Give a class its methods and attributes."""
    held, made.__doc__ = state
    for name, part in held.items():
        setattr(made, name, part)


def why_not(value: Any, *, made_again: bool = True) -> str:
    """Return why a value cannot be stored; empty when it can: it was pickled, and made again from that if asked."""
    out, buffers = io.BytesIO(), []  # type: ignore[var-annotated]
    try:
        StatePickler(out, protocol=5, buffer_callback=buffers.append).dump(value)
        if made_again:
            pickle.loads(out.getvalue(), buffers=buffers)  # noqa: S301 - inside the jail
    except BaseException as error:
        return f"{type(value).__name__}: {type(error).__name__}: {str(error)[:MAX_REASON]}"
    return ""


def save(variables: Dict[str, Any], into: BinaryIO, *, made_again: bool = True) -> Dict[str, Any]:
    """Write all variables that can be stored. Returns ``stored`` (names) and ``lost`` (reasons by name).

    With ``made_again`` each one is made again as a trial, which takes its memory a second time.
    """
    lost = {name: reason for name, value in variables.items() if (reason := why_not(value, made_again=made_again))}
    stored = {name: value for name, value in variables.items() if name not in lost}
    out, buffers = io.BytesIO(), []  # type: ignore[var-annotated]
    StatePickler(out, protocol=5, buffer_callback=buffers.append).dump(stored)
    parts: List[Any] = [out.getbuffer(), *(buffer.raw() for buffer in buffers)]
    report = {"stored": list(stored), "lost": lost}
    header = json.dumps({"version": VERSION, "parts": [part.nbytes for part in parts], **report})
    into.write(header.encode() + b"\n")
    into.writelines(parts)
    return report


def load(source: BinaryIO, space: Dict[str, Any]) -> Dict[str, Any]:
    """Read the variables into the session. Returns ``stored`` and ``lost``; ``ValueError`` for another version."""
    header = json.loads(source.readline(MAX_HEADER))
    if header["version"] != VERSION:
        raise ValueError(f"it was saved by {header['version']}, and this is {VERSION}")
    # The buffers must be writable: arrays are made of them.
    parts = [bytearray(size) for size in header["parts"]]
    for part in parts:
        if source.readinto(part) != len(part):  # type: ignore[attr-defined]
            raise ValueError("it ends too early")
    values: Dict[str, Any] = pickle.loads(bytes(parts[0]), buffers=parts[1:])  # noqa: S301 - inside the jail
    space.update(values)
    return {"stored": list(values), "lost": header["lost"]}

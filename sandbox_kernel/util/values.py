"""The library's ``dataclass``, made quickly: its methods are not compiled while modules are imported.

``dataclasses.dataclass`` compiles six methods for each class, and the modules of one run have 50 such classes: with the
library's own, importing them takes 153 ms of a processor, with this one 104. Here the comparison, the hash, the text
and the refusals are functions that all classes share, and ``__init__`` is compiled at the first object. ``fields``,
``replace``, ``asdict`` and pickling work as always. Import ``dataclass`` from here in modules that a start imports;
type checkers see the library's own.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import inspect
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn, TypeVar

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, *, frozen=False, kw_only=False, **options):
        """Make a class of values, with the arguments and promises of ``dataclasses.dataclass``."""
        if cls is None:
            return lambda given: dataclass(given, frozen=frozen, kw_only=kw_only, **options)
        if options:
            return dataclasses.dataclass(cls, frozen=frozen, kw_only=kw_only, **options)
        return _made(cls, frozen, kw_only)


T = TypeVar("T")
#: The default of a field that a function makes.
_FROM_FACTORY = object()


def _made(cls: type[T], frozen: bool, kw_only: bool) -> type[T]:
    own = vars(cls)
    if cls.__doc__ is None:
        # Else the library makes a text of the signature, and parses one of the interpreter for it.
        cls.__doc__ = cls.__name__
    missing = [name for name in (_FROZEN if frozen else _OPEN) if own.get(name) is None]
    made = dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(cls)
    for name in missing:
        setattr(made, name, (_FROZEN if frozen else _OPEN)[name])
    if "__init__" not in own:

        def first(self: object, *args: object, **named: object) -> None:
            made.__init__ = _compiled_init(made)  # type: ignore[method-assign]
            made.__init__(self, *args, **named)

        made.__init__ = first  # type: ignore[method-assign]
        made.__signature__ = _Signature()  # type: ignore[attr-defined]
    return made


class _Signature:
    """What ``inspect.signature`` and ``help`` show of a class before its first object: its fields, with their types."""

    def __get__(self, instance: object, owner: type) -> object:
        # What the library makes of the same fields. Not of the class itself: that would get its other methods too.
        fields = [(each.name, each.type, copy.copy(each)) for each in dataclasses.fields(owner)]
        return inspect.signature(dataclasses.make_dataclass(owner.__name__, fields))


def _compiled_init(cls: type) -> Callable[..., None]:
    """Compile ``__init__`` for the fields of a class: positional ones first, then those given by name only."""
    given = [field for field in dataclasses.fields(cls) if field.init]
    known: dict[str, object] = {"_put": object.__setattr__, "_made": _FROM_FACTORY}
    words: dict[bool, list[str]] = {False: [], True: []}
    lines = []
    for field in dataclasses.fields(cls):
        name, value = field.name, field.name
        if field.default_factory is not dataclasses.MISSING:
            known[f"_make_{name}"] = field.default_factory
            value = f"_make_{name}() if {name} is _made else {name}" if field.init else f"_make_{name}()"
            default = "_made"
        elif field.default is not dataclasses.MISSING:
            known[f"_default_{name}"], default = field.default, f"_default_{name}"
            if not field.init:
                value = default
        else:
            default = ""
            if not field.init:
                continue  # ``__post_init__`` sets it
        if field in given:
            words[bool(field.kw_only)].append(f"{name}={default}" if default else name)
        lines.append(f"    _put(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append("    self.__post_init__()")
    named = ["*", *words[True]] if words[True] else []
    text = f"def __init__({', '.join(['self', *words[False], *named])}):\n" + "\n".join(lines or ["    pass"])
    # Only names of fields are in the text, and these are checked by the class statement.
    exec(compile(text, f"<fields of {cls.__qualname__}>", "exec"), known)  # noqa: S102
    made: Callable[..., None] = known["__init__"]  # type: ignore[assignment]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


@functools.cache
def _values(cls: type, hashed: bool) -> Callable[[object], object]:
    """Return the function that reads the fields of an object that make it equal to another."""
    fields = dataclasses.fields(cls)
    names = [each.name for each in fields if (each.compare if not hashed or each.hash is None else each.hash)]
    return operator.attrgetter(*names) if names else lambda _: ()


def _equal(self: object, other: object) -> object:
    if other.__class__ is not self.__class__:
        return NotImplemented
    read = _values(self.__class__, False)  # type: ignore[arg-type]
    return read(self) == read(other)


def _hash(self: object) -> int:
    return hash(_values(self.__class__, True)(self))  # type: ignore[arg-type]


def _text(self: object) -> str:
    shown = [field.name for field in dataclasses.fields(self) if field.repr]  # type: ignore[arg-type]
    return f"{self.__class__.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"


def _refuse_setting(self: object, name: str, value: object) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deleting(self: object, name: str) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


#: What a class gets unless it has its own: one that can be changed, and a frozen one.
_OPEN: dict[str, Callable[..., object] | None] = {"__eq__": _equal, "__hash__": None, "__repr__": _text}
_FROZEN: dict[str, Callable[..., object] | None] = {
    **_OPEN,
    "__hash__": _hash,
    "__setattr__": _refuse_setting,
    "__delattr__": _refuse_deleting,
}

"""Reduces what cells define (functions, classes, caches, type variables) to what it is made of, for ``pickle``.

``pickle`` itself stores only the name of such a value, which a fresh process cannot find in its ``__main__``. What may
refer to itself (a method to its class) is filled in after it was made.
"""

from __future__ import annotations

import collections
import enum
import functools
import marshal
import pickle
import sys
import types
import typing
from abc import ABCMeta

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Tuple

_MAIN = "__main__"
#: What a class has by itself.
_OF_CLASSES = (
    "__dict__",
    "__weakref__",
    "__doc__",
    "__module__",
    "__qualname__",
    "__slots__",
    "__slotnames__",
    "_abc_impl",
)
_OF_TUPLES = frozenset(vars(collections.namedtuple("_OF_TUPLES", ""))) - {"__doc__"}
#: Metaclasses that make a class of its name, its bases and its content, and nothing else.
_METACLASSES = (type, ABCMeta, enum.EnumMeta, type(typing.Protocol))
# They are called with names that only the program knows.
_typed_dict: Any = typing.TypedDict
_named_tuple: Any = collections.namedtuple
_TYPED_DICT = type(_typed_dict("_TYPED_DICT", {}))
#: What ``typing`` and ``enum`` put into each class that they make, and put there again.
_PUT_BY = ("abc", "enum", "typing", "typing_extensions", "builtins")


def reduced(value: Any) -> Any:
    """Return how a value is made again, as ``reducer_override`` does; ``NotImplemented`` leaves it to ``pickle``."""
    kind = type(value)
    if kind in (classmethod, staticmethod):
        return kind, (value.__func__,)
    if kind is property:
        return property, (value.fget, value.fset, value.fdel, value.__doc__)
    if kind is functools.cached_property:
        return make_cached_property, (value.func, value.attrname)
    if kind is types.MappingProxyType:
        return read_only, (dict(value),)
    if kind.__module__ == "dataclasses" and (name := _mark_of_dataclasses(value)):
        return getattr, (sys.modules["dataclasses"], name)
    if kind is functools._lru_cache_wrapper and value.__module__ == _MAIN:
        told = value.cache_parameters() if hasattr(value, "cache_parameters") else {}
        made = (value.__wrapped__, value.cache_info().maxsize, told.get("typed", False))
        attributes = {name: part for name, part in vars(value).items() if name != "cache_parameters"}
        return make_cached, made, attributes, None, None, fill_cached
    if isinstance(value, types.FunctionType) and (value.__module__ == _MAIN or "<locals>" in value.__qualname__):
        if value.__globals__ is vars(functools) and hasattr(value, "registry") and hasattr(value, "dispatch"):
            return make_dispatching, (value.registry[object],), dict(value.registry), None, None, fill_dispatching
        return _function(value)
    if isinstance(value, type):
        return _class(value) if value.__module__ == _MAIN else NotImplemented
    if kind.__module__ in ("typing", "typing_extensions") and getattr(value, "__module__", "") == _MAIN:
        return _type_variable(value)
    return NotImplemented


def _mark_of_dataclasses(value: Any) -> str:
    """Return the name of a value that ``dataclasses`` knows by its identity; empty for others."""
    marks = ("MISSING", "KW_ONLY", "_FIELD", "_FIELD_CLASSVAR", "_FIELD_INITVAR", "_HAS_DEFAULT_FACTORY")
    return next((name for name in marks if value is getattr(sys.modules["dataclasses"], name, None)), "")


def _type_variable(value: Any) -> Any:
    kind = type(value)
    if kind.__name__ == "TypeVar":
        flags = {"covariant": value.__covariant__, "contravariant": value.__contravariant__, "bound": value.__bound__}
        return make_type_variable, (kind, (value.__name__, *value.__constraints__), flags)
    if kind.__name__ in ("ParamSpec", "TypeVarTuple"):
        return make_type_variable, (kind, (value.__name__,), {})
    if kind.__name__ == "NewType":
        return make_type_variable, (kind, (value.__name__, value.__supertype__), {})
    return NotImplemented


def _function(value: types.FunctionType) -> Any:
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
    names = {name: getattr(value, name) for name in ("__module__", "__qualname__", "__doc__")}
    state = (names, value.__defaults__, value.__kwdefaults__, value.__dict__, inner)
    return make_function, made, state, None, None, fill_function


def _class(value: type) -> Any:
    meta = type(value)
    space: Dict[str, Any] = {"__qualname__": value.__qualname__}
    # Set later, these would change the class itself.
    space.update(
        {name: vars(value)[name] for name in ("__slots__", "__orig_bases__", "__class__") if name in vars(value)}
    )
    held = {
        name: part
        for name, part in vars(value).items()
        if name not in (*_OF_CLASSES, "__class__")
        and not isinstance(part, (types.MemberDescriptorType, types.GetSetDescriptorType))
        and not (meta is not type and name[:2] == "__" and _put_by_library(part))
    }
    if meta is _TYPED_DICT:
        fields = dict(value.__annotations__)
        keys = {name: held[name] for name in ("__required_keys__", "__optional_keys__", "__total__") if name in held}
        return make_typed_dict, (value.__name__, fields), (keys, value.__doc__, []), None, None, fill_class
    maker: type = next(each for each in type.mro(meta) if each.__module__ != _MAIN)
    if maker not in _METACLASSES:
        raise pickle.PicklingError(f"the class {value.__name__} is made by {maker.__module__}.{maker.__name__}")
    if issubclass(meta, enum.EnumMeta):
        return _enum(value, maker, space, held)
    if value.__bases__ == (tuple,) and "_fields" in held:
        named = (value.__name__, held["_fields"], value._field_defaults, value.__qualname__)  # type: ignore[attr-defined]
        held = {name: part for name, part in held.items() if name not in _OF_TUPLES and name not in held["_fields"]}
        return make_named_tuple, named, (held, value.__doc__, []), None, None, fill_class
    made = (maker, meta, value.__name__, value.__bases__, space)
    return make_class, made, (held, value.__doc__, _registered(value)), None, None, fill_class


def _put_by_library(part: Any) -> bool:
    inner = getattr(part, "__func__", part)
    return callable(inner) and getattr(inner, "__module__", "") in (*_PUT_BY, None) and not isinstance(inner, type)


def _registered(value: type) -> List[type]:
    """Return the classes that were registered with an abstract one."""
    if not isinstance(value, ABCMeta):
        return []
    dump: Any = sys.modules["_abc"]._get_dump
    return [each for reference in dump(value)[0] if (each := reference()) is not None]


def _enum(value: Any, maker: type, space: Dict[str, Any], held: Dict[str, Any]) -> Any:
    for name in ("_new_member_", "__new_member__"):
        if getattr(held.get(name), "__module__", "") == _MAIN:
            raise pickle.PicklingError(f"the members of {value.__name__} are made by a __new__ of its own")
    members = {name: member._value_ for name, member in value.__members__.items()}
    boundary = getattr(value, "_boundary_", None)
    own = {name: _of_member(member) for name, member in value.__members__.items()}
    kept = {
        name: part
        for name, part in held.items()
        if name not in members
        and not (name[:1] == name[-1:] == "_" and name[:2] != "__" and name not in ("_missing_", "_ignore_"))
        and name not in ("__new__", "__new_member__")
    }
    made = (maker, type(value), value.__name__, value.__bases__, space, members, boundary)
    return make_enum, made, (kept, value.__doc__, own), None, None, fill_enum


def _of_member(member: Any) -> Dict[str, Any]:
    """Return what ``__init__`` gave a member of an enumeration."""
    by_itself = ("_value_", "_name_", "_sort_order_", "__objclass__", "_inverted_")
    return {name: part for name, part in vars(member).items() if name not in by_itself}


def read_only(content: Dict[Any, Any]) -> types.MappingProxyType[Any, Any]:
    """Make a mapping that cannot be changed."""
    return types.MappingProxyType(content)


def import_again(name: str) -> types.ModuleType:
    """Import a module."""
    __import__(name)
    return sys.modules[name]


def make_cached_property(function: Any, name: str | None) -> Any:
    """Make a ``functools.cached_property``."""
    made: Any = functools.cached_property(function)
    made.attrname = name
    return made


def make_cached(function: Any, size: int | None, typed: bool) -> Any:
    """Wrap a function by ``functools.lru_cache``, with nothing in its cache."""
    return functools.lru_cache(size, typed)(function)


def fill_cached(made: Any, attributes: Dict[str, Any]) -> None:
    """Give a cached function its attributes."""
    for name in ("__module__", "__name__", "__qualname__", "__doc__"):
        setattr(made, name, getattr(made.__wrapped__, name, None))
    made.__dict__.update(attributes)


def make_dispatching(function: Any) -> Any:
    """Make a function of ``functools.singledispatch`` with only its general implementation."""
    return functools.singledispatch(function)


def fill_dispatching(made: Any, registry: Dict[type, Any]) -> None:
    """Give a function of ``functools.singledispatch`` its implementations."""
    for kind, function in registry.items():
        made.register(kind, function)


def make_type_variable(kind: Any, given: Tuple[Any, ...], flags: Dict[str, Any]) -> Any:
    """Make a ``TypeVar`` or another of its kind."""
    made = kind(*given, **flags)
    made.__module__ = _MAIN
    return made


def make_function(code: bytes, name: str, cells: int, home: str = _MAIN) -> types.FunctionType:
    """Make a function without what it refers to; ``home`` is the module of its globals."""
    space = import_again(home).__dict__
    program = marshal.loads(code)  # noqa: S302 - inside the jail
    return types.FunctionType(program, space, name, None, tuple(types.CellType() for _ in range(cells)))


def fill_function(made: types.FunctionType, state: Tuple[Any, ...]) -> None:
    """Give a function what it refers to."""
    names, made.__defaults__, made.__kwdefaults__, attributes, inner = state
    made.__dict__.update(attributes)
    for name, text in names.items():
        setattr(made, name, text)
    for cell, (filled, content) in zip(made.__closure__ or (), inner):  # noqa: B905 - Python 3.8
        if filled:
            cell.cell_contents = content


def make_class(maker: Any, meta: type, name: str, bases: Tuple[type, ...], space: Dict[str, Any]) -> Any:
    """Make a class without its methods. A metaclass of a cell has no part in it: it had its part in the content."""
    content = {"__module__": _MAIN, **space}
    if not any(
        base.__module__ == _MAIN and "__init_subclass__" in vars(base) for each in bases for base in each.__mro__
    ):
        return maker.__new__(meta, name, bases, content)
    made = maker.__new__(meta, name, (_Quiet, *bases), content)
    made.__bases__ = bases
    return made


class _Quiet:
    """Keeps a base class from being told a second time that it has this subclass: what that did is in the content."""

    def __init_subclass__(cls, **_options: Any) -> None:
        """Do nothing."""


def make_enum(
    maker: Any,
    meta: Any,
    name: str,
    bases: Tuple[type, ...],
    space: Dict[str, Any],
    members: Dict[str, Any],
    boundary: Any,
) -> Any:
    """Make an enumeration with its members, without its methods."""
    content = maker.__prepare__(name, bases)
    for key, part in {"__module__": _MAIN, **space, **members}.items():
        content[key] = part
    options = {} if boundary is None else {"boundary": boundary}
    return maker.__new__(meta, name, bases, content, **options)


def make_typed_dict(name: str, fields: Dict[str, Any]) -> Any:
    """Make a ``TypedDict``."""
    made = _typed_dict(name, fields)
    made.__module__ = _MAIN
    return made


def make_named_tuple(name: str, fields: Tuple[str, ...], defaults: Dict[str, Any], qualname: str) -> Any:
    """Make a named tuple without methods of its own."""
    made = _named_tuple(name, fields, defaults=tuple(defaults.values()), module=_MAIN)
    made.__qualname__ = qualname
    return made


def fill_class(made: Any, state: Tuple[Dict[str, Any], str | None, List[type]]) -> None:
    """Give a class its methods and attributes, and register with it what was."""
    held, made.__doc__, registered = state
    for name, part in held.items():
        type.__setattr__(made, name, part)
    for each in registered:
        made.register(each)


def fill_enum(made: Any, state: Tuple[Dict[str, Any], str | None, Dict[str, Dict[str, Any]]]) -> None:
    """Give an enumeration its methods, and its members what they hold."""
    held, made.__doc__, own = state
    for name, part in held.items():
        type.__setattr__(made, name, part)
    for name, attributes in own.items():
        vars(made.__members__[name]).update(attributes)

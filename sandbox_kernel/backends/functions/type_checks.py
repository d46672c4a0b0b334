"""Checks arguments from a program against the type hints of a host function, before the function is called.

Only hints whose values can be sent as JSON or bytes are known. A hint that is not known is an error when the function
is given to a sandbox, not when it is called. Pure.
"""

from __future__ import annotations

import collections.abc as abc
import enum
import re
import types
import typing
from collections.abc import Callable, Mapping

#: Returns the value for the function, which may be of another type (a list becomes a tuple). Raises ``Mismatch``.
Check = Callable[[object], object]


class Mismatch(TypeError):
    """An argument is not what the type hint says."""


class UnknownHint(TypeError):
    """A type hint that values from a program cannot meet."""


#: A name with its modules, and texts, in which nothing is a name.
_MODULES = re.compile(r"'[^']*'|\"[^\"]*\"|(?:(?:[A-Za-z_]\w*|<locals>)\.)+([A-Za-z_]\w*)")
_LISTS = (list, abc.Sequence, abc.MutableSequence, abc.Iterable, abc.Collection)
_DICTS = (dict, abc.Mapping, abc.MutableMapping)
_SETS = (set, frozenset, abc.Set, abc.MutableSet)


def hint_text(hint: object) -> str:
    """Return a type hint as a programmer writes it."""
    if hint is None or hint is type(None):
        return "None"
    if isinstance(hint, type) and not typing.get_args(hint):
        return hint.__name__
    return _MODULES.sub(lambda found: found[1] or found[0], str(hint)).replace("NoneType", "None")


def make_check(hint: object) -> Check:
    """Return the check of one type hint. Raises ``UnknownHint`` for a hint that no JSON value can meet."""
    if hint is typing.Any or hint is object or isinstance(hint, typing.TypeVar):
        return lambda value: value
    if isinstance(hint, typing.NewType):
        return make_check(hint.__supertype__)
    if hint is None or hint is type(None):
        return _of(hint, lambda value: value is None)
    if hint is bool:
        return _of(hint, lambda value: isinstance(value, bool))
    if hint is int:
        return _of(hint, lambda value: isinstance(value, int) and not isinstance(value, bool))
    if hint is float:
        return _of(hint, lambda value: isinstance(value, int | float) and not isinstance(value, bool))
    if hint is str:
        return _of(hint, lambda value: isinstance(value, str))
    if hint is bytes:
        return _of(hint, lambda value: isinstance(value, bytes))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _enum(hint)
    if typing.is_typeddict(hint):
        return _typed_dict(hint)
    return _generic(hint)


def _of(hint: object, fits: Callable[[object], bool]) -> Check:
    def check(value: object) -> object:
        if not fits(value):
            raise Mismatch(f"must be {hint_text(hint)}, got {_kind(value)}")
        return value

    return check


def _kind(value: object) -> str:
    return "None" if value is None else type(value).__name__


def _enum(hint: type[enum.Enum]) -> Check:
    def check(value: object) -> object:
        try:
            return hint(value)
        except ValueError:
            known = ", ".join(repr(member.value) for member in hint)
            raise Mismatch(f"must be one of {known}, got {value!r:.80}") from None

    return check


def required_keys(hint: object) -> set[str]:
    """Return the keys that a ``TypedDict`` must have."""
    # ``__required_keys__`` is wrong for a class whose annotations are texts.
    full = typing.get_type_hints(hint, include_extras=True)
    required = {name for name, each in full.items() if typing.get_origin(each) is not typing.NotRequired}
    return required & (set(full) if getattr(hint, "__total__", True) else getattr(hint, "__required_keys__", set()))


def _typed_dict(hint: object) -> Check:
    checks = {name: make_check(each) for name, each in typing.get_type_hints(hint).items()}
    required = required_keys(hint)

    def check(value: object) -> object:
        if not isinstance(value, dict):
            raise Mismatch(f"must be {hint_text(hint)}, got {_kind(value)}")
        if missing := sorted(required - set(value)):
            raise Mismatch(f"must have the key {missing[0]!r}")
        if more := sorted(set(value) - set(checks)):
            raise Mismatch(f"has the unknown key {more[0]!r:.80}")
        return {name: _inside(checks[name], item, name) for name, item in value.items()}

    return check


def _inside(check: Check, value: object, where: object) -> object:
    try:
        return check(value)
    except Mismatch as error:
        raise Mismatch(f"item {where!r:.40} {error}") from None


def _generic(hint: object) -> Check:
    origin, args = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin is typing.Annotated:
        return make_check(args[0])
    if origin in (typing.Union, types.UnionType):
        return _union(hint, [make_check(arg) for arg in args])
    if origin is typing.Literal:
        return _of(hint, lambda value: any(type(value) is type(arg) and value == arg for arg in args))
    if origin is tuple:
        return _tuple(hint, args)
    if origin in _LISTS:
        return _items(hint, args, list)
    if origin in _SETS:
        return _items(hint, args, frozenset if origin in (frozenset, abc.Set) else set)
    if origin in _DICTS:
        if args and args[0] not in (str, typing.Any, object):
            raise UnknownHint(f"{hint_text(hint)} has keys that are not text")
        return _dict(hint, make_check(args[1]) if args else None)
    raise UnknownHint(f"{hint_text(hint)} cannot be sent by a program; use JSON types or bytes")


def _union(hint: object, checks: list[Check]) -> Check:
    def check(value: object) -> object:
        for each in checks:
            try:
                return each(value)
            except Mismatch:
                continue
        raise Mismatch(f"must be {hint_text(hint)}, got {_kind(value)}")

    return check


def _items(hint: object, args: tuple[object, ...], make: Callable[[list[object]], object]) -> Check:
    each = make_check(args[0]) if args else None

    def check(value: object) -> object:
        if not isinstance(value, list):
            raise Mismatch(f"must be {hint_text(hint)}, got {_kind(value)}")
        found = value if each is None else [_inside(each, item, place) for place, item in enumerate(value)]
        try:
            return make(found)
        except TypeError:
            raise Mismatch(f"must be {hint_text(hint)}, and holds a list or dict") from None

    return check


def _tuple(hint: object, args: tuple[object, ...]) -> Check:
    if len(args) != 2 or args[1] is not ...:
        checks = [make_check(arg) for arg in args]

        def fixed(value: object) -> object:
            if not isinstance(value, list) or (checks and len(value) != len(checks)):
                raise Mismatch(f"must be {hint_text(hint)}, got {_kind(value)}")
            if not checks:
                return tuple(value)
            return tuple(
                _inside(each, item, place) for place, (each, item) in enumerate(zip(checks, value, strict=True))
            )

        return fixed
    return _items(hint, args[:1], tuple)


def _dict(hint: object, each: Check | None) -> Check:
    def check(value: object) -> object:
        if not isinstance(value, dict):
            raise Mismatch(f"must be {hint_text(hint)}, got {_kind(value)}")
        return value if each is None else {name: _inside(each, item, name) for name, item in value.items()}

    return check


def check_all(checks: Mapping[str, Check], given: Mapping[str, object]) -> dict[str, object]:
    """Return the arguments after their checks. Raises ``Mismatch`` that names the parameter."""
    found = {}
    for name, value in given.items():
        try:
            found[name] = checks[name](value)
        except Mismatch as error:
            raise Mismatch(f"argument {name!r} {error}") from None
    return found

"""The functions that a program may call: names, signatures, checks of arguments, and the text that describes them."""

from __future__ import annotations

import collections.abc as abc
import enum
import inspect
import keyword
import math
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping

import msgspec
import msgspec.inspect as kinds

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.limits import FunctionLimits, quoted
from sandbox_kernel.model import Language
from sandbox_kernel.util.values import dataclass

#: Names that the module ``host`` has already.
RESERVED_NAMES = frozenset({"HostError", "aio"})
#: The most functions of one sandbox, and the longest name.
MAX_FUNCTIONS, MAX_NAME = 500, 64
#: A name with its modules, and texts, in which nothing is a name.
_MODULES = re.compile(r"'[^']*'|\"[^\"]*\"|(?:(?:[A-Za-z_]\w*|<locals>)\.)+([A-Za-z_]\w*)")

#: What a program can send, as msgspec calls it; what holds more of these is looked into.
_PLAIN = (
    kinds.AnyType, kinds.NoneType, kinds.BoolType, kinds.IntType, kinds.FloatType, kinds.StrType, kinds.BytesType,
    kinds.EnumType, kinds.LiteralType,
)  # fmt: skip


def convert(value: object, hint: object) -> object:
    """Return an argument as its type hint says: a list as a tuple, a value as a member. Raises ``TypeError``."""
    arms = _arms(hint)
    for arm in arms:
        try:
            # Text is no base64 here: bytes are sent as bytes.
            return msgspec.convert(value, arm, builtin_types=(bytes,))
        except (msgspec.ValidationError, TypeError) as error:
            if len(arms) == 1:
                raise TypeError(str(error)) from None
    raise TypeError(f"Expected `{hint_text(hint)}`, got `{type(value).__name__}`")


def _arms(hint: object) -> tuple[typing.Any, ...]:
    """Return the hints of which one must be met: msgspec takes no union of ``str`` and ``bytes``."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return tuple(arm for each in args for arm in _arms(each))
    return (list[args] if origin is abc.Iterable else hint,)  # type: ignore[valid-type]


def check_hint(hint: object) -> None:
    """Raise ``TypeError`` for a hint that no JSON value can meet."""
    try:
        todo, seen = [kinds.type_info(arm) for arm in _arms(hint)], set[int]()
        while todo:
            kind: typing.Any = todo.pop()
            if id(kind) in seen or isinstance(kind, _PLAIN):
                continue
            seen.add(id(kind))
            if isinstance(kind, kinds.TypedDictType):
                todo += [each.type for each in kind.fields]
            elif isinstance(kind, kinds.DictType) and isinstance(kind.key_type, kinds.StrType | kinds.AnyType):
                todo.append(kind.value_type)
            elif isinstance(kind, kinds.TupleType):
                todo += kind.item_types
            elif isinstance(kind, kinds.UnionType):
                todo += kind.types
            elif isinstance(kind, kinds.CollectionType):
                todo.append(kind.item_type)
            elif not isinstance(kind, kinds.CustomType) or kind.cls is not object:
                raise TypeError  # a class of the host: its code would run with what a program sends
    except TypeError:
        raise TypeError(f"{hint_text(hint)} cannot be sent by a program; use JSON types or bytes") from None


def hint_text(hint: object) -> str:
    """Return a type hint as a programmer writes it."""
    if hint is None or hint is type(None):
        return "None"
    if isinstance(hint, type) and not typing.get_args(hint):
        return hint.__name__
    return _MODULES.sub(lambda found: found[1] or found[0], str(hint)).replace("NoneType", "None")


@dataclass(frozen=True, kw_only=True)
class HostFunction:
    """One function of the host. ``hints`` has those of its parameters and of its result that are known."""

    name: str
    call: Callable[..., object]
    signature: inspect.Signature
    hints: Mapping[str, object]

    @property
    def doc(self) -> str:
        """The function's documentation, without indentation."""
        return inspect.getdoc(self.call) or ""

    def bind(
        self,
        args: list[object],
        kwargs: dict[str, object],
        meanings: Callable[[object], list[object]] = lambda value: [value],
    ) -> inspect.BoundArguments:
        """Return the arguments after all checks, each the first of its ``meanings`` that fits. Raises ``TypeError``."""

        def checked(name: str, value: object, shown: str) -> object:
            errors = []
            for meant in meanings(value):
                try:
                    return convert(meant, self.hints[name]) if name in self.hints else meant
                except TypeError as error:
                    errors.append(error)
            raise TypeError(f"{self.name}() argument {shown!r}: {errors[0]}")

        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.name}() {error}") from None
        for name, value in bound.arguments.items():
            kind = self.signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                bound.arguments[name] = tuple(checked(name, item, name) for item in value)
            elif kind is inspect.Parameter.VAR_KEYWORD:
                bound.arguments[name] = {key: checked(name, item, key) for key, item in value.items()}
            else:
                bound.arguments[name] = checked(name, value, name)
        return bound


@dataclass(frozen=True, kw_only=True)
class HostFunctions:
    """All functions that one run or session may call, and their limits."""

    functions: Mapping[str, HostFunction]
    limits: FunctionLimits

    def listing(self) -> list[list[str]]:
        """Return name, signature and documentation of each function, for the program's ``help``."""
        return [[each.name, plain_signature(each), each.doc] for each in self.functions.values()]


def plain_signature(function: HostFunction) -> str:
    """Return the signature as Python. A default that is no plain value is shown as ``...``."""

    def shown(name: str) -> object:
        return _Shown(hint_text(function.hints[name])) if name in function.hints else inspect.Parameter.empty

    parameters = []
    for parameter in function.signature.parameters.values():
        default = parameter.default if parameter.default is parameter.empty else _Shown(_default(parameter.default))
        parameters.append(parameter.replace(annotation=shown(parameter.name), default=default))
    return str(inspect.Signature(parameters, return_annotation=shown("return")))


def _default(value: object) -> str:
    if isinstance(value, enum.Enum):
        value = value.value  # what programs send
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    return repr(value) if value is None or type(value) in (str, int, float, bool, bytes) else "..."


class _Shown(str):
    """A text that is shown without quotation marks."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def make_functions(
    given: Mapping[str, Callable[..., object]] | None,
    limits: FunctionLimits | None = None,
    *,
    before: HostFunctions | None = None,
) -> HostFunctions | None:
    """Return the given functions and those ``before``, or None. Raises ``InvalidRequest`` for what cannot be one."""
    if given is None:
        given = {}
    if not isinstance(given, Mapping):
        raise InvalidRequest(f'functions must be a dict of names and functions, got {quoted(given)}; write {{"f": f}}')
    found = dict(before.functions) if before is not None else {}
    found |= {name: make_function(name, call) for name, call in given.items()}
    if len(found) > MAX_FUNCTIONS:
        raise InvalidRequest(f"a sandbox may have at most {MAX_FUNCTIONS} functions, got {len(found)}")
    if limits is None and before is not None:
        limits = before.limits
    limits = FunctionLimits.given(limits)
    return HostFunctions(functions=found, limits=limits) if found else None


def make_function(name: str, call: Callable[..., object]) -> HostFunction:
    """Return one function with its checks. Raises ``InvalidRequest`` as ``make_functions`` does."""
    if not isinstance(name, str) or not name.isidentifier() or not name.isascii() or len(name) > MAX_NAME:
        raise InvalidRequest(f"functions: {quoted(name)} is no name for a function; use letters, digits and _")
    if keyword.iskeyword(name) or name.startswith("_") or name in RESERVED_NAMES:
        raise InvalidRequest(f"functions: the name {name!r} cannot be used inside a sandbox; choose another")
    if not callable(call):
        raise InvalidRequest(f"functions: {name} must be a function, got {quoted(call)}")
    try:
        signature = inspect.signature(call)
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"functions: the signature of {name} is unknown ({error}); wrap it in a def") from None
    hints = _hints(name, call)
    for parameter in signature.parameters.values():
        try:
            check_hint(hints.get(parameter.name, typing.Any))
        except TypeError as error:
            raise InvalidRequest(f"functions: parameter {parameter.name!r} of {name}: {error}") from None
    return HostFunction(name=name, call=call, signature=signature, hints=hints)


def _hints(name: str, call: Callable[..., object]) -> dict[str, object]:
    """Return the type hints of a function, a method, a partial or an object with ``__call__``."""
    found = inspect.unwrap(call)
    while hasattr(found, "func"):
        found = found.func
    if not inspect.isroutine(found) and not inspect.isclass(found):
        found = type(found).__call__
    try:
        return typing.get_type_hints(found)
    except (NameError, TypeError) as error:
        if isinstance(error, TypeError):
            return {}
        raise InvalidRequest(f"functions: a type hint of {name} cannot be resolved: {error}") from None


def describe_functions(functions: HostFunctions | None, language: Language) -> str:
    """See ``Sandbox.describe_functions``; empty when there are none."""
    if functions is None:
        return ""
    each = functions.functions.values()
    known = {one.name: f"{one.name}{plain_signature(one)}\n{one.doc}" for one in each}
    if language in (Language.JAVASCRIPT, Language.TYPESCRIPT):
        lines = "".join(f"{_comment('  ///', text)}  {name}(...given: any[]): any;\n" for name, text in known.items())
        return f"declare const host: {{\n{lines}}};\n"
    if language is Language.COMMAND:
        usage = "[ARGUMENT | NAME=VALUE] ..."
        return "".join(f"{_comment('#', text)}host {name} {usage}\n" for name, text in known.items())
    hints = [hint for function in each for hint in function.hints.values()]
    classes = {name: text for hint in hints for name, text in _classes(hint, frozenset())}
    declared = [f"{_comment('#', one.doc)}def {one.name}{plain_signature(one)}: ...\n" for one in each]
    return "\n".join([f"from host import {', '.join(functions.functions)}\n", *classes.values(), *declared])


def _classes(hint: object, within: frozenset[object]) -> Iterator[tuple[str, str]]:
    """Yield the classes that a type hint names, as Python writes them; those ``within`` are told already."""
    for arg in typing.get_args(hint):
        yield from _classes(arg, within)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        members = "".join(f"    {member.name} = {member.value!r}\n" for member in hint)
        yield hint.__name__, f"class {hint.__name__}(Enum):  # send the value\n{members}"
    elif typing.is_typeddict(hint) and hint not in within:
        hints = typing.get_type_hints(hint, include_extras=True)
        for each in hints.values():
            yield from _classes(each, within | {hint})
        lines = "".join(f"    {name}: {hint_text(its)}\n" for name, its in hints.items()) or "    pass\n"
        total = "" if getattr(hint, "__total__", True) else ", total=False"
        yield hint_text(hint), f"class {hint_text(hint)}(TypedDict{total}):\n{lines}"


def _comment(mark: str, text: str) -> str:
    return "".join(f"{mark} {line}".rstrip() + "\n" for line in text.splitlines())

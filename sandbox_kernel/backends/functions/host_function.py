"""The functions that a program may call: their names, signatures and checks. Made once, before anything runs."""

from __future__ import annotations

import enum
import inspect
import keyword
import math
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sandbox_kernel.backends.functions.type_checks import Check, Mismatch, UnknownHint, check_all, hint_text, make_check
from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.limits import FunctionLimits, quoted

#: Names that the module ``host`` has already.
RESERVED_NAMES = frozenset({"HostError", "aio"})
#: The most functions of one sandbox, and the longest name.
MAX_FUNCTIONS, MAX_NAME = 500, 64
_MANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True, kw_only=True)
class HostFunction:
    """One function of the host. ``checks`` has one entry for each parameter."""

    name: str
    call: Callable[..., object]
    signature: inspect.Signature
    checks: Mapping[str, Check]
    hints: Mapping[str, object]

    @property
    def doc(self) -> str:
        """The function's documentation, without indentation."""
        return inspect.getdoc(self.call) or ""

    def bind(self, args: list[object], kwargs: dict[str, object]) -> inspect.BoundArguments:
        """Return the arguments after all checks. Raises ``TypeError`` with a message for the program."""
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.name}() {error}") from None
        try:
            for name, value in bound.arguments.items():
                kind = self.signature.parameters[name].kind
                if kind is inspect.Parameter.VAR_POSITIONAL:
                    bound.arguments[name] = tuple(check_all(self.checks, {name: item})[name] for item in value)
                elif kind is inspect.Parameter.VAR_KEYWORD:
                    each = self.checks[name]
                    bound.arguments[name] = check_all(dict.fromkeys(value, each), value)
                else:
                    bound.arguments[name] = check_all(self.checks, {name: value})[name]
        except Mismatch as error:
            raise TypeError(f"{self.name}() {error}") from None
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
    """Return the functions that a caller gave, in addition to those ``before``; None when there are none.

    Raises:
        InvalidRequest: Something is no function, a name cannot be used inside, or a type hint cannot be checked.

    """
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
    checks = {}
    for parameter in signature.parameters.values():
        hint = hints.get(parameter.name, parameter.annotation)
        try:
            checks[parameter.name] = make_check(typing.Any if hint is parameter.empty else hint)
        except UnknownHint as error:
            raise InvalidRequest(f"functions: parameter {parameter.name!r} of {name}: {error}") from None
        except RecursionError:
            raise InvalidRequest(
                f"functions: parameter {parameter.name!r} of {name}: its type hint holds itself; use dict or list there"
            ) from None
    return HostFunction(name=name, call=call, signature=signature, checks=checks, hints=hints)


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

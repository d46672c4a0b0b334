"""The arguments of a call, as each language writes them, bound to the parameters of the function. Pure.

Python sends ``args`` and ``kwargs``. JavaScript has no keyword arguments: it sends ``args`` and, with ``object``, says
that the last one is a plain object, which may be an argument or hold keyword arguments. The shell sends ``words``. The
signature decides what is meant, as ``describe.py`` tells it to whoever writes the program.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping

from sandbox_kernel.backends.functions import call_values
from sandbox_kernel.backends.functions.call_values import BadValue, RawBytes
from sandbox_kernel.backends.functions.host_function import HostFunction
from sandbox_kernel.backends.functions.type_checks import Check, Mismatch

_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def bind_message(function: HostFunction, message: Mapping[str, object], raw: RawBytes) -> inspect.BoundArguments:
    """Return the arguments of a call after all checks.

    Raises:
        TypeError: They do not fit the function; the message is for the program.
        BadValue: They are no values that a program may send.

    """
    if "words" in message and ("args" in message or "kwargs" in message):
        raise BadValue("a call has words, or args and kwargs, not both")
    args = call_values.decode(message.get("words", message.get("args", [])), raw)
    kwargs = call_values.decode(message.get("kwargs", {}), raw)
    raw.check_end()
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise TypeError(f"{function.name}() takes a list of arguments and an object of keyword arguments")
    if "words" in message:
        return _bind_words(function, [str(word) for word in args])
    if message.get("object") and args and isinstance(args[-1], dict):
        return _bind_object(function, args, args[-1])
    return function.bind(args, kwargs)


def _bind_object(function: HostFunction, args: list[object], last: dict[str, object]) -> inspect.BoundArguments:
    """An object behind the required arguments holds keyword arguments, any other is an argument, if that fits."""
    parameters = function.signature.parameters.values()
    required = sum(each.kind in _BY_PLACE and each.default is each.empty for each in parameters)
    readings: list[tuple[list[object], dict[str, object]]] = [(args, {}), (args[:-1], last)]
    if len(args) > required:
        readings.reverse()
    try:
        return function.bind(*readings[0])
    except TypeError as error:
        try:
            return function.bind(*readings[1])
        except TypeError:
            raise error from None


def _bind_words(function: HostFunction, words: list[str]) -> inspect.BoundArguments:
    """``NAME=VALUE`` is a keyword argument if there is such a parameter. A word is JSON where that fits, else text."""
    parameters = function.signature.parameters
    any_name = any(each.kind is each.VAR_KEYWORD for each in parameters.values())
    args: list[object] = []
    kwargs: dict[str, object] = {}
    for word in words:
        name, mark, value = word.partition("=")
        by_name = name in parameters and parameters[name].kind in _BY_NAME
        if mark and name.isidentifier() and (by_name or any_name):
            if name in kwargs:
                raise TypeError(f"{function.name}() got the argument {name!r} twice")
            kwargs[name] = value
        else:
            args.append(word)
    call_values.check_words([str(each) for each in (*args, *kwargs.values())])
    try:
        bound = function.signature.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{function.name}() {error}") from None
    for name, value in bound.arguments.items():
        check, kind = function.checks[name], parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            bound.arguments[name] = tuple(_meant(check, word) for word in value)
        elif kind is inspect.Parameter.VAR_KEYWORD:
            bound.arguments[name] = {key: _meant(check, word) for key, word in value.items()}
        else:
            bound.arguments[name] = _meant(check, value)
    return function.bind(list(bound.args), dict(bound.kwargs))


def _meant(check: Check, word: str) -> object:
    try:
        value = call_values.load_word(word)
    except BadValue:
        raise
    except (ValueError, RecursionError):
        return word
    for each in (value, word):
        try:
            check(each)
        except Mismatch:
            continue
        return each
    return value

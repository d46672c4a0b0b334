"""Values of host functions as JSON: how arguments and results cross the wall of a sandbox.

JSON has no bytes and no infinite numbers. They are sent as objects with one key that begins with ``$``: bytes by their
size (``{"$bytes": 5}``), numbers by name (``{"$float": "nan"}``). The bytes themselves follow the JSON, after a line
break, in the order of their objects; where a language can send text alone they are base64 (``{"$bytes": "aGVsbG8="}``).
An object of the program that has such a key is sent as ``$object``, so nothing is mistaken for something else. The
program inside has the same rules in ``guest/functions/calling.py``. What comes in is hostile and bounded.
"""

from __future__ import annotations

import base64
import inspect
import json
import math
import reprlib
from collections.abc import Sequence
from io import BytesIO
from typing import Any

from sandbox_kernel.backends.functions.host_function import HostFunction
from sandbox_kernel.util import wire
from sandbox_kernel.util.values import dataclass
from sandbox_kernel.util.wire import MAX_PARTS, BadMessage, encodable, has_too_many_parts, no_key_twice

#: The deepest nesting of lists and objects of one message.
MAX_DEPTH = 64
#: The largest whole number, in bits.
MAX_INT_BITS = 1024
_TOO_LARGE = f"it holds a number of more than {MAX_INT_BITS} bits"
_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def encode(value: object, raw: list[bytes] | None = None, depth: int = 0) -> object:
    """Return a value of the host as JSON. Raises ``BadMessage`` for a type that a program cannot receive.

    Bytes are appended to ``raw``; without it they are base64.
    """
    if depth > MAX_DEPTH:
        raise BadMessage(f"it is nested deeper than {MAX_DEPTH}")
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return encodable(str(value))
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$float": str(float(value))}
    if isinstance(value, bytes | bytearray | memoryview):
        if raw is None:
            return {"$bytes": base64.b64encode(value).decode()}
        raw.append(bytes(value))
        return {"$bytes": len(raw[-1])}
    if isinstance(value, list | tuple):
        return [encode(item, raw, depth + 1) for item in value]
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise BadMessage("it holds a dict with a key that is not text")
        plain = {key: encode(item, raw, depth + 1) for key, item in value.items()}
        return {"$object": plain} if any(key.startswith("$") for key in plain) else plain
    raise BadMessage(f"it holds a {type(value).__name__}; send None, bool, int, float, str, bytes, list or dict")


def decode(value: object, raw: BytesIO, depth: int = 0) -> object:
    """Return a value that a program sent. Raises ``BadMessage`` for anything that ``encode`` does not make."""
    if depth > MAX_DEPTH:
        raise BadMessage(f"it is nested deeper than {MAX_DEPTH}")
    if isinstance(value, int) and value.bit_length() > MAX_INT_BITS:
        raise BadMessage(_TOO_LARGE)
    if isinstance(value, float) and not math.isfinite(value):
        raise BadMessage("it holds a number that is no JSON")
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, list):
        return [decode(item, raw, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((key, item),) = value.items()
        if key == "$bytes":
            try:
                if not isinstance(item, int):
                    return base64.b64decode(item, validate=True)
                if len(found := raw.read(item)) == item:
                    return found
            except (TypeError, ValueError, OverflowError):
                pass
            raise BadMessage("it holds bytes that did not come with it, and are no base64")
        if key == "$float" and isinstance(item, str) and item in _FLOATS:
            return _FLOATS[item]
        if key == "$object" and isinstance(item, dict):
            return _decoded_object(item, raw, depth)
    if any(key.startswith("$") for key in value):
        raise BadMessage("it holds an object with a key that begins with '$', which must be sent as $object")
    return _decoded_object(value, raw, depth)


def _decoded_object(value: dict[str, object], raw: BytesIO, depth: int) -> dict[str, object]:
    made = {encodable(key): decode(item, raw, depth + 1) for key, item in value.items()}
    if len(made) != len(value):
        raise BadMessage("it holds an object with keys that are the same as UTF-8")
    return made


@dataclass(frozen=True, kw_only=True)
class CallMessage:
    """One message of a program: a call, or the number of a stream to read on (``next``) or to end (``drop``)."""

    call: str | None = None
    args: list[Any] | None = None
    kwargs: dict[str, Any] | None = None
    #: The words of a command line, in place of ``args`` and ``kwargs``.
    words: list[str] | None = None
    #: Whether the last argument is an object of JavaScript.
    object: bool = False
    #: Whether bytes in the answer must be base64.
    base64: bool = False
    next: int | None = None
    drop: int | None = None


def load(data: bytes) -> tuple[CallMessage, BytesIO]:
    """Parse one message of a program, and return the bytes beside it; raises ``BadMessage`` for another form."""
    text, _, raw = data.partition(b"\n")
    return wire.decode(text, CallMessage, object_pairs_hook=no_key_twice), BytesIO(raw)


_SHORT = reprlib.Repr()
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxset = _SHORT.maxdict = 20
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother = 3, 200, 200


def shortened(value: object, most: int = 200) -> object:
    """Return an argument for the record of a call: short texts, numbers and None as they are, the rest cut."""
    if value is None or isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < 1 << 64):
        return value
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    text = value if isinstance(value, str) else _SHORT.repr(value)
    return text if len(text) <= most else f"{text[: most - 1]}…"


# The arguments of a call, as each language writes them, bound to the parameters of the function.
#
# Python sends ``args`` and ``kwargs``. JavaScript has no keyword arguments: it sends ``args``, of which the last may be
# a plain object that is an argument or holds keyword arguments. The shell sends ``words``. The signature decides what
# is meant, as ``describe_functions`` tells it to whoever writes the program.

_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def bind_message(function: HostFunction, message: CallMessage, raw: BytesIO) -> inspect.BoundArguments:
    """Return the arguments of a call after all checks. Raises ``TypeError``, for the program, or ``BadMessage``."""
    if message.words is not None:
        if message.args is not None or message.kwargs is not None:
            raise BadMessage("a call has words, or args and kwargs, not both")
        return _bind_words(function, [encodable(word) for word in message.words])
    args = [decode(item, raw, 1) for item in message.args or ()]
    if message.object and args and isinstance(args[-1], dict):
        return _bind_object(function, args, args[-1])
    return function.bind(args, _decoded_object(message.kwargs or {}, raw, 0))


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


def _bind_words(function: HostFunction, words: Sequence[str]) -> inspect.BoundArguments:
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
    # Only lists and objects hold several values.
    texts = [str(each) for each in (*args, *kwargs.values())]
    if has_too_many_parts(*(text.encode() for text in texts if text.lstrip()[:1] in ("[", "{"))):
        raise BadMessage(f"it holds more than {MAX_PARTS} texts, lists, objects and commas")
    return function.bind(args, kwargs, _meant)


def _meant(word: Any) -> list[object]:
    """Return what a word can mean, the likelier first."""
    try:
        value: object = json.loads(word, parse_int=_whole, object_pairs_hook=no_key_twice)
    except (ValueError, RecursionError):
        return [word]
    encode(value)  # bounds its depth
    return [value, word]


def _whole(digits: str) -> int:
    value = int(digits)
    if value.bit_length() > MAX_INT_BITS:
        raise ValueError(_TOO_LARGE)
    return value

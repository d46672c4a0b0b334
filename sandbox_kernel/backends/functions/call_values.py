"""Values of host functions as JSON: how arguments and results cross the wall of a sandbox.

JSON has no bytes and no infinite numbers. They are sent as objects with one key that begins with ``$``; an object of
the program that has such a key is sent as ``$object``, so nothing is mistaken for something else. Bytes follow the JSON
as they are, after a line break: ``{"$bytes": 5}`` means the next five of them. To a program that can read text alone
they are sent as base64: ``{"$bytes": "aGVsbG8="}``. The program inside has the same rules in
``guest/functions/calling.py``. What comes in is hostile: size, depth and number are bounded.
"""

from __future__ import annotations

import base64
import binascii
import inspect
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sandbox_kernel.backends.functions.host_function import HostFunction
from sandbox_kernel.ground import wire
from sandbox_kernel.ground.wire import MAX_PARTS, has_too_many_parts, no_key_twice

#: The deepest nesting of lists and objects of one message.
MAX_DEPTH = 64
#: The largest whole number, in bits.
MAX_INT_BITS = 1024
_TOO_LARGE = f"it holds a number of more than {MAX_INT_BITS} bits"
_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


class BadValue(ValueError):
    """A value cannot be sent, or a message is not what it should be. The message says why."""


class RawBytes:
    """The bytes that follow the JSON of one message. They are taken in the order of the values."""

    def __init__(self, data: bytes = b"") -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        """Return the next bytes. Raises ``BadValue`` when the message has fewer."""
        if not 0 <= size <= len(self._data) - self._at:
            raise BadValue("it holds fewer bytes than it says")
        self._at += size
        return self._data[self._at - size : self._at]

    def check_end(self) -> None:
        """Raise ``BadValue`` when there are bytes that no value took."""
        if self._at < len(self._data):
            raise BadValue("it holds more bytes than it says")


def encode(value: object, raw: list[bytes] | None = None, depth: int = 0) -> object:
    """Return a value of the host as JSON. Raises ``BadValue`` for a type that a program cannot receive.

    Bytes are appended to ``raw``; without it they are base64.
    """
    if depth > MAX_DEPTH:
        raise BadValue(f"it is nested deeper than {MAX_DEPTH}")
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return _text(str(value))
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
            raise BadValue("it holds a dict with a key that is not text")
        plain = {key: encode(item, raw, depth + 1) for key, item in value.items()}
        return {"$object": plain} if any(key.startswith("$") for key in plain) else plain
    raise BadValue(f"it holds a {type(value).__name__}; send None, bool, int, float, str, bytes, list or dict")


def decode(value: object, raw: RawBytes, depth: int = 0) -> object:
    """Return a value that a program sent. Raises ``BadValue`` for anything that ``encode`` does not make."""
    if depth > MAX_DEPTH:
        raise BadValue(f"it is nested deeper than {MAX_DEPTH}")
    if isinstance(value, int) and value.bit_length() > MAX_INT_BITS:
        raise BadValue(_TOO_LARGE)
    if isinstance(value, float) and not math.isfinite(value):
        raise BadValue("it holds a number that is no JSON")
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list):
        return [decode(item, raw, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((key, item),) = value.items()
        if key == "$bytes":
            return _bytes(item, raw)
        if key == "$float" and isinstance(item, str) and item in _FLOATS:
            return _FLOATS[item]
        if key == "$object" and isinstance(item, dict):
            return _decoded_object(item, raw, depth)
    if any(key.startswith("$") for key in value):
        raise BadValue("it holds an object with a key that begins with '$', which must be sent as $object")
    return _decoded_object(value, raw, depth)


def _decoded_object(value: dict[str, object], raw: RawBytes, depth: int) -> dict[str, object]:
    made = {_text(key): decode(item, raw, depth + 1) for key, item in value.items()}
    if len(made) != len(value):
        raise BadValue("it holds an object with keys that are the same as UTF-8")
    return made


def _text(value: str) -> str:
    """Return a text that has a UTF-8: lone surrogates have none."""
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def _bytes(item: object, raw: RawBytes) -> bytes:
    if isinstance(item, int) and not isinstance(item, bool):
        return raw.take(item)
    try:
        if isinstance(item, str):
            return base64.b64decode(item, validate=True)
    except (binascii.Error, ValueError):
        pass
    raise BadValue("it holds bytes that are no base64")


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
    #: Whether the program reads text alone, so that bytes are sent as base64.
    base64: bool = False
    next: int | None = None
    drop: int | None = None


def load(data: bytes) -> tuple[CallMessage, RawBytes]:
    """Parse one message of a program. Raises ``BadValue`` when it has another form or holds too many values."""
    head, _, rest = data.partition(b"\n")
    try:
        return wire.decode(head, CallMessage, object_pairs_hook=no_key_twice), RawBytes(rest)
    except wire.BadMessage as error:
        raise BadValue(str(error)) from None


def check_words(words: Sequence[str]) -> None:
    """Raise ``BadValue`` when the words of a command line hold too many values. Only lists and objects hold several."""
    if has_too_many_parts(*(word.encode() for word in words if word.lstrip()[:1] in ("[", "{"))):
        raise BadValue(f"it holds more than {MAX_PARTS} texts, lists, objects and commas")


def load_word(word: str) -> object:
    """Return the JSON value of a word after ``check_words``.

    Raises ``ValueError`` when it is no JSON or a number that is too large, ``BadValue`` when it is nested too deep.
    """
    value: object = json.loads(word, parse_int=_whole, object_pairs_hook=no_key_twice)
    encode(value)  # bounds its depth
    return value


def _whole(digits: str) -> int:
    value = int(digits)
    if value.bit_length() > MAX_INT_BITS:
        raise ValueError(_TOO_LARGE)
    return value


def dump(message: dict[str, object], raw: list[bytes] | None = None) -> bytes:
    """Return one message to a program as bytes."""
    head = json.dumps(message, separators=(",", ":")).encode()
    return b"".join((head, b"\n", *raw)) if raw else head


def shortened(value: object, most: int = 200) -> object:
    """Return an argument for the record of a call: short texts, numbers and None as they are, the rest cut."""
    if value is None or isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < 1 << 64):
        return value
    if isinstance(value, str):
        return value if len(value) <= most else f"{value[: most - 1]}…"
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    text = repr(value if not isinstance(value, list | tuple | dict | set) or len(value) <= most else _head(value, most))
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _head(value: list[object] | tuple[object, ...] | dict[str, object] | set[object], most: int) -> object:
    """Return the first parts of a large collection: its whole repr would take as long as the call."""
    return [item for item, _ in zip(value, range(most), strict=False)]


# The arguments of a call, as each language writes them, bound to the parameters of the function.
#
# Python sends ``args`` and ``kwargs``. JavaScript has no keyword arguments: it sends ``args``, of which the last may be
# a plain object that is an argument or holds keyword arguments. The shell sends ``words``. The signature decides what
# is meant, as ``describe_functions`` tells it to whoever writes the program.

_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def bind_message(function: HostFunction, message: CallMessage, raw: RawBytes) -> inspect.BoundArguments:
    """Return the arguments of a call after all checks.

    Raises:
        TypeError: They do not fit the function; the message is for the program.
        BadValue: They are no values that a program may send.

    """
    if message.words is not None:
        if message.args is not None or message.kwargs is not None:
            raise BadValue("a call has words, or args and kwargs, not both")
        return _bind_words(function, [_text(word) for word in message.words])
    args = [decode(item, raw, 1) for item in message.args or ()]
    kwargs = _decoded_object(message.kwargs or {}, raw, 0)
    raw.check_end()
    if message.object and args and isinstance(args[-1], dict):
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
    check_words([str(each) for each in (*args, *kwargs.values())])
    try:
        bound = function.signature.bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"{function.name}() {error}") from None
    for name, value in bound.arguments.items():
        kind = parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            bound.arguments[name] = tuple(_meant(function, name, word) for word in value)
        elif kind is inspect.Parameter.VAR_KEYWORD:
            bound.arguments[name] = {key: _meant(function, name, word) for key, word in value.items()}
        else:
            bound.arguments[name] = _meant(function, name, value)
    return function.bind(list(bound.args), dict(bound.kwargs))


def _meant(function: HostFunction, name: str, word: str) -> object:
    try:
        value = load_word(word)
    except BadValue:
        raise
    except (ValueError, RecursionError):
        return word
    for each in (value, word):
        try:
            function.checked(name, each)
        except TypeError:
            continue
        return each
    return value

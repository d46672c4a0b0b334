"""What a call of a host function is, without the way to the host: messages, results, streams, errors.

``caller.py`` sends the messages over a socket. Python inside WebAssembly has this file too, as ``host.calling``, and
sends them to its embedder. Standard library only, Python 3.8 or later.

The command ``host`` starts an interpreter for each call. So this file imports ``_json``, the C functions of which the
module ``json`` is made, and not ``json``, whose import takes longer than the start of the interpreter.
"""

from __future__ import annotations

import binascii
import math
from _io import BytesIO
from _json import encode_basestring_ascii, make_encoder, make_scanner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterator, List, Sequence, Tuple


class _Reading:
    """How ``make_scanner`` reads: as ``json.loads`` does."""

    strict = True
    object_hook = object_pairs_hook = array_hook = parse_constant = None
    parse_float, parse_int = float, int


def _unknown(value: object) -> object:
    raise TypeError(f"{type(value).__name__} is no JSON")


_scan = make_scanner(_Reading)  # type: ignore[arg-type]
_parts = make_encoder(None, _unknown, encode_basestring_ascii, None, ":", ",", False, False, True)


def as_json(value: object) -> str:
    """Return JSON in ASCII, without spaces."""
    return "".join(_parts(value, 0))


def from_json(text: str) -> Any:
    """Return the value of a JSON text. Raises ``ValueError`` for another."""
    try:
        return _scan(text.strip(), 0)[0]
    except StopIteration:
        raise ValueError("this is no JSON") from None


# Values as JSON: the same rules as ``backends/functions/call_values.py`` of the host.

#: Types that are JSON as they are. A look at the exact type is quicker than the questions that follow.
_AS_THEY_ARE = frozenset({type(None), bool, int, str})
_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def encode(value: object, raw: List[bytes] | None = None) -> object:
    """Return an argument as JSON; raises ``TypeError`` for a type that cannot be sent.

    Bytes are appended to ``raw``; without it they are base64.
    """
    if type(value) in _AS_THEY_ARE or isinstance(value, (int, str)):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$float": str(float(value))}
    if isinstance(value, (bytes, bytearray, memoryview)):
        if raw is None:
            return {"$bytes": binascii.b2a_base64(value, newline=False).decode()}
        raw.append(bytes(value))
        return {"$bytes": len(raw[-1])}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [encode(item, raw) for item in value]
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise TypeError("a dict for a host function must have texts as keys")
        plain = {key: encode(item, raw) for key, item in value.items()}
        return {"$object": plain} if any(key.startswith("$") for key in plain) else plain
    if hasattr(value, "tolist"):  # numbers and arrays of NumPy
        return encode(value.tolist(), raw)
    raise TypeError(f"a host function cannot be sent a {type(value).__name__}; send JSON values or bytes")


def decode(value: Any, raw: BytesIO) -> Any:
    """Return a result of the host; its bytes are read from ``raw``."""
    if isinstance(value, list):
        return [decode(item, raw) for item in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((key, item),) = value.items()
        if key == "$bytes":
            return raw.read(item)
        if key == "$float":
            return _FLOATS[item]
        if key == "$object":
            value = item
    return {key: decode(item, raw) for key, item in value.items()}


class HostError(Exception):
    """A host function raised an exception, or the call was refused. ``type`` is the name of the host's exception."""

    def __init__(self, type: str, message: str) -> None:  # noqa: A002 - the name that programs read
        super().__init__(type, message)
        self.type = type
        self.message = message

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


class Calls:
    """Calls functions of the host. ``exchange`` sends a message and returns its answer, or raises ``HostError``."""

    def __init__(self, exchange: Callable[[bytes], bytes]) -> None:
        self.exchange = exchange

    def call(self, name: str, args: object, kwargs: object) -> Any:
        """Call a function and return its result; an iterator for a function that streams."""
        message: Dict[str, Any] = {"call": name}
        raw: List[bytes] = []
        if args:
            message["args"] = encode(args, raw)
        if kwargs:
            message["kwargs"] = encode(kwargs, raw)
        return self.result(message, raw)

    def result(self, message: Dict[str, Any], raw: Sequence[bytes] = ()) -> Any:
        """Send the message of a call, and the bytes that belong to it, and return its result."""
        answer, value = self.ask(message, raw)
        return self._items(answer["stream"]) if "stream" in answer else value

    def ask(self, message: Dict[str, Any], raw: Sequence[bytes] = ()) -> Tuple[Dict[str, Any], Any]:
        """Send a message; returns the answer and the value in it. Raises ``HostError`` when the answer is an error."""
        data = as_json(message).encode()
        text, _, rest = self.exchange(b"".join((data, b"\n", *raw)) if raw else data).partition(b"\n")
        answer: Dict[str, Any] = from_json(text.decode())
        if "error" in answer:
            raise HostError(answer["error"]["type"], answer["error"]["message"])
        value = answer.get("value")
        # Without a ``$`` the JSON is the value: nothing in it has to be decoded.
        return answer, decode(value, BytesIO(rest)) if b"$" in text else value

    def _items(self, stream: int) -> Iterator[Any]:
        ended = False
        try:
            while True:
                answer, value = self.ask({"next": stream})
                if "end" in answer:
                    ended = True
                    return
                yield value
        except HostError:
            ended = True
            raise
        finally:
            if not ended:
                try:
                    self.ask({"drop": stream})
                except (HostError, OSError):
                    pass


def make_module(calls: Calls, listing: List[List[str]]) -> Any:
    """Return the module ``host``: each function of the host by its name, ``HostError``, and ``aio``."""

    def function_of(name: str, signature: str, doc: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            return calls.call(name, args, kwargs)

        call.__name__ = call.__qualname__ = name
        call.__module__ = "host"
        call.__doc__ = f"{name}{signature}\n\n{doc}" if doc else f"{name}{signature}"
        return call

    def missing(name: str) -> None:
        raise AttributeError(f"the host has no function {name!r}; there are: {', '.join(functions)}")

    functions = {name: function_of(name, signature, doc) for name, signature, doc in listing}
    shown = "\n".join(f"  {name}{signature}" for name, signature, _ in listing)
    module = type(math)("host", f"Functions of the host:\n{shown}")
    names = ["HostError", *functions]
    module.__dict__.update(functions, HostError=HostError, aio=Awaitable(module), _caller=calls, __all__=names)
    module.__dict__.update(__path__=[], __getattr__=missing, __dir__=lambda: names)
    return module


class Awaitable:
    """``host.aio``: the same functions as coroutine functions; each call waits in a thread, where there are threads."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._module, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            import asyncio
            import functools
            import sys

            if sys.platform in ("wasi", "emscripten"):
                return function(*args, **kwargs)
            return await asyncio.get_running_loop().run_in_executor(None, functools.partial(function, *args, **kwargs))

        return call

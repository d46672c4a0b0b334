"""What a call of a host function is, without the way to the host: messages, results, streams, errors.

``caller.py`` sends the messages over a socket. Python inside WebAssembly has this file too, as ``host.calling``, and
sends them to its embedder. Standard library only, Python 3.8 or later.
"""

from __future__ import annotations

import json

from .values import AnswerBytes, decode, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Tuple


#: Made once: ``json.dumps`` with separators makes one for each message, ``json.loads`` asks for the encoding.
_as_json = json.JSONEncoder(separators=(",", ":")).encode
_from_json = json.JSONDecoder().decode


class HostError(Exception):
    """A host function raised an exception, or the call was refused. ``type`` is the name of the host's exception."""

    def __init__(self, type: str, message: str) -> None:  # noqa: A002 - the name that programs read
        super().__init__(type, message)
        self.type = type
        self.message = message

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


class Calls:
    """Calls functions of the host. ``exchange`` is the way to it."""

    def exchange(self, data: bytes) -> bytes:
        """Send one message and return its answer. Raises ``HostError`` when there is no answer.

        Both are JSON, and bytes after a line break when there are any in it.
        """
        raise NotImplementedError

    def call(self, name: str, args: object, kwargs: object) -> Any:
        """Call a function and return its result; an iterator for a function that streams."""
        raw: List[bytes] = []
        message: Dict[str, Any] = {"call": name}
        if args:
            message["args"] = encode(args, raw)
        if kwargs:
            message["kwargs"] = encode(kwargs, raw)
        return self._result(message, raw)

    def call_words(self, name: str, words: List[str]) -> Any:
        """Call a function with the words of a command line; the host knows what they mean."""
        return self._result({"call": name, "words": words}, [])

    def _result(self, message: Dict[str, Any], raw: List[bytes]) -> Any:
        answer, value = self.ask(message, raw)
        return self._items(answer["stream"]) if "stream" in answer else value

    def ask(self, message: Dict[str, Any], raw: List[bytes] | None = None) -> Tuple[Dict[str, Any], Any]:
        """Send a message; returns the answer and the value in it. Raises ``HostError`` when the answer is an error."""
        data = _as_json(message).encode("utf-8", "replace")
        head, _, rest = self.exchange(b"".join((data, b"\n", *raw)) if raw else data).partition(b"\n")
        answer: Dict[str, Any] = _from_json(head.decode())
        if "error" in answer:
            raise HostError(answer["error"]["type"], answer["error"]["message"])
        value = answer.get("value")
        # Without a ``$`` the JSON is the value: nothing in it has to be decoded.
        return answer, decode(value, AnswerBytes(rest)) if b"$" in head else value

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


def function_of(calls: Calls, name: str, signature: str, doc: str) -> Any:
    """Return a function that calls the host's function of this name."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return calls.call(name, args, kwargs)

    call.__name__ = call.__qualname__ = name
    call.__module__ = "host"
    call.__doc__ = f"{name}{signature}\n\n{doc}" if doc else f"{name}{signature}"
    return call

"""What a call of a host function is, without the way to the host: messages, results, streams, errors.

``caller.py`` sends the messages over a socket. Python inside WebAssembly has this file too, as ``host.calling``, and
sends them to its embedder. Standard library only, Python 3.8 or later.
"""

from __future__ import annotations

import json

from .values import decode, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator


#: Made once: ``json.dumps`` with separators makes one for each message.
_as_json = json.JSONEncoder(separators=(",", ":")).encode


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
        """Send one message and return its answer; both are JSON. Raises ``HostError`` when there is no answer."""
        raise NotImplementedError

    def call(self, name: str, args: object, kwargs: object) -> Any:
        """Call a function and return its result; an iterator for a function that streams."""
        answer = self.ask({"call": name, "args": encode(args), "kwargs": encode(kwargs)})
        if "stream" in answer:
            return self._items(answer["stream"])
        return decode(answer["value"])

    def ask(self, message: Dict[str, Any]) -> Dict[str, Any]:
        """Send a message and return the answer; raises ``HostError`` when it is one."""
        data = _as_json(message).encode("utf-8", "replace")
        answer: Dict[str, Any] = json.loads(self.exchange(data))
        if "error" in answer:
            raise HostError(answer["error"]["type"], answer["error"]["message"])
        return answer

    def _items(self, stream: int) -> Iterator[Any]:
        ended = False
        try:
            while True:
                answer = self.ask({"next": stream})
                if "end" in answer:
                    ended = True
                    return
                yield decode(answer["value"])
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

"""The command ``host``: calls host functions from a shell, and from programs that cannot send descriptors.

    host search boats limit=3      the host knows which words are text, JSON or keyword arguments
    host --json                    one call as JSON on standard input, its answer as JSON on standard output

Standard library only, Python 3.8 or later.
"""

from __future__ import annotations

import os
import sys

from .caller import Caller
from .calling import HostError, as_json, encode, from_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List


def main() -> None:
    """Call one function; exits with 1 when the host raised an exception, with 2 when the command line is wrong."""
    call_socket = os.environ.get("HOST_CALL_SOCKET", "")
    if not call_socket.isdigit() or len(sys.argv) < 2:
        print("host: usage: host FUNCTION [ARGUMENT | NAME=VALUE] ...", file=sys.stderr)
        raise SystemExit(2)
    caller = Caller(int(call_socket))
    try:
        if sys.argv[1] == "--json":
            answer_json(caller)
            return
        result = caller.result({"call": sys.argv[1], "words": sys.argv[2:]})
        for item in result if hasattr(result, "__next__") else [result]:
            show(item)
    except (HostError, OSError, ValueError) as error:
        print(f"host: {error}", file=sys.stderr)
        raise SystemExit(1) from None


def show(value: object) -> None:
    """Print a result: text and bytes as they are, None as nothing, all else as JSON."""
    if isinstance(value, bytes):
        sys.stdout.buffer.write(value)
    elif isinstance(value, str):
        print(value)
    elif value is not None:
        print(as_json(encode(value)))
    sys.stdout.flush()


def answer_json(caller: Caller) -> None:
    """Pass on one message that is on standard input; a stream is read to its end."""

    def ask(message: Dict[str, Any]) -> Dict[str, Any]:
        found: Dict[str, Any] = from_json(caller.exchange(as_json({**message, "base64": True}).encode()).decode())
        return found

    try:
        answer = ask(from_json(sys.stdin.read()))
        if "stream" in answer:
            items: List[Any] = []
            while "value" in (item := ask({"next": answer["stream"]})):
                items.append(item["value"])
            answer = item if "error" in item else {"items": items}
    except HostError as error:
        answer = {"error": {"type": error.type, "message": error.message}}
    sys.stdout.write(as_json(answer))

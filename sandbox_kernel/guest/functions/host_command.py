"""The command ``host``: calls host functions from a shell, and from programs that cannot send descriptors.

    host search boats limit=3      each word is JSON where it can be, else text; NAME=VALUE is a keyword argument
    host --json                    one call as JSON on standard input, its answer as JSON on standard output

Standard library only, Python 3.8 or later.
"""

from __future__ import annotations

import json
import os
import re
import sys

from .caller import Caller
from .calling import HostError
from .values import decode, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Tuple

_KEYWORD = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


def main() -> None:
    """Call one function; exits with 1 when the host raised an exception, with 2 when the command line is wrong."""
    hatch = os.environ.get("HOST_HATCH", "")
    if not hatch.isdigit() or len(sys.argv) < 2:
        print("host: usage: host FUNCTION [ARGUMENT | NAME=VALUE] ...", file=sys.stderr)
        raise SystemExit(2)
    caller = Caller(int(hatch))
    if sys.argv[1] == "--json":
        answer_json(caller)
        return
    args, kwargs = read_words(sys.argv[2:])
    try:
        result = caller.call(sys.argv[1], args, kwargs)
        for item in result if hasattr(result, "__next__") else [result]:
            show(item)
    except (HostError, OSError) as error:
        print(f"host: {error}", file=sys.stderr)
        raise SystemExit(1) from None


def read_words(words: List[str]) -> Tuple[List[Any], Dict[str, Any]]:
    """Return the arguments that the words of a command line mean."""
    args: List[Any] = []
    kwargs: Dict[str, Any] = {}
    for word in words:
        named = _KEYWORD.fullmatch(word)
        if named is not None:
            kwargs[named.group(1)] = read_word(named.group(2))
        else:
            args.append(read_word(word))
    return args, kwargs


def read_word(word: str) -> Any:
    """Return a word as the JSON value that it is, else as text."""
    try:
        return json.loads(word)
    except ValueError:
        return word


def show(value: object) -> None:
    """Print a result: text and bytes as they are, None as nothing, all else as JSON."""
    if isinstance(value, bytes):
        sys.stdout.buffer.write(value)
    elif isinstance(value, str):
        print(value)
    elif value is not None:
        print(json.dumps(encode(value)))
    sys.stdout.flush()


def answer_json(caller: Caller) -> None:
    """Make one call that is described on standard input; a stream is read to its end."""
    asked = json.load(sys.stdin)
    try:
        result = caller.call(asked["call"], decode(asked["args"]), decode(asked["kwargs"]))
        if hasattr(result, "__next__"):
            answer: Dict[str, Any] = {"items": [encode(item) for item in _all(result)]}
        else:
            answer = {"value": encode(result)}
    except HostError as error:
        answer = {"error": {"type": error.type, "message": error.message}}
    json.dump(answer, sys.stdout)


def _all(items: Iterator[Any]) -> List[Any]:
    return list(items)

"""Judges one candidate inside a jail: the tests run in this process, the candidate in a child that knows none of them.

The child is forked before this process reads the tests, and begins when they are read. It has one pipe in each
direction and no other descriptor. Where the tests use a function or an object of the candidate they have a ``Remote``:
calls cross the pipes as JSON, and their results are plain values of exact types, or other remotes. So the tests never
run code of the candidate: its ``__eq__`` is not asked, it sees no frame, no test and no expected value, and it cannot
reach the verdict, which this process prints behind a word that it read after the fork. A candidate that ends its
process has no verdict.

Standard input: 16 digits, the size of the candidate; the candidate; then JSON with ``word``, ``prompt``, ``entry``,
``test`` and ``timeout``. Standard library only, Python 3.8 or later.
"""

from __future__ import annotations

import os
import sys

# This process imports nothing that a program could have written: neither now nor for the tests, later.
_PATH, _OWN = list(sys.path), (sys.prefix, sys.base_prefix)
sys.path[:] = [
    each
    for each in map(os.path.abspath, sys.path)
    if not f"{each}/".startswith(f"{os.getcwd()}/")
    and (each.startswith(_OWN) or (os.path.isdir(each) and not os.access(each, os.W_OK)))
]

import builtins  # noqa: E402
import ctypes  # noqa: E402
import json  # noqa: E402
import operator  # noqa: E402
import signal  # noqa: E402

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO, Callable, Dict, List, NoReturn

#: The longest verdict, in characters, and the longest answer of a candidate, in bytes.
MOST_TEXT, MOST_ANSWER = 10_000, 64 << 20
_PR_SET_DUMPABLE = 4
_LISTS: Dict[str, Any] = {kind.__name__: kind for kind in (list, tuple, set, frozenset, dict, bytes, bytearray)}
_SPREAD: Dict[str, Callable[..., Any]] = {"complex": complex, "range": range}


def encode(value: Any, other: Callable[[Any], Any]) -> Any:
    """Return a value as JSON: numbers and texts as they are, the rest as a list of its type and its parts.

    ``other`` encodes what is no plain value. A subclass of a plain type is sent as that type.
    """
    if value is None or isinstance(value, bool):
        return value
    for plain in (int, float, str):
        if isinstance(value, plain):
            return plain(value)
    if getattr(type(value), "__module__", "") == "numpy" and getattr(value, "shape", None) == ():
        return encode(value.item(), other)
    for name, kind in _LISTS.items():
        if isinstance(value, kind):
            return [name, [encode(each, other) for each in (value.items() if kind is dict else value)]]
    if isinstance(value, complex):
        return ["complex", [value.real, value.imag]]
    if isinstance(value, range):
        return ["range", [value.start, value.stop, value.step]]
    return other(value)


def decode(sent: Any, others: Dict[str, Callable[..., Any]]) -> Any:
    """Return the value of an encoded one. ``others`` make what is no plain value, by its kind."""
    if not isinstance(sent, list):
        return sent
    kind, parts = sent[0], [decode(each, others) for each in sent[1]]
    return _LISTS[kind](parts) if kind in _LISTS else {**_SPREAD, **others}[kind](*parts)


def be_candidate(program: str, asked: BinaryIO, tell: BinaryIO) -> NoReturn:
    """Answer what the judge asks until it ends. Whatever the program does to this process, it is its own."""
    names: Dict[str, Any] = {}
    held: Dict[int, Any] = {}

    def hold(value: Any) -> List[Any]:
        if isinstance(value, type) and issubclass(value, BaseException):
            return ["exception", [each.__name__ for each in value.__mro__]]
        held[id(value)] = value
        return ["object", [id(value), type(value).__name__]]

    actions: Dict[str, Callable[..., Any]] = {
        "load": lambda: exec(program, names),
        "name": names.__getitem__,
        "call": lambda function, *args, **options: function(*args, **options),
        "attribute": getattr,
        "item": operator.getitem,
        **{each.__name__: each for each in (len, bool, str, repr, iter, next)},
    }
    for line in asked:
        action, sent, options = json.loads(line)
        try:
            args = decode(sent, {"object": lambda number, _: held[number]})
            value = actions[action](*args, **decode(options, {}))
            after = encode(args, hold)
            answer = json.dumps(["value", encode(value, hold), after if after != sent else None])
        except BaseException as error:
            answer = json.dumps(["error", hold(type(error))[1], str(error)])
        tell.write(answer.encode() + b"\n")
        tell.flush()
    os._exit(0)


class Remote:
    """An object of the candidate. It can be called and looked into; it cannot be compared, because only values can."""

    def __init__(self, ask: Callable[..., Any], number: int, kind: str) -> None:
        self._ask, self._sent = ask, ["object", [number, kind]]

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Call it, if it is a function or a class."""
        return self._ask("call", self, *args, **options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__name__":
            raise AttributeError(name)
        return self._ask("attribute", self, name)

    def __getitem__(self, key: Any) -> Any:
        return self._ask("item", self, key)

    def __eq__(self, other: object) -> bool:
        raise TypeError(f"the candidate made a {self._sent[1][1]}, which is no plain value and cannot be compared")


for _name in ("len", "bool", "str", "repr", "iter", "next"):
    setattr(Remote, f"__{_name}__", lambda self, _name=_name: self._ask(_name, self))


class Judge:
    """Asks the candidate, for the tests."""

    def __init__(self, heard: BinaryIO, tell: BinaryIO) -> None:
        self._heard, self._tell = heard, tell
        self._errors: Dict[str, Any] = {}

    def ask(self, action: str, *args: Any, **options: Any) -> Any:
        """Let the candidate do something. Raises what it raised; lists and dicts that it changed are changed here."""
        message = [action, encode(args, self._refer), encode(options, self._refer)]
        self._tell.write(json.dumps(message).encode() + b"\n")
        self._tell.flush()
        line = self._heard.readline(MOST_ANSWER)
        if not line.endswith(b"\n"):
            os._exit(0)
        outcome, value, more = json.loads(line)
        if outcome != "value":
            kind = self._stand_in(*value)
            raise type(kind.__name__, (kind,), {"__init__": lambda *_: None, "__str__": lambda _: more})(more)
        others: Dict[str, Callable[..., Any]] = {
            "object": lambda number, kind: Remote(self.ask, number, kind),
            "exception": self._stand_in,
        }
        for old, new in zip(args, decode(more, others) or ()):  # noqa: B905 - Python 3.10
            if type(old) is type(new) and isinstance(old, (list, bytearray)):
                old[:] = new
            elif type(old) is type(new) and isinstance(old, (dict, set)):
                old.clear()
                old.update(new)
        return decode(value, others)

    def _refer(self, value: Any) -> Any:
        if isinstance(value, Remote):
            return value._sent
        raise TypeError(f"a test can give a candidate plain values, and no {type(value).__name__}")

    def _stand_in(self, *names: str) -> Any:
        """Return the exception class of this process for one of the candidate, by the names of it and its bases."""
        found = [getattr(builtins, each, None) for each in names]
        bases = [each for each in found if isinstance(each, type) and issubclass(each, BaseException)]
        if found[0] in bases:
            return bases[0]
        return self._errors.setdefault(names[0], type(names[0], (*bases, Exception)[:1], {}))


class TestNames(dict):  # type: ignore[type-arg]
    """The globals of the tests: their own names, those of the prompt, then builtins, then those of the candidate.

    A builtin that the candidate defines is the candidate's only if it is what the tests are about: the entry point, or
    the one name that they use.
    """

    def __init__(self, ask: Callable[..., Any], prompt: str, entry: str, test: str) -> None:
        super().__init__()
        self._ask, self._about = ask, entry or _only_name(test)
        for rest in ("", "    pass\n"):  # most prompts end within a function; one that is no program gives no names
            try:
                exec(f"{prompt}\n{rest}", self)
                break
            except Exception:
                self.clear()
        self.pop(entry, None)

    def __missing__(self, name: str) -> Any:
        if name.startswith("__") or (hasattr(builtins, name) and name != self._about):
            raise KeyError(name)
        return self._ask("name", name)


def _only_name(test: str) -> str:
    """Return the name that tests use when it is the only one that they do not define; else an empty text."""
    import ast

    nodes = list(ast.walk(ast.parse(test)))
    used = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    used -= {node.id for node in nodes if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    used -= {getattr(node, "name", getattr(node, "arg", None)) for node in nodes}
    return used.pop() if len(used) == 1 else ""


def read_input(size: int) -> bytes:
    """Return so many bytes of standard input, and read no more: what this process has at the fork, the child has."""
    data = b""
    while len(data) < size and (part := os.read(0, min(size - len(data), 1 << 20))):
        data += part
    return data


def main() -> NoReturn:
    """Judge the candidate of standard input and print the verdict."""
    program = json.loads(read_input(int(read_input(16))))
    os.environ["OMP_NUM_THREADS"] = "1"  # as HumanEval sets it: many programs run at once
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(0)
    if ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:  # the child cannot look into this process
        os._exit(1)
    asked, ask = os.pipe()
    heard, tell = os.pipe()
    sys.stdin = nothing = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")  # as in HumanEval, reading it is an OSError
    if os.fork() == 0:
        low, high = sorted((asked, tell))
        for place in range(3):
            os.dup2(nothing.fileno(), place)
        for begin, end in ((3, low), (low + 1, high), (high + 1, 1 << 16)):
            os.closerange(begin, end)
        sys.path[:] = _PATH
        be_candidate(program, os.fdopen(asked, "rb"), os.fdopen(tell, "wb"))
    os.close(asked)
    os.close(tell)
    given = json.loads(read_input(sys.maxsize))

    def report(verdict: str) -> NoReturn:
        os.write(1, f"\n{given['word']}{json.dumps(verdict[:MOST_TEXT])}\n".encode())
        os._exit(0)

    signal.signal(signal.SIGALRM, lambda *_: report("timed out"))
    signal.setitimer(signal.ITIMER_REAL, given["timeout"])
    judge = Judge(os.fdopen(heard, "rb"), os.fdopen(ask, "wb"))
    try:
        judge.ask("load")
        exec(given["test"], TestNames(judge.ask, given["prompt"], given["entry"], given["test"]))
        verdict = "passed"
    except BaseException as error:
        verdict = f"failed: {error}"
    report(verdict)


main()

"""Passes variables between cells and languages as JSON: ``-i`` in, ``-o`` out.

A variable goes in as a statement on the cell's first line, which is the empty line of the magic. It comes out as one
line that the program prints last, with a random mark. Other languages exchange files in the work folder:
``inputs/NAME`` has the variable, text as it is and everything else as JSON. What the program writes into the empty file
``outputs/NAME`` becomes the variable's new value: as JSON if it is JSON, else as text without its last newline.
"""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Iterable, Mapping, Sequence

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.model import Language
from sandbox_kernel.util.wire import parse_json

MAX_JSON = 4 << 20
#: And of all that one cell is passed.
MAX_ALL_JSON = 3 * MAX_JSON

_SCRIPTS = frozenset({Language.JAVASCRIPT, Language.TYPESCRIPT})
WITH_VARIABLES = frozenset({Language.PYTHON, Language.COMMAND}) | _SCRIPTS


def encode(name: str, value: object) -> str:
    """Return the value of a user's variable as JSON, or raise ``InvalidRequest`` with the reason and what to do."""
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidRequest(
            f"-i {name}: a value of type {type(value).__name__} cannot be passed as JSON ({error}); "
            f"{_instead(name, value)}"
        ) from None
    if len(text) > MAX_JSON:
        raise InvalidRequest(
            f"-i {name}: {len(text)} characters of JSON, at most {MAX_JSON} can be passed; use --mount for data"
        )
    return text


def encode_all(values: Iterable[tuple[str, object]]) -> dict[str, str]:
    """Return the variables of one cell as JSON, by their names; reads no further than they fit into its code."""
    texts, room = dict[str, str](), MAX_ALL_JSON
    for name, value in values:
        texts[name] = encode(name, value)
        room -= len(texts[name])
        if room < 0:
            raise InvalidRequest(
                f"-i {name}: with the others more than {MAX_ALL_JSON} characters of JSON; use --mount for data"
            )
    return texts


def _instead(name: str, value: object) -> str:
    """Return what to do instead; for tables and arrays, the method that converts them."""
    for method, call in (("to_dict", "to_dict()"), ("tolist", "tolist()")):
        if hasattr(type(value), method):
            return f"pass {name}.{call} as a variable of its own"
    return "pass numbers, text, lists or dicts"


def prelude(language: Language, values: Mapping[str, str]) -> str:
    """Return one line of code in the cell's language that sets each variable from its JSON."""
    if not values:
        return ""
    if language is Language.PYTHON:
        sets = "; ".join(f"{name} = __import__('json').loads({text!r})" for name, text in values.items())
        return f"{sets}; "
    if language in _SCRIPTS:
        return " ".join(f"globalThis[{json.dumps(n)}] = JSON.parse({json.dumps(t)});" for n, t in values.items()) + " "
    return " ".join(f"export {name}={_shell(text)};" for name, text in values.items()) + " "


def epilogue(language: Language, names: Sequence[str], mark: str) -> str:
    """Return code in the cell's language that prints the mark and, after it, the variables as JSON."""
    if not names:
        return ""
    if language is Language.PYTHON:
        pairs = ", ".join(f"{name!r}: {name}" for name in names)
        return f"\nprint('\\n{mark}' + __import__('json').dumps({{{pairs}}}), flush=True)\n"
    if language in _SCRIPTS:
        pairs = ", ".join(f"{json.dumps(name)}: {name}" for name in names)
        return f"\n;console.log('\\n{mark}' + JSON.stringify({{{pairs}}}));\n"
    # A shell cannot write JSON: each value is printed as base64 of its text.
    values = ",".join(f'"{name}":"\'"$(printf %s "${name}" | base64 | tr -d \'\\n\')"\'"' for name in names)
    return f"\nprintf '\\n%s\\n' '{mark}{{{values}}}'\n"


def _shell(text: str) -> str:
    """Quote a JSON text for a shell; a JSON string becomes the string itself."""
    value = json.loads(text)
    plain = value if isinstance(value, str) and "\0" not in value else text
    return "'" + plain.replace("'", "'\\''") + "'"


class MarkedOutput:
    """Removes the marked line from a stream of output, chunk by chunk."""

    def __init__(self) -> None:
        self.mark = f"\x1e{secrets.token_hex(16)}\x1e"
        self._held = ""
        self._found: list[str] | None = None

    def feed(self, text: str) -> str:
        """Return what the user sees of this chunk: the text up to the mark. A possible start of a mark is held back."""
        if self._found is not None:
            self._found.append(text)
            return ""
        text = self._held + text
        self._held = ""
        lead = f"\n{self.mark}"
        start = text.find(lead)
        if start >= 0:
            self._found = [text[start + len(lead) :]]
            return text[:start]
        for size in range(min(len(lead) - 1, len(text)), 0, -1):
            if lead.startswith(text[-size:]):
                self._held, text = text[-size:], text[:-size]
                break
        return text

    def close(self) -> str:
        """Return the text that was held back, if no mark came."""
        held, self._held = self._held, ""
        return held

    def values(self, language: Language, names: Sequence[str]) -> dict[str, object]:
        """Return the variables that the program printed, as plain JSON values."""
        if self._found is None:
            raise InvalidRequest(f"-o {names[0]}: the cell ended before it printed its variables")
        text = "".join(self._found)
        if len(text) > MAX_JSON:
            raise InvalidRequest(f"-o {names[0]}: more than {MAX_JSON} characters of JSON; write a file instead")
        try:
            document = parse_json(text.encode())
            values = {name: document[name] for name in names}
            if language is Language.COMMAND:
                values = {name: base64.b64decode(value).decode("utf-8", "replace") for name, value in values.items()}
        except (ValueError, KeyError, TypeError, RecursionError):
            raise InvalidRequest(f"-o {names[0]}: what came out is not JSON; was the output cut?") from None
        return values


def with_variables(language: Language, code: str, values: Mapping[str, str], names: Sequence[str], mark: str) -> str:
    """Return the program with the code of ``prelude`` and ``epilogue``. If its first line is empty, no line moves."""
    before, after = prelude(language, values), epilogue(language, names, mark)
    if not before or code.startswith("\n"):
        return f"{before}{code}{after}"
    if code.startswith("#!"):
        first, _, rest = code.partition("\n")
        return f"{first}\n{before}\n{rest}{after}"
    return f"{before}\n{code}{after}"


def exchange_files(values: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Return the files for a run: inputs from JSON texts, and empty outputs that replace those of an earlier run."""
    given = {f"inputs/{name}": _plain(text) for name, text in values.items()}
    return given | {output_file(name): "" for name in names}


def output_file(name: str) -> str:
    """Return the file into which a program writes an output variable."""
    return f"outputs/{name}"


def output_value(name: str, data: bytes) -> object:
    """Return the variable that a program wrote. Raises ``InvalidRequest`` when it is missing or too long."""
    if not data:
        raise InvalidRequest(
            f"-o {name}: the cell wrote nothing into the file {output_file(name)}; write its value there"
        )
    if len(data) > MAX_JSON:
        raise InvalidRequest(f"-o {name}: {len(data)} bytes, at most {MAX_JSON} travel; use --mount for data")
    try:
        value: object = parse_json(data, parse_constant=int)  # NaN and Infinity are not JSON
    except (ValueError, RecursionError):
        return data.decode("utf-8", "replace").removesuffix("\n")
    return value


def _plain(text: str) -> str:
    value = json.loads(text)
    return value if isinstance(value, str) else text

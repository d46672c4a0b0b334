"""Passes variables into and out of any language as files in the work folder (``-i`` and ``-o``).

Python, JavaScript, TypeScript and commands get real variables (``notebook/options/variables.py``). For others
``inputs/NAME`` has the variable, text as it is and everything else as JSON. What the program writes into the empty file
``outputs/NAME`` becomes the variable's new value: as JSON if it is JSON, else as text without its last newline.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.util.wire import parse_json

INPUTS, OUTPUTS = "inputs", "outputs"
#: Longer values are refused, as longer JSON texts are.
MAX_BYTES = 4 << 20


def exchange_files(values: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Return the files for a run: inputs from JSON texts, and empty outputs that replace those of an earlier run."""
    given = {f"{INPUTS}/{name}": _plain(text) for name, text in values.items()}
    return given | {output_file(name): "" for name in names}


def output_file(name: str) -> str:
    """Return the file into which a program writes an output variable."""
    return f"{OUTPUTS}/{name}"


def output_value(name: str, data: bytes) -> object:
    """Return the variable that a program wrote. Raises ``InvalidRequest`` when it is missing or too long."""
    if not data:
        raise InvalidRequest(
            f"-o {name}: the cell wrote nothing into the file {output_file(name)}; write its value there"
        )
    if len(data) > MAX_BYTES:
        raise InvalidRequest(f"-o {name}: {len(data)} bytes, at most {MAX_BYTES} travel; use --mount for data")
    try:
        value: object = parse_json(data, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return data.decode("utf-8", "replace").removesuffix("\n")
    return value


def _plain(text: str) -> str:
    value = json.loads(text)
    return value if isinstance(value, str) else text


def _no_number(word: str) -> object:
    """NaN and Infinity are not JSON: such a value stays text."""
    raise ValueError(word)

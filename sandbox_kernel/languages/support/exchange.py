"""Variables that pass in and out of any language as files of the work folder: ``-i`` and ``-o`` without a statement.

Python, JavaScript, TypeScript and commands get real variables (``notebook/options/variables.py``). A language that has
no statement for that reads and writes plain files instead, which every language can:

- ``inputs/NAME`` holds the variable: text as it is, everything else as JSON (``5``, ``[1, 2]``, ``true``).
- ``outputs/NAME`` is there and empty. What the program writes into it is the variable's new value: what reads as JSON
  is that value, anything else is text, without the end of its last line.

So a C cell with ``-i n -o square`` says ``fscanf(fopen("inputs/n", "r"), "%d", &n)`` and
``fprintf(fopen("outputs/square", "w"), "%d", n * n)``. Pure text work; what comes out is only ever read as data.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from sandbox_kernel.errors import InvalidRequest

INPUTS, OUTPUTS = "inputs", "outputs"
#: A longer value is refused, as a longer JSON text is.
MAX_BYTES = 4 << 20


def exchange_files(values: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """The files of a run: inputs from their JSON texts, and outputs, empty, so that none is left of an earlier run."""
    given = {f"{INPUTS}/{name}": _plain(text) for name, text in values.items()}
    return given | {output_file(name): "" for name in names}


def output_file(name: str) -> str:
    """Where a program writes a variable that goes out."""
    return f"{OUTPUTS}/{name}"


def output_value(name: str, data: bytes) -> object:
    """The variable that a program wrote; ``InvalidRequest`` when it wrote nothing, or more than travels."""
    if not data:
        raise InvalidRequest(
            f"-o {name}: the cell wrote nothing into the file {output_file(name)}; write its value there"
        )
    if len(data) > MAX_BYTES:
        raise InvalidRequest(f"-o {name}: {len(data)} bytes, at most {MAX_BYTES} travel; use --mount for data")
    text = data.decode("utf-8", "replace")
    try:
        value: object = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return text.removesuffix("\n")
    return value


def _plain(text: str) -> str:
    value = json.loads(text)
    return value if isinstance(value, str) else text


def _no_number(word: str) -> object:
    """NaN and Infinity are no JSON: such a value stays text."""
    raise ValueError(word)

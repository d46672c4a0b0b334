"""Whether a console should run what was typed, or wait for more lines. Answers ``is_complete_request``.

Python is parsed, never compiled, and only when it is short: a parser is no place for a megabyte of brackets.
"""

from __future__ import annotations

import ast
import re

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.model import Language
from sandbox_kernel.notebook.options.cell_options import CellOptions
from sandbox_kernel.notebook.options.parse_cell import parse_cell

MAX_PARSED = 20_000
_DEEP = re.compile(r"[(\[{]{60}")
_OPEN = re.compile(
    r"was never closed|unexpected EOF|unterminated triple|expected an indented block|EOF while scanning|'\{' was"
)


def completeness(code: str, defaults: CellOptions) -> dict[str, str]:
    """``status`` is complete, incomplete or invalid; ``indent`` is what the next line begins with."""
    first = code.lstrip().partition("\n")[0]
    # As in every cell magic: the cell goes on until an empty line ends it.
    if first.startswith("%%sandbox") and not code.endswith("\n"):
        return {"status": "incomplete", "indent": ""}
    try:
        plan = parse_cell(code, defaults)
    except SandboxError:
        return {"status": "invalid"}
    if plan.options.effective_language is not Language.PYTHON or first.startswith("%%sandbox"):
        return {"status": "complete"}
    return python_completeness(plan.code)


def python_completeness(code: str) -> dict[str, str]:
    """The same for plain Python."""
    if not code.strip() or len(code) > MAX_PARSED or _DEEP.search(code):
        return {"status": "complete"}
    lines = [line for line in code.splitlines() if not line.startswith(("%", "!"))]
    text = "\n".join(lines)
    last = lines[-1] if lines else ""
    try:
        ast.parse(text)
    except SyntaxError as error:
        if last.endswith("\\") or _OPEN.search(error.msg or "") or last.rstrip().endswith(":"):
            return {"status": "incomplete", "indent": _indent(last)}
        return {"status": "invalid"}
    except (ValueError, MemoryError, RecursionError):
        return {"status": "invalid"}
    if last.startswith((" ", "\t")) and last.strip() and not code.endswith("\n"):
        return {"status": "incomplete", "indent": _indent(last)}
    return {"status": "complete"}


def _indent(last: str) -> str:
    spaces = last[: len(last) - len(last.lstrip())]
    return spaces + "    " if last.rstrip().endswith(":") else spaces

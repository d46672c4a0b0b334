"""Decides whether a console runs the typed code or waits for more lines, for ``is_complete_request``.

Python code is parsed, never compiled, and only if it is short, because parsing many nested brackets is expensive.
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
    """Return ``status`` (complete, incomplete or invalid) and ``indent``, the indentation of the next line."""
    first = code.lstrip().partition("\n")[0]
    # As for every cell magic, an empty line ends the cell.
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
    """Return the same for Python code without magics."""
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

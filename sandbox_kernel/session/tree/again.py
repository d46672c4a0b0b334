"""Whether a cell may be run again without asking: its text uses no input, network, time, chance or files. Pure.

And whether a cell may have changed variables that another cell made.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection

#: Names whose use makes a cell's outcome depend on more than the session's variables.
_OUTSIDE = frozenset(
    [
        *("input", "getpass", "open", "exec", "eval", "get_ipython", "subprocess", "os", "sys", "pathlib", "shutil"),
        *("time", "datetime", "random", "secrets", "uuid", "socket", "urllib", "requests", "httpx", "http", "sqlite3"),
        *("connect", "urlopen", "now", "today", "perf_counter", "monotonic", "rand", "randn", "default_rng"),
        *("read_csv", "read_parquet", "read_sql", "Thread", "Process", "Popen"),
    ]
)


def can_run_again(code: str) -> bool:
    """Whether nothing in the text of a Python cell reaches outside its session."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    used: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            used.add(node.id)
        elif isinstance(node, ast.Attribute):
            used.add(node.attr)
        elif isinstance(node, ast.alias):
            used.update(node.name.split("."))
        elif isinstance(node, ast.ImportFrom):
            used.update((node.module or "").split("."))
    return not used & _OUTSIDE


#: Words by which a cell reaches variables that it does not name.
_ALL_VARIABLES = ("globals", "locals", "vars", "user_ns", "gc")


def may_change(code: str, names: Collection[str]) -> bool:
    """Whether the text of a cell has one of these names, or reaches variables without naming them."""
    words = words_of(code)
    return not words.isdisjoint(names) or not words.isdisjoint(_ALL_VARIABLES)


def words_of(code: str) -> set[str]:
    """Return every word in the text of a cell: all names that it uses are among them."""
    return set(re.findall(r"\w+", code))

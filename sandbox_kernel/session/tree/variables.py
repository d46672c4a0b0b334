"""How the variables of two states differ, and which cell makes a variable again. Pure.

What is known of a variable is its type, a mark that changes with its value, and a few words. This comes out of the
jail: it says what the session claims, and is only ever shown.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from sandbox_kernel.session.tree.node import Changes, StateDiff, ValueChange
from sandbox_kernel.workspace.changes import FileDiff

if TYPE_CHECKING:
    from sandbox_kernel.session.tree.state_tree import StateRecord

#: What a worker reports of one variable: its type, a mark that changes with its value, and a few words. A mark that
#: begins with @ is its address and about its size: the value was not read.
Seen = tuple[str, str, str]
#: The most variables of one report. One that has so many may lack others.
MOST_SEEN = 10_000
_HEX = re.compile(r"[0-9a-f]{1,12}\Z")


def same(before: Seen, after: Seen) -> bool | None:
    """Whether a variable has the same value in both; None when that cannot be known."""
    address, _, _ = before[1].partition(":")
    if before[0] == after[0] and address == after[1].partition(":")[0]:
        return None if before[1].startswith("@") else True
    if before[0] == after[0] and before[1].startswith("@") != after[1].startswith("@"):
        # Read in one of them only: there was no time for it, or the value has become too large.
        return None
    return False


def size_of(seen: Seen) -> int | None:
    """Return about how many bytes a value takes, as the session says; None when that is not known."""
    _, mark, _ = seen
    digits = mark.partition(":")[2] if mark.startswith("@") else mark[8:]
    return int(digits, 16) if _HEX.match(digits) else None


def changes(before: Mapping[str, Seen], after: Mapping[str, Seen]) -> Changes:
    """Return which variables differ. What a full report may lack is not called added or removed."""
    cut = [len(seen) >= MOST_SEEN for seen in (before, after)]
    both = {name: same(before[name], after[name]) for name in after if name in before}
    return Changes(
        added=() if cut[0] else tuple(name for name in after if name not in before),
        changed=tuple(name for name, equal in both.items() if equal is False),
        removed=() if cut[1] else tuple(name for name in before if name not in after),
        unsure=tuple(name for name, equal in both.items() if equal is None),
        unknown=f"only the first {MOST_SEEN} variables were looked at" if any(cut) else "",
    )


def compare(
    nodes: tuple[int, int],
    variables: tuple[Mapping[str, Seen] | None, Mapping[str, Seen] | None],
    files: tuple[FileDiff, ...],
    files_problem: str,
) -> StateDiff:
    """Return the difference of two nodes. Variables that are not known are None."""
    first, second = variables
    unknown = [f"files: {files_problem}"] if files_problem else []
    if first is None or second is None:
        missing = " and ".join(str(node) for node, seen in zip(nodes, variables, strict=True) if seen is None)
        unknown.append(f"variables: those of node {missing} were not looked at")
        first, second = {}, {}
    found = changes(first, second)
    if found.unknown:
        unknown.append(f"variables: {found.unknown}")
    return StateDiff(
        before=nodes[0],
        after=nodes[1],
        added={name: _words(second[name]) for name in found.added},
        changed={name: ValueChange(_words(first[name]), _words(second[name])) for name in found.changed},
        removed={name: _words(first[name]) for name in found.removed},
        unsure=found.unsure,
        files=files,
        unknown=tuple(unknown),
    )


def _words(seen: Seen) -> str:
    kind, _, text = seen
    return f"{kind} {text}".strip()


#: Names whose use makes a cell's outcome depend on more than the session's variables.
_OUTSIDE = frozenset(
    [
        *("input", "getpass", "open", "exec", "eval", "get_ipython", "subprocess", "os", "sys", "pathlib", "shutil"),
        *("time", "datetime", "random", "secrets", "uuid", "socket", "urllib", "requests", "httpx", "http", "sqlite3"),
        *("connect", "urlopen", "now", "today", "perf_counter", "monotonic", "rand", "randn", "default_rng"),
        *("read_csv", "read_parquet", "read_sql", "Thread", "Process", "Popen"),
    ]
)
#: Words by which a cell reaches variables that it does not name.
_ALL_VARIABLES = ("globals", "locals", "vars", "user_ns", "gc")
#: Types whose values read no variables of the session when they are used.
_ONLY_DATA = frozenset(
    [
        *("NoneType", "bool", "int", "float", "complex", "str", "bytes", "bytearray", "range", "slice", "module"),
        *("list", "tuple", "dict", "set", "frozenset", "ndarray", "DataFrame", "Series"),
    ]
)
#: Longer cells are not parsed: they may change everything, and are not run again unasked.
MOST_PARSED = 20_000


@lru_cache(maxsize=512)
def can_run_again(code: str) -> bool:
    """Whether a Python cell may be run again without asking: it uses no input, network, time, chance or files."""
    if len(code) > MOST_PARSED:
        return False
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


class Maker(NamedTuple):
    """A cell that can make variables again: its code, and every variable that it made."""

    code: str
    names: tuple[str, ...]


def find_maker(
    line: Sequence[StateRecord], variables_at: Callable[[int], Mapping[str, Seen]], variable: str
) -> Maker | None:
    """Return the one cell that made a variable that cannot be stored; None if it may make another value now.

    Not every change of such a variable can be seen. So no other cell may name the variable, nor one that was made with
    it and may lead to it. And no later cell may have changed what the cell reads.
    """
    made = [number for number, record in enumerate(line) if variable in record.changes.names()]
    if len(made) != 1:
        return None
    at, record = made[0], line[made[0]]
    if record.cell is None or not record.ended_well or len(record.code) > MOST_PARSED:
        return None
    names = set(record.changes.names())
    if any(other.cell is not None and _may_change(other.code, names) for other in line if other is not record):
        return None
    read = _read_by(record.code, line[at:], variables_at(record.id))
    if any(_touches(later, read) for later in line[:at]):
        return None
    return Maker(record.code, tuple(sorted(names.difference(record.changes.removed))))


def _may_change(code: str, names: Collection[str]) -> bool:
    """Whether the text of a cell has one of these names, or reaches variables without naming them."""
    if len(code) > MOST_PARSED:
        return True
    words = _words_in(code)
    return not words.isdisjoint(names) or not words.isdisjoint(_ALL_VARIABLES)


@lru_cache(maxsize=512)
def _words_in(code: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", code))


def _read_by(code: str, line: Sequence[StateRecord], seen: Mapping[str, Seen]) -> set[str]:
    """Return the words in a cell, and those in the cells of this line that made what it may call."""
    read: set[str] = set()
    pending = set(_words_in(code))
    while pending:
        read |= pending
        called = {name for name in pending if name in seen and seen[name][0] not in _ONLY_DATA}
        makers = [record for record in line if not called.isdisjoint(record.changes.names())]
        pending = {word for record in makers for word in _words_in(record.code)} - read
    return read


def _touches(record: StateRecord, names: set[str]) -> bool:
    """Whether a cell has changed one of these variables, or may have: it names one that cannot be compared."""
    if not names.isdisjoint(record.changes.names()):
        return True
    unsure = names if record.changes.unknown else names.intersection(record.changes.unsure)
    return bool(unsure) and (record.cell is None or _may_change(record.code, unsure))

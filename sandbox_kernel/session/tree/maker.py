"""Finds the cell that makes a variable again which cannot be stored. Pure.

Running a cell again makes the same value only when nothing that it reads has changed since, and when no other cell had
a hand in the value. Where that is not sure there is no such cell, and the variable is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from sandbox_kernel.session.tree.again import may_change, words_of
from sandbox_kernel.session.tree.looks import Seen

if TYPE_CHECKING:
    from sandbox_kernel.session.tree.state_record import StateRecord

#: Types whose values read no variables of the session when they are used.
_ONLY_DATA = frozenset(
    [
        *("NoneType", "bool", "int", "float", "complex", "str", "bytes", "bytearray", "range", "slice", "module"),
        *("list", "tuple", "dict", "set", "frozenset", "ndarray", "DataFrame", "Series"),
    ]
)


class Maker(NamedTuple):
    """A cell that can make variables again: its code, and every variable that it made."""

    code: str
    names: tuple[str, ...]


def find_maker(
    line: Sequence[StateRecord], look_at: Callable[[int], Mapping[str, Seen]], variable: str
) -> Maker | None:
    """Return the one cell that made a variable; None if running it again may make another value.

    A look does not see every change of what cannot be stored. So no other cell may name the variable, nor one that was
    made with it and may lead to it. And no later cell may have changed what the cell reads.

    Args:
        line: the states from the present one back to the beginning.
        look_at: returns what the variables of a state are.
        variable: its name.

    """
    made = [number for number, record in enumerate(line) if variable in record.changes.names()]
    if len(made) != 1:
        return None
    at, record = made[0], line[made[0]]
    if record.cell is None or record.cell.status != "ok":
        return None
    names = set(record.changes.names())
    if any(other.cell is not None and may_change(other.cell.code, names) for other in line if other is not record):
        return None
    read = _read_by(record.cell.code, line[at:], look_at(record.id))
    if any(_touches(later, read) for later in line[:at]):
        return None
    return Maker(record.cell.code, tuple(sorted(names.difference(record.changes.removed))))


def _read_by(code: str, line: Sequence[StateRecord], seen: Mapping[str, Seen]) -> set[str]:
    """Return the words in a cell, and those in the cells of this line that made what it may call."""
    read: set[str] = set()
    pending = words_of(code)
    while pending:
        read |= pending
        called = {name for name in pending if name in seen and seen[name][0] not in _ONLY_DATA}
        makers = [record for record in line if not called.isdisjoint(record.changes.names())]
        pending = {word for record in makers if record.cell is not None for word in words_of(record.cell.code)} - read
    return read


def _touches(record: StateRecord, names: set[str]) -> bool:
    """Whether a cell has changed one of these variables, or may have: it names one that cannot be compared."""
    if not names.isdisjoint(record.changes.names()):
        return True
    unsure = names if record.changes.unknown else names.intersection(record.changes.unsure)
    return bool(unsure) and (record.cell is None or may_change(record.cell.code, unsure))

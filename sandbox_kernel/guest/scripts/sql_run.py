"""Runs one SQL cell in a jail: ``sql_run.py CELL [DATABASE [ARG ...]]``.

Runs the statements in order and prints selected rows as tables. An error names the line where its statement begins and
ends the run with exit code 1. Besides SQLite's own functions there are ``stdin()``, ``env(name)``, ``arg(number)``,
``readfile(name)`` and ``writefile(name, content)``. Without DATABASE the database is in memory.

Standard library only, Python 3.8 or later.
"""

from __future__ import annotations

import os
import sqlite3
import sys

TYPE_CHECKING = False  # importing typing would cost more than all the rest
if TYPE_CHECKING:
    from typing import Iterator, List, Tuple

#: How many rows are read ahead to find the width of the columns.
LOOK_AHEAD = 1000


def statements(text: str) -> Iterator[Tuple[int, str]]:
    """Yield each statement with the line where it begins; a semicolon in a string or trigger does not end one."""
    line, start, part = 1, 1, ""
    for piece in text.split(";"):
        part += piece + ";"
        line += piece.count("\n")
        if sqlite3.complete_statement(part):
            yield start + leading_lines(part), part
            start, part = line, ""
    rest = part[:-1]
    if rest.strip():
        yield start + leading_lines(rest), rest


def leading_lines(part: str) -> int:
    """Return how many lines of blanks and comments come before a statement."""
    lines = 0
    for line in part.split("\n"):
        if line.strip() and not line.strip().startswith("--"):
            break
        lines += 1
    return lines


def shown(value: object) -> str:
    """Return a value as text for a table."""
    if value is None:
        return "NULL"
    return "x'{}'".format(value.hex()) if isinstance(value, bytes) else str(value)  # noqa: UP032


def print_rows(cursor: sqlite3.Cursor) -> None:
    """Print rows as a table with a head; once the widths are known, prints each row as it comes."""
    if cursor.description is None:
        return
    head = [column[0] for column in cursor.description]
    first = [[shown(value) for value in row] for row in cursor.fetchmany(LOOK_AHEAD)]
    widths = [max(len(row[i]) for row in [head, *first]) for i in range(len(head))]

    def show(cells: List[str]) -> None:
        print("  ".join(cell.ljust(width) for cell, width in zip(cells, widths)).rstrip())  # noqa: B905

    show(head)
    show(["-" * width for width in widths])
    for row in first:
        show(row)
    for values in cursor:
        show([shown(value) for value in values])


def read_file(name: str) -> bytes:
    """SQL function ``readfile``, as in SQLite's own shell: return the content of a file."""
    with open(name, "rb") as file:
        return file.read()


def write_file(name: str, content: object) -> int:
    """SQL function ``writefile``, as in SQLite's own shell: write a file, return the number of bytes."""
    with open(name, "wb") as file:
        return file.write(content if isinstance(content, bytes) else str(content).encode())


def main(argv: List[str]) -> int:
    """Run the cell as the module's docstring says; returns the exit code."""
    path, database, words = argv[1], argv[2] if len(argv) > 2 else ":memory:", argv[3:]
    connection = sqlite3.connect(database, isolation_level=None)
    connection.create_function("stdin", 0, lambda: sys.stdin.read())
    connection.create_function("env", 1, os.environ.get)
    connection.create_function("arg", 1, lambda n: words[n - 1] if 0 < n <= len(words) else None)
    connection.create_function("readfile", 1, read_file)
    connection.create_function("writefile", 2, write_file)
    with open(path, encoding="utf-8") as file:
        text = file.read()
    for line, statement in statements(text):
        try:
            print_rows(connection.execute(statement))
        except (sqlite3.Error, sqlite3.Warning) as error:
            sys.stdout.flush()
            sys.stderr.write(f"{path}:{line}: {type(error).__name__}: {error}\n")
            if database == ":memory:" and "no such table" in str(error):
                sys.stderr.write("the database is in memory and empty at each run; ")
                sys.stderr.write("to keep it in a file, add --arg data.db\n")
            return 1
    connection.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))

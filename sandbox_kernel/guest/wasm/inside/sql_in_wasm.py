"""Runs SQL in SQLite, inside CPython inside WebAssembly: ``sql_in_wasm.py SCRIPT [DATABASE]``.

Runs inside the guest, on Python 3.12. Rows are printed as ``sqlite3 -header`` does, columns separated by ``|``.
"""

import sqlite3
import sys


def statements(script: str) -> list[str]:
    """Return the statements of a script, split where SQLite finds one complete."""
    *ended, last = script.split(";")
    found, pending = [], ""
    for piece in ended:
        pending += piece
        if sqlite3.complete_statement(pending + ";"):
            found.append(pending)
            pending = ""
        else:  # the semicolon is inside a string, a comment or a trigger
            pending += ";"
    return [statement for statement in (*found, pending + last) if statement.strip()]


def show(value: object) -> str:
    """Return a value as SQLite's command line shell shows it."""
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return str(value)


def main(arguments: list[str]) -> int:
    """Run every statement; the first error ends the script with exit code 1."""
    with open(arguments[0], encoding="utf-8") as file:
        script = file.read()
    connection = sqlite3.connect(arguments[1] if len(arguments) > 1 else ":memory:", isolation_level=None)
    for statement in statements(script):
        try:
            cursor = connection.execute(statement)
            if cursor.description:
                rows = iter(cursor)
                first = next(rows, None)
                if first is not None:
                    print("|".join(column[0] for column in cursor.description))
                    print("|".join(map(show, first)))
                    for row in rows:
                        print("|".join(map(show, row)))
        except sqlite3.Error as error:
            sys.stdout.flush()
            print(f"Error: {error}", file=sys.stderr)
            return 1
    connection.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

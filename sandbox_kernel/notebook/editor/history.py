"""The cells that were run in this kernel, for ``history_request`` (tail, range, search) of the protocol."""

from __future__ import annotations

import fnmatch
import threading
from collections import deque
from dataclasses import dataclass, replace

#: Most cells that are kept; a console asks for at most 1000.
MAX_ENTRIES = 10_000
MAX_OUTPUT = 10_000
#: Number of the only session; history of earlier kernels is not kept.
SESSION = 1


@dataclass(frozen=True)
class HistoryEntry:
    """One executed cell: its number, its text, and the plain text of its value."""

    line: int
    source: str
    output: str | None = None


Row = tuple[int, int, str] | tuple[int, int, tuple[str, str | None]]


class History:
    """Cells in the order of their execution. Thread-safe, because subshells add cells too."""

    def __init__(self) -> None:
        self._entries: deque[HistoryEntry] = deque(maxlen=MAX_ENTRIES)
        self._lock = threading.Lock()

    def add(self, entry: HistoryEntry) -> None:
        """Add a cell. Its value comes from the sandbox and may be long, so only its beginning is kept."""
        if entry.output is not None and len(entry.output) > MAX_OUTPUT:
            entry = replace(entry, output=f"{entry.output[:MAX_OUTPUT]}…")
        with self._lock:
            self._entries.append(entry)

    def tail(self, n: int, *, output: bool = False) -> list[Row]:
        """The last ``n`` cells, oldest first."""
        return self._rows(self._snapshot()[-n:] if n > 0 else [], output)

    def range(self, session: int, start: int, stop: int | None, *, output: bool = False) -> list[Row]:
        """The cells of a session from ``start`` up to but not including ``stop``; session 0 is the current one."""
        if session not in (0, SESSION):
            return []
        found = [e for e in self._snapshot() if e.line >= start and (stop is None or e.line < stop)]
        return self._rows(found, output)

    def search(self, pattern: str, n: int | None, *, unique: bool = False, output: bool = False) -> list[Row]:
        """The last ``n`` cells whose text matches a glob; ``unique`` keeps the newest of equal ones."""
        found = [e for e in self._snapshot() if fnmatch.fnmatchcase(e.source, pattern)]
        if unique:
            newest = {e.source: e for e in found}
            found = sorted(newest.values(), key=lambda e: e.line)
        return self._rows(found if n is None else found[-n:] if n > 0 else [], output)

    def _snapshot(self) -> list[HistoryEntry]:
        with self._lock:
            return list(self._entries)

    @staticmethod
    def _rows(entries: list[HistoryEntry], output: bool) -> list[Row]:
        if output:
            return [(SESSION, e.line, (e.source, e.output)) for e in entries]
        return [(SESSION, e.line, e.source) for e in entries]

"""A session's cells for ``%history -g``, ``%rerun`` and ``%recall``: IPython asks its database, which is off here."""

from __future__ import annotations

import fnmatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, List, Tuple

    Entry = Tuple[int, int, Any]


class OwnHistory:
    """Answers as IPython's history manager, from the cells of this session."""

    def __init__(self, manager: Any) -> None:
        self._manager = manager

    def get_tail(
        self, n: int | None = 10, raw: bool = True, output: bool = False, include_latest: bool = False
    ) -> List[Entry]:
        """The last ``n`` cells, without the present one."""
        cells = self._cells(raw, output)
        ended = cells if include_latest else cells[:-1]
        count = 10 if n is None else n
        return ended[-count:] if count > 0 else []

    def search(
        self,
        pattern: str = "*",
        raw: bool = True,
        search_raw: bool = True,
        output: bool = False,
        n: int | None = None,
        unique: bool = False,
    ) -> List[Entry]:
        """All cells that match a pattern with wildcards, or the last ``n`` of them."""
        texts = {number: text for _, number, text in self._cells(search_raw, output=False)}
        found = [cell for cell in self._cells(raw, output) if fnmatch.fnmatchcase(texts[cell[1]], pattern)]
        if unique:
            found = sorted({texts[cell[1]]: cell for cell in found}.values(), key=lambda cell: cell[1])
        return found if n is None else found[len(found) - min(n, len(found)) :]

    def _cells(self, raw: bool, output: bool) -> List[Entry]:
        """The cells of this session; numbers that other sessions of the notebook took are left out."""
        cells = self._manager.get_range(0, 1, None, raw=raw, output=output)
        return [cell for cell in cells if (cell[2][0] if output else cell[2])]


def install(shell: Any) -> None:
    """Let the history magics of a shell find the cells of its session."""
    manager = shell.history_manager
    own = OwnHistory(manager)
    manager.get_tail, manager.search = own.get_tail, own.search

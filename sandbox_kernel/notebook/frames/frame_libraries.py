"""The libraries of a notebook's frames: each stands in the notebook once, in the first cell that uses it.

A session sends a library once, before its first frame that needs it. It is kept here, and shown before that frame. When
that cell runs again or is deleted, its old outputs are gone, so the next cell with such a frame shows it once more.
It does so at its end: the page has the library already, and a frame that came after megabytes would be drawn later.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from sandbox_kernel.notebook.render import ShowOutput
from sandbox_kernel.untrusted.frames.frame_output import FRAME, LIBRARY

#: The most characters of libraries that are kept; the oldest go first.
_MOST = 128 << 20


def cells_gone(metadata: Mapping[str, object]) -> list[str]:
    """Return the ids of the cells whose outputs are gone from the page, by the metadata of a request to run a cell."""
    deleted = metadata.get("deletedCells")
    ids = [metadata.get("cellId"), *(deleted if isinstance(deleted, list) else [])]
    return [cell for cell in ids if isinstance(cell, str) and cell]


class NotebookLibraries:
    """All libraries that the sessions of one notebook have sent. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, Mapping[str, object]] = {}
        self._places: dict[str, str] = {}
        #: Libraries that were shown, and those that a cell must show again at its end.
        self._shown: set[str] = set()
        self._owed: dict[str, list[str]] = {}

    def take(self, data: Mapping[str, object]) -> bool:
        """Keep a library; False when this display is none."""
        entry = data.get(LIBRARY)
        if not isinstance(entry, Mapping):
            return False
        with self._lock:
            self._kept[str(entry["sha256"])] = data
            while sum(len(str(kept.get("text/html", ""))) for kept in self._kept.values()) > _MOST:
                del self._kept[next(iter(self._kept))]
        return True

    def gone(self, cells: Iterable[str]) -> None:
        """Note that the outputs of these cells (ids in the notebook) are gone: they run anew or were deleted."""
        ids = set(cells)
        with self._lock:
            self._places = {name: place for name, place in self._places.items() if place.partition(" ")[0] not in ids}

    def before(self, data: Mapping[str, object], cell: str) -> list[ShowOutput]:
        """Return the libraries that must be shown before this display, because no page has had them.

        ``cell`` tells this run of a cell from others: its id in the notebook and its number.
        """
        entry = data.get(FRAME)
        if not isinstance(entry, Mapping):
            return []
        with self._lock:
            missing = [name for name in entry.get("libraries", ()) if name in self._kept and name not in self._places]
            self._places.update(dict.fromkeys(missing, cell))
            again = [name for name in missing if name in self._shown]
            if again:
                self._owed.setdefault(cell, []).extend(again)
            new = [name for name in missing if name not in self._shown]
            self._shown.update(new)
            return [ShowOutput(self._kept[name]) for name in new]

    def cleared(self, cell: str) -> None:
        """Note that a program took away what its cell has shown so far: libraries among it are shown again."""
        with self._lock:
            lost = [name for name, place in self._places.items() if place == cell]
            if lost:
                self._owed[cell] = lost

    def after(self, cell: str) -> list[ShowOutput]:
        """Return the libraries that a cell shows at its end, so that the saved notebook has them."""
        with self._lock:
            return [ShowOutput(self._kept[name]) for name in self._owed.pop(cell, ()) if name in self._kept]

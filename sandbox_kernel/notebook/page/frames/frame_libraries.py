"""The libraries of a notebook's frames: each stands in the notebook once, in the first cell that uses it.

A session sends a library once, before its first frame that needs it. It is kept here, and shown before that frame. When
the same cell runs again, its old outputs are gone, so the library is shown again.
"""

from __future__ import annotations

from collections.abc import Mapping

from sandbox_kernel.notebook.render import ShowOutput
from sandbox_kernel.untrusted.frames.frame_output import FRAME, LIBRARY

#: The most characters of libraries that are kept; the oldest go first.
_MOST = 128 << 20


class NotebookLibraries:
    """All libraries that the sessions of one notebook have sent."""

    def __init__(self) -> None:
        self._kept: dict[str, Mapping[str, object]] = {}
        self._places: dict[str, str] = {}

    def take(self, data: Mapping[str, object]) -> bool:
        """Keep a library; False when this display is none."""
        entry = data.get(LIBRARY)
        if not isinstance(entry, Mapping):
            return False
        self._kept[str(entry["sha256"])] = data
        while sum(len(str(kept.get("text/html", ""))) for kept in self._kept.values()) > _MOST:
            del self._kept[next(iter(self._kept))]
        return True

    def before(self, data: Mapping[str, object], cell: str) -> list[ShowOutput]:
        """Return the libraries that must be shown before this display.

        Args:
            data: the display.
            cell: what tells this run of a cell from others: its id in the notebook and its number.

        """
        entry = data.get(FRAME)
        if not isinstance(entry, Mapping):
            return []
        place = cell.partition(" ")[0]
        found = []
        for name in entry.get("libraries", ()):
            known = self._places.get(name)
            runs_again = bool(place) and known is not None and known != cell and known.partition(" ")[0] == place
            if name in self._kept and (known is None or runs_again):
                self._places[name] = cell
                found.append(ShowOutput(self._kept[name]))
        return found

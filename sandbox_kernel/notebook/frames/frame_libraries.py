"""The libraries of a notebook's frames: code that a page, an export or a later kernel must find again.

A session sends a library once, before its first frame that needs it. A page with our extension is told of it beside the
outputs, and a saved notebook only names it, where this machine has the code in its store. No program can choose that
code: a fresh sandbox builds it from the installed packages. Otherwise, and with ``--self-contained``, the code stands
in the notebook, once, in the first cell that uses it; when that runs again or is deleted, in the next one.
"""

from __future__ import annotations

import base64
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sandbox_kernel.errors import SandboxError
from sandbox_kernel.notebook.render import ShowOutput, told_apart
from sandbox_kernel.session.cell.displays import SessionDisplay
from sandbox_kernel.untrusted import ContentRefused
from sandbox_kernel.untrusted.frames.frame_output import (
    FRAME,
    LIBRARY,
    MAX_LIBRARIES,
    check_frame,
    library_files,
    library_output,
    packed_library,
)

if TYPE_CHECKING:
    from sandbox_kernel.backends.process import ProcessConfig

#: The most characters of libraries that are kept; the oldest go first.
_MOST = 128 << 20
#: Titles of libraries that our own guest makes from installed packages.
_MADE = re.compile(
    r"(?:plotly|vega|bokeh|itables|ipywidgets|leaflet|jquery|font-awesome|vis-network 9\.[0-9.]{1,10}"
    r"|widget [\w@-]{1,40}(?:/[\w-]{1,40})?)\Z",
    re.ASCII,
)
#: How many are made for one kernel, and how long one may take: its package is imported.
_MOST_MADE, _MAKE_S = 24, 60.0
_MAKE = "from sandbox_guest.python.interactive.convert import LIBRARIES\n_ = LIBRARIES.named({title!r})"

#: Tells a page of a library: its name, its title and its packed source.
Tell = Callable[[Mapping[str, object]], None]
#: Makes the library with this title and puts it into the store.
Make = Callable[[str], None]


def make_library(title: str, config: ProcessConfig) -> None:
    """Make a library in a sandbox of its own, and keep it in the store."""
    from sandbox_kernel.box.sandbox import Sandbox

    def keep(display: SessionDisplay) -> None:
        if isinstance(entry := display.data.get(LIBRARY), Mapping):  # its name was checked
            library_files().write(str(entry["sha256"]), base64.b64decode(str(entry["gzip"])))

    with Sandbox(backend="process", config=config) as box, box.session("python", checkpoints=0) as session:
        session.run(_MAKE.format(title=title), timeout=_MAKE_S, on_display=keep)


def cells_gone(metadata: Mapping[str, object]) -> list[str]:
    """Return the ids of the cells whose outputs are gone from the page, by the metadata of a request to run a cell."""
    deleted = metadata.get("deletedCells")
    ids = [metadata.get("cellId"), *(deleted if isinstance(deleted, list) else [])]
    return [cell for cell in ids if isinstance(cell, str) and cell]


class NotebookLibraries:
    """The libraries that the sessions of a notebook have sent. Without ``make`` the notebook holds all. Thread-safe."""

    def __init__(self, make: Make | None = None) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, Mapping[str, object]] = {}
        self._places: dict[str, str] = {}
        #: Libraries that a page has, and those that a cell must show at its end.
        self._shown: set[str] = set()
        self._owed: dict[str, list[str]] = {}
        self._make = make
        self._work: ThreadPoolExecutor | None = None
        #: By their titles: a program may send many libraries of one title, and none of them is kept in the store.
        self._making: dict[str, Future[None]] = {}

    def take(self, data: Mapping[str, object]) -> bool:
        """Keep a library; False when this display is none."""
        entry = data.get(LIBRARY)
        if not isinstance(entry, Mapping):
            return False
        name = str(entry["sha256"])
        with self._lock:
            self._kept[name] = entry
            while sum(len(str(kept["gzip"])) for kept in self._kept.values()) > _MOST:
                del self._kept[next(iter(self._kept))]
            title = str(entry["title"])
            makes = title not in self._making and len(self._making) < _MOST_MADE and _MADE.match(title)
            if self._make is not None and makes and packed_library(name) is None:
                self._work = self._work or ThreadPoolExecutor(max_workers=1, thread_name_prefix="sandbox-libraries")
                self._making[title] = self._work.submit(self._made, self._make, title)
        return True

    @staticmethod
    def _made(make: Make, title: str) -> None:
        with suppress(SandboxError, OSError):  # the notebook holds the library then
            make(title)

    def making(self) -> list[Future[None]]:
        """Return what is being made; when that is done, it is in the store or has failed."""
        return [each for each in list(self._making.values()) if not each.done()]

    def close(self) -> None:
        """Cancel what has not begun."""
        if self._work is not None:
            self._work.shutdown(wait=False, cancel_futures=True)

    def gone(self, cells: Iterable[str]) -> None:
        """Note that the outputs of these cells (ids in the notebook) are gone: they run anew or were deleted."""
        ids = set(cells)
        with self._lock:
            self._places = {name: place for name, place in self._places.items() if place.partition(" ")[0] not in ids}

    def before(self, data: Mapping[str, object], cell: str, tell: Tell | None = None) -> list[ShowOutput]:
        """Return the libraries that must be shown before this display, because no page has had them.

        ``cell``: its id and number. With ``tell`` the page is told instead, and the cell shows at its end those not in
        the store.
        """
        entry = data.get(FRAME)
        if not isinstance(entry, Mapping):
            return []
        with self._lock:
            missing = [name for name in entry.get("libraries", ()) if name in self._kept and name not in self._places]
            self._places.update(dict.fromkeys(missing, cell))
            new = [name for name in missing if name not in self._shown]
            again = missing if tell is not None else [name for name in missing if name in self._shown]
            if again:
                self._owed.setdefault(cell, []).extend(again)
            self._shown.update(new)
            found = [self._kept[name] for name in new]
        if tell is None:
            return [ShowOutput(library_output(one)) for one in found]
        for one in found:
            tell(one)
        return []

    def cleared(self, cell: str) -> None:
        """Note that a program took away what its cell has shown so far: libraries among it are shown again."""
        with self._lock:
            lost = [name for name, place in self._places.items() if place == cell]
            if lost:
                self._owed[cell] = lost

    def after(self, cell: str, *, stored: bool = False) -> list[ShowOutput]:
        """Return the libraries that a cell shows at its end; with ``stored``, those that are not in the store."""
        with self._lock:
            owed = [name for name in self._owed.pop(cell, ()) if name in self._kept]
            named = {name for name in owed if stored and packed_library(name) is not None}
            self._places = {name: place for name, place in self._places.items() if name not in named}
            return [ShowOutput(library_output(self._kept[name])) for name in owed if name not in named]


# Exports: nbconvert calls this where jupyter_nbconvert_config.json is found, and Jupyter's server does (its extension).


def with_libraries(notebook: Any, resources: Any) -> tuple[Any, Any]:
    """Put the code that the frames of a notebook need before the first of them; a preprocessor of nbconvert."""
    held = {str(entry.get("sha256")) for _, entry in _entries(notebook, LIBRARY)}
    for output, entry in list(_entries(notebook, FRAME)):
        names, libraries = entry.get("libraries"), ""
        for name in names[:MAX_LIBRARIES] if isinstance(names, list) else ():
            if str(name) not in held and (packed := packed_library(name)) is not None:
                held.add(name)
                made = library_output({"sha256": name, "title": "", "gzip": base64.b64encode(packed).decode()})
                libraries += str(made["text/html"])
        with suppress(ContentRefused):
            drawn = check_frame(dict(entry)).bundle() if "widget" not in entry else dict(output.data)
            shown = drawn if "widget" in entry else told_apart(drawn)
            html = shown.get("text/html", "")
            output.data["text/html"] = libraries + ("".join(html) if isinstance(html, list) else str(html))
    return notebook, resources


def _entries(notebook: Any, mime: str) -> Iterator[tuple[Any, Any]]:
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            entry = output.get("data", {}).get(mime)
            if hasattr(entry, "get"):
                yield output, entry

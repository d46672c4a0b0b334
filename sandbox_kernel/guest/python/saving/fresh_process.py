"""Says which modules a fresh process of this sandbox can import; others are only in this session's memory."""

from __future__ import annotations

import os
import pickle
import sys
from importlib import machinery

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List

#: How a session begins: this module is imported before the first cell.
_MODULES, _PATH, _FINDERS = frozenset(sys.modules), tuple(sys.path), tuple(sys.meta_path)
#: Places whose files go with the session.
_OF_THIS_SESSION = ("/tmp/", "/dev/", "/proc/", "/run/")
_OURS = __name__.partition(".")[0]


def added_places(folder: str) -> List[str]:
    """Return what cells added to ``sys.path``, where another session has it too: not what lies in memory only.

    Files of the work folder, which ``folder`` is, are saved.
    """
    root = os.path.realpath(folder) + "/"
    found = []
    for place in sys.path:
        if isinstance(place, str) and place not in _PATH:
            real = os.path.realpath(place) + "/"
            if real.startswith(root) or not real.startswith(_OF_THIS_SESSION):
                found.append(place)
    return found


def places_in_front(places: List[str]) -> List[str]:
    """Return those of the added places that are searched before the packages of the environment."""
    own = next((number for number, place in enumerate(sys.path) if place and place in _PATH), len(sys.path))
    return [place for place in places if sys.path.index(place) < own]


def add_places(places: List[str], front: List[str]) -> None:
    """Add places to ``sys.path``, once each; those of ``front`` are searched first."""
    new = [place for place in places if place not in sys.path]
    sys.path[:0] = [place for place in new if place in front]
    sys.path += [place for place in new if place not in front]


def working_directory(folder: str) -> str:
    """Return the working directory below the work folder, ``folder``, as cells have set it; empty for every other."""
    try:
        found = os.path.relpath(os.getcwd(), folder)
    except (OSError, ValueError):  # it was removed
        return ""
    return "" if found == "." or found.split("/")[0] == ".." else found


def go_into(directory: str) -> None:
    """Go to a directory below the work folder, where this process is; one that is not there is ignored."""
    if directory:
        try:
            os.chdir(directory)
        except (OSError, ValueError):
            pass


class FreshProcess:
    """What a process that loads a file can import. ``folder`` is the work folder."""

    def __init__(self, folder: str) -> None:
        self.places = added_places(folder)
        # An empty place means the working directory, which is the work folder when a session begins.
        self._path = [place or folder for place in (*_PATH, *self.places)]
        self._known: Dict[str, bool] = {}

    def has(self, module: str) -> bool:
        """Whether a module can be imported there. Its package is looked for where a new session looks."""
        top = module.partition(".")[0]
        if top not in self._known:
            self._known[top] = top != "__main__" and (top == _OURS or top in _MODULES or self._finds(top))
        return self._known[top] and (module == top or module in _MODULES or self._part(module))

    @staticmethod
    def _part(module: str) -> bool:
        """Whether a module below a package came from somewhere: one that was made by hand has no loader.

        Native code makes its parts itself, each time it is imported: they have no loader either.
        """
        found = sys.modules.get(module)
        if found is None or _was_loaded(found):
            return True
        while found is not None and not _was_loaded(found):
            module, _, part = module.rpartition(".")
            inner, found = found, sys.modules.get(module)
            if getattr(found, part, None) is not inner:
                return False
        return _is_native(found)

    def _finds(self, top: str) -> bool:
        before = list(sys.path)
        sys.path[:] = self._path
        try:
            return any(finder.find_spec(top, None) is not None for finder in _FINDERS)
        except Exception:
            return False
        finally:
            sys.path[:] = before


def _was_loaded(module: Any) -> bool:
    return getattr(module, "__spec__", None) is not None or hasattr(module, "__file__")


def _is_native(module: Any) -> bool:
    loader = getattr(getattr(module, "__spec__", None), "loader", None)
    return loader is machinery.BuiltinImporter or isinstance(loader, machinery.ExtensionFileLoader)


class TrialUnpickler(pickle.Unpickler):
    """Makes a value again from what a fresh process has. Nothing is taken from this session's ``__main__``."""

    def __init__(self, fresh: FreshProcess, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._fresh = fresh

    def find_class(self, module: str, name: str) -> Any:
        """See ``pickle``."""
        if not self._fresh.has(module):
            raise pickle.PicklingError(f"{name} is only in the memory of this session, in its module {module}")
        return super().find_class(module, name)

"""Says which modules a fresh process of this sandbox can import; others are only in this session's memory."""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
from importlib import machinery

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List

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
    """Return the working directory as cells have set it, as seen from the work folder, ``folder``, if it is below that.

    Empty when it is the work folder, or was removed.
    """
    try:
        place = os.getcwd()
        found = os.path.relpath(place, folder)
    except (OSError, ValueError):
        return ""
    if found == ".":
        return ""
    return place if found.split("/")[0] == ".." else found


@contextlib.contextmanager
def places_of(told: Dict[str, Any], lost: Dict[str, str]) -> Iterator[None]:
    """Let modules be found where the saved session found them; afterwards ``sys.path`` is what it was there.

    A working directory that is not there is noted in ``lost``: the session stays in the work folder.
    """
    folder = os.getcwd()
    add_places(told["places"], told["front"])
    if told["directory"]:
        try:
            os.chdir(told["directory"])
        except (OSError, ValueError):
            lost["os.getcwd"] = f"{told['directory']} is not there; the working directory is the work folder"
    # Modules may have been imported before the directory was changed.
    sys.path.insert(1, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
        sys.path[:] = [place for place in sys.path if place not in told["gone"]]


class FreshProcess:
    """What a process that loads a file can import. ``folder`` is the work folder."""

    def __init__(self, folder: str) -> None:
        self.places = added_places(folder)
        self.directory = working_directory(folder)
        self._root = os.path.realpath(folder) + "/"
        # An empty place means the working directory, which is the work folder when a session begins.
        here = [os.path.join(folder, self.directory), folder] if self.directory else [folder]
        self._path = [*places_in_front(self.places), *here, *filter(None, _PATH), *self.places]
        self._known: Dict[str, bool] = {}

    def told(self) -> Dict[str, Any]:
        """Return for ``places_of`` where modules were found."""
        gone = [place for place in _PATH if place and place not in sys.path]
        front = places_in_front(self.places)
        return {"places": self.places, "front": front, "gone": gone, "directory": self.directory}

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
            found = next(filter(None, (finder.find_spec(top, None) for finder in _FINDERS)), None)
        except Exception:
            return False
        finally:
            sys.path[:] = before
        return found is not None and self._is_same(getattr(sys.modules.get(top), "__file__", None), found.origin)

    def _is_same(self, file: Any, found: Any) -> bool:
        """Whether a module that is found again is the one that was imported; asked if one is of the work folder."""
        if not isinstance(file, str) or not isinstance(found, str):
            return True
        one, other = os.path.realpath(file), os.path.realpath(found)
        return one == other or not (one.startswith(self._root) or other.startswith(self._root))


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

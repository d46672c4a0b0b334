"""Writes the variables of a Python session to a file, and reads them back. Both happen only inside a jail.

The file: one line of JSON (versions, names, the sizes of the parts), the pickles of all variables that can be stored,
then their large buffers. One pickler writes them one after the other, so that what they share is shared again, and one
that cannot be made again does not take the others along. What cells define is stored by what it is made of
(``by_value.py``) and gets the session's own variables as globals.
"""

from __future__ import annotations

import io
import json
import pickle
import signal
import sys
import time
import types

from . import by_value, patches, settings
from .array_views import SharedArrays, altered
from .broken_values import MAX_REASON, PatientUnpickler
from .fresh_process import FreshProcess, TrialUnpickler, places_of
from .registrations import UNCHANGED, Virtual

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO, Callable, Dict, List, Tuple

#: Python versions read each other's code objects wrongly, so the file fits one version only.
_PYTHON = f"{sys.implementation.name} {sys.version_info[0]}.{sys.version_info[1]}"
VERSION = f"{_PYTHON}, form 3"
#: A file of this form has variables only.
_FORMER = f"{_PYTHON}, form 2"
MAX_HEADER, PAGE = 16 << 20, 1 << 16
#: References taken before the first cell, because a cell may replace these functions.
_dumps, _loads = json.dumps, json.loads


class StatePickler(pickle.Pickler):
    """Pickles what cells define by what it is made of, modules by name, and memory that arrays share once.

    With ``tries``, arrays are only noted and pickled as usual.
    """

    def __init__(self, fresh: FreshProcess, arrays: SharedArrays, *args: Any, tries: bool, **options: Any) -> None:
        super().__init__(*args, **options)
        self._fresh, self._arrays, self._tries = fresh, arrays, tries
        #: The variable that is pickled, and what will be different in it.
        self.variable, self.altered = "", ""
        self._tensors: Dict[Tuple[str, int], Any] = {}

    def reducer_override(self, value: Any) -> Any:
        """See ``pickle``."""
        if isinstance(value, types.ModuleType):
            if value.__name__ != "__main__" and not self._fresh.has(value.__name__):
                raise pickle.PicklingError(f"a new session cannot import the module {value.__name__}")
            return by_value.import_again, (value.__name__,)
        self.altered = self.altered or altered(value)
        if type(value).__name__ == "TypedStorage" and type(value).__module__ == "torch.storage":
            # torch makes a new object for each tensor that uses this memory; all of them refer to the first one.
            place = str(value.device), value.data_ptr()
            first = self._tensors.setdefault(place, value)
            return NotImplemented if first is value or not place[1] else (_same, (first,))
        found = by_value.reduced(value)
        if found is not NotImplemented:
            return found
        if self._tries:
            self._arrays.note(value, self.variable)
            return NotImplemented
        return self._arrays.reduced(value)


def _same(value: Any) -> Any:
    return value


#: How long all variables may take, and the part of the rest of it that each may take.
ALL_S, PART = 90.0, 0.2


class SaveTrial:
    """How variables are tried before they are stored.

    Attributes:
        made_again: whether each one is made again as a trial, which takes its memory a second time.
        lost: variables that are not tried, each with the reason.
        arrays: the arrays that were seen in those that were tried.
        altered: what will be different in those that can be stored, by name.

    """

    def __init__(self, *, made_again: bool = True, lost: Dict[str, str] | None = None, place: Any = None) -> None:
        self.made_again, self.lost = made_again, dict(lost or {})
        self.arrays = SharedArrays()
        self.altered: Dict[str, str] = {}
        self._place, self._rest_s = place, ALL_S

    def begin(self, name: str) -> None:
        """Note which variable is next, for a process that finds this one ended; empty after the last one."""
        if self._place is not None:
            data = name.encode("utf-8", "replace")[: len(self._place) - 2]
            self._place[: 2 + len(data)] = len(data).to_bytes(2, "little") + data

    def at(self) -> str:
        """Return the variable that was noted last; empty without one."""
        size = int.from_bytes(self._place[:2], "little")
        return bytes(self._place[2 : 2 + size]).decode("utf-8", "replace")

    def why_not(self, name: str, value: Any, fresh: FreshProcess) -> str:
        """Return why a value cannot be stored; empty when it can. One that takes too long cannot."""
        if not self.made_again:
            return self._try(name, value, fresh)
        began, allowed = time.monotonic(), self._rest_s * PART
        signal.setitimer(signal.ITIMER_REAL, allowed, 0.5)
        try:
            return self._try(name, value, fresh)
        except _TooSlow:
            return f"{type(value).__name__}: it took too long"
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._rest_s -= min(time.monotonic() - began, allowed)

    def _try(self, name: str, value: Any, fresh: FreshProcess) -> str:
        """Pickle a value, and make it again from that if asked: as a fresh process would, without this ``__main__``."""
        out, buffers = io.BytesIO(), []  # type: ignore[var-annotated]
        pickler = StatePickler(fresh, self.arrays, out, protocol=5, buffer_callback=buffers.append, tries=True)
        pickler.variable = name
        try:
            pickler.dump(value)
            if self.made_again:
                out.seek(0)
                TrialUnpickler(fresh, out, buffers=buffers).load()
        except _TooSlow:
            raise
        except BaseException as error:
            return _reason(value, error)
        if pickler.altered:
            self.altered[name] = pickler.altered
        return ""


class _TooSlow(BaseException):
    """Raised in the code of a variable that takes too long to be stored."""


def watch_time() -> None:
    """Let the timer of ``SaveTrial`` end the code of a variable; called in the fork that saves."""

    def end(_number: int, _frame: Any) -> None:
        raise _TooSlow("it took too long")

    signal.signal(signal.SIGALRM, end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])


def _reason(value: Any, error: BaseException) -> str:
    return f"{type(value).__name__}: {type(error).__name__}: {str(error)[:MAX_REASON]}"


def beside(
    cells: List[str], folder: str, fresh: FreshProcess, lost: Dict[str, str]
) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """Return what is stored before and after the variables: settings, and attributes of libraries that cells set.

    What cannot be read is noted in ``lost``.
    """
    found: Tuple[Dict[str, Any], Dict[str, Any]] = ({}, {})
    Virtual.likely = Virtual.likely or any("register" in text for text in cells)
    for held, group in zip(found, (settings.EARLY, settings.LATE)):  # noqa: B905 - Python 3.8
        for name in group:
            try:
                value = settings.changed(name)
            except Exception as error:
                lost.setdefault(name, f"it could not be read: {type(error).__name__}: {str(error)[:MAX_REASON]}")
                continue
            if value is not UNCHANGED:
                held[name] = value
    attributes = _found(lambda: patches.patches(cells, folder), "sys.modules", lost)
    for name, (module, _, _) in attributes.items():
        if not fresh.has(module):
            lost.setdefault(name, f"a new session cannot import the module {module}")
    lost.update(_found(lambda: {**settings.lost_hooks(), **patches.registered(cells)}, "IPython", lost))
    found[1].update({name: value for name, value in attributes.items() if name not in settings.ALL})
    return found


def _found(look: Callable[[], Dict[str, Any]], name: str, lost: Dict[str, str]) -> Dict[str, Any]:
    """Return what was found by looking at objects of the session; what keeps us from that is noted under a name."""
    try:
        return look()
    except Exception as error:
        lost[name] = f"what cells changed there could not be found: {type(error).__name__}: {str(error)[:MAX_REASON]}"
        return {}


def save(
    variables: Dict[str, Any], into: BinaryIO, *, folder: str, trial: SaveTrial, cells: List[str]
) -> Tuple[int, Dict[str, Any]]:
    """Write all variables that can be stored, when all of them are pickled.

    ``folder`` is the work folder: modules that lie there can be imported again. ``cells`` are the texts of the cells.
    Returns how many bytes were written, and the report: ``stored`` (names), ``lost`` and ``changed`` (reasons by name).
    """
    fresh, lost = FreshProcess(folder), trial.lost
    before, after = beside(cells, folder, fresh, lost)
    everything = {**before, **variables, **after}
    for name, value in everything.items():
        if name not in lost:
            trial.begin(name)
            reason = trial.why_not(name, value, fresh)
            if reason:
                lost[name] = reason
    while True:
        stored = {name: value for name, value in everything.items() if name not in lost}
        out, buffers = io.BytesIO(), []  # type: ignore[var-annotated]
        pickler = StatePickler(fresh, trial.arrays, out, protocol=5, buffer_callback=buffers.append, tries=False)
        name = ""
        try:
            for name in stored:
                trial.begin(name)
                pickler.dump(stored[name])
            break
        except BaseException as error:
            # The second pickling failed though the first did not. What was written refers to it: begin anew.
            lost[name] = _reason(stored[name], error)
    trial.begin("")
    parts: List[Any] = [out.getbuffer(), *(buffer.raw() for buffer in buffers)]
    files = _found(lambda: patches.changed_files(folder), "sys.modules", lost)
    changed = {**files, **trial.arrays.apart(), **trial.altered}
    changed = {name: why for name, why in changed.items() if name not in lost and name not in settings.ALL}
    report = {"stored": [name for name in variables if name in stored], "lost": lost, "changed": changed}
    sizes = [part.nbytes for part in parts]
    header = {"version": VERSION, "parts": sizes, "order": list(stored), **fresh.told(), **report}
    line = _dumps(header).encode() + b"\n"
    size = len(line) + sum(sizes)
    # The file that the host keeps consists of whole pages.
    rest = -size % PAGE
    into.write(line)
    into.writelines(parts)
    into.write(bytes(rest))
    return size + rest, report


def load(source: BinaryIO, space: Dict[str, Any]) -> Tuple[Dict[str, Any], Callable[[], Dict[str, str]]]:
    """Read the variables into the session; ``ValueError`` for another version.

    Returns the report, and a function that sets the settings again and returns those that cannot be: cells that run
    after this may change them.
    """
    header = _loads(source.readline(MAX_HEADER))
    if header["version"] == _FORMER:
        header = {"order": header["stored"], "changed": {}, "gone": [], **header}
    elif header["version"] != VERSION:
        raise ValueError(f"it was saved by {header['version']}, and this is {VERSION}")
    # The buffers must be writable: arrays are made of them.
    parts = [bytearray(size) for size in header["parts"]]
    for part in parts:
        if source.readinto(part) != len(part):  # type: ignore[attr-defined]
            raise ValueError("it ends too early")
    lost = dict(header["lost"])
    with places_of(header, lost):
        values, failed = _made(header["order"], bytes(parts[0]), parts[1:], space)
    lost.update(failed)
    own = {name: value for name, value in values.items() if name in header["stored"]}
    others = {name: value for name, value in values.items() if name not in own}
    space.update(own)

    def set_again() -> Dict[str, str]:
        tried = {
            name: settings.write(name, value) if name in settings.ALL else patches.set_again(value)
            for name, value in others.items()
        }
        return {name: why for name, why in tried.items() if why}

    lost.update(set_again())
    changed = {name: why for name, why in header["changed"].items() if name not in lost}
    return {"stored": list(own), "lost": lost, "changed": changed}, set_again


def _made(
    names: List[str], data: bytes, buffers: List[Any], space: Dict[str, Any]
) -> Tuple[Dict[str, Any], Dict[str, str]]:
    """Return what a file holds by name, and why the rest of it cannot be made. Early settings are set on the way."""
    values: Dict[str, Any] = {}
    try:
        unpickler = pickle.Unpickler(io.BytesIO(data), buffers=buffers)  # noqa: S301 - inside the jail
        for name in names:
            values[name] = unpickler.load()
            if name in settings.EARLY:
                settings.write(name, values[name])
    except Exception:
        return _load_what_can_be(names, data, buffers, space)
    return values, {}


def _load_what_can_be(
    names: List[str], data: bytes, buffers: List[Any], space: Dict[str, Any]
) -> Tuple[Dict[str, Any], Dict[str, str]]:
    """Return the variables that can be made, and why the others cannot."""
    unpickler = PatientUnpickler(io.BytesIO(data), buffers=buffers)
    values: Dict[str, Any] = {}
    lost: Dict[str, str] = {}
    for name in names:
        values[name] = unpickler.next_variable()
        if unpickler.reason:
            lost[name] = f"it could not be made again: {unpickler.reason}"
    for name, value in values.items():
        if name not in lost and unpickler.holds_broken(value, space):
            lost[name] = "it refers to a value that could not be made again"
    return {name: value for name, value in values.items() if name not in lost}, lost

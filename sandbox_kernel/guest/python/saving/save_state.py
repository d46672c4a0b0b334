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

from . import by_value
from .array_views import SharedArrays
from .broken_values import MAX_REASON, PatientUnpickler
from .fresh_process import FreshProcess, TrialUnpickler, add_places, go_into, places_in_front, working_directory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO, Dict, List, Tuple

#: Python versions read each other's code objects wrongly, so the file fits one version only.
VERSION = f"{sys.implementation.name} {sys.version_info[0]}.{sys.version_info[1]}, form 2"
MAX_HEADER, PAGE = 16 << 20, 1 << 16


class StatePickler(pickle.Pickler):
    """Pickles what cells define by what it is made of, modules by name, and memory that arrays share once.

    With ``tries``, arrays are only noted and pickled as usual.
    """

    def __init__(self, fresh: FreshProcess, arrays: SharedArrays, *args: Any, tries: bool, **options: Any) -> None:
        super().__init__(*args, **options)
        self._fresh, self._arrays, self._tries = fresh, arrays, tries
        self._tensors: Dict[Tuple[str, int], Any] = {}

    def reducer_override(self, value: Any) -> Any:
        """See ``pickle``."""
        if isinstance(value, types.ModuleType):
            if value.__name__ != "__main__" and not self._fresh.has(value.__name__):
                raise pickle.PicklingError(f"a new session cannot import the module {value.__name__}")
            return by_value.import_again, (value.__name__,)
        if type(value).__name__ == "TypedStorage" and type(value).__module__ == "torch.storage":
            # torch makes a new object for each tensor that uses this memory; all of them refer to the first one.
            place = str(value.device), value.data_ptr()
            first = self._tensors.setdefault(place, value)
            return NotImplemented if first is value or not place[1] else (_same, (first,))
        found = by_value.reduced(value)
        if found is not NotImplemented:
            return found
        if self._tries:
            self._arrays.note(value)
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

    """

    def __init__(self, *, made_again: bool = True, lost: Dict[str, str] | None = None, place: Any = None) -> None:
        self.made_again, self.lost = made_again, dict(lost or {})
        self.arrays = SharedArrays()
        self._place, self._rest_s = place, ALL_S

    def begin(self, number: int) -> None:
        """Note which variable is next, for a process that finds this one ended."""
        if self._place is not None:
            self._place[:8] = number.to_bytes(8, "little")

    def at(self, variables: Dict[str, Any]) -> str:
        """Return the variable that was noted last; empty without one."""
        number = int.from_bytes(self._place[:8], "little")
        return list(variables)[number - 1] if 0 < number <= len(variables) else ""

    def why_not(self, value: Any, fresh: FreshProcess) -> str:
        """Return why a value cannot be stored; empty when it can. One that takes too long cannot."""
        if not self.made_again:
            return why_not(value, fresh, self.arrays, made_again=False)
        began, allowed = time.monotonic(), self._rest_s * PART
        signal.setitimer(signal.ITIMER_REAL, allowed, 0.5)
        try:
            return why_not(value, fresh, self.arrays)
        except _TooSlow:
            return f"{type(value).__name__}: it took too long"
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._rest_s -= min(time.monotonic() - began, allowed)


class _TooSlow(BaseException):
    """Raised in the code of a variable that takes too long to be stored."""


def watch_time() -> None:
    """Let the timer of ``SaveTrial`` end the code of a variable; called in the fork that saves."""

    def end(_number: int, _frame: Any) -> None:
        raise _TooSlow("it took too long")

    signal.signal(signal.SIGALRM, end)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])


def why_not(value: Any, fresh: FreshProcess, arrays: SharedArrays, *, made_again: bool = True) -> str:
    """Return why a value cannot be stored; empty when it can: it was pickled, and made again from that if asked.

    It is made again as a fresh process would: nothing of this session's ``__main__`` or of its own modules helps.
    ``arrays`` notes the arrays in it.
    """
    out, buffers = io.BytesIO(), []  # type: ignore[var-annotated]
    try:
        StatePickler(fresh, arrays, out, protocol=5, buffer_callback=buffers.append, tries=True).dump(value)
        if made_again:
            out.seek(0)
            TrialUnpickler(fresh, out, buffers=buffers).load()
    except _TooSlow:
        raise
    except BaseException as error:
        return _reason(value, error)
    return ""


def _reason(value: Any, error: BaseException) -> str:
    return f"{type(value).__name__}: {type(error).__name__}: {str(error)[:MAX_REASON]}"


def save(variables: Dict[str, Any], into: BinaryIO, *, folder: str, trial: SaveTrial) -> Tuple[int, Dict[str, Any]]:
    """Write all variables that can be stored, when all of them are pickled.

    ``folder`` is the work folder: modules that lie there can be imported again. Returns how many bytes were written,
    and the report: ``stored`` (names) and ``lost`` (reasons by name).
    """
    fresh, lost = FreshProcess(folder), trial.lost
    numbers = {name: number for number, name in enumerate(variables, 1)}
    for name, value in variables.items():
        if name not in lost:
            trial.begin(numbers[name])
            reason = trial.why_not(value, fresh)
            if reason:
                lost[name] = reason
    while True:
        stored = {name: value for name, value in variables.items() if name not in lost}
        out, buffers = io.BytesIO(), []  # type: ignore[var-annotated]
        pickler = StatePickler(fresh, trial.arrays, out, protocol=5, buffer_callback=buffers.append, tries=False)
        name = ""
        try:
            for name in stored:
                trial.begin(numbers[name])
                pickler.dump(stored[name])
            break
        except BaseException as error:
            # The second pickling failed though the first did not. What was written refers to it: begin anew.
            lost[name] = _reason(stored[name], error)
    trial.begin(0)
    parts: List[Any] = [out.getbuffer(), *(buffer.raw() for buffer in buffers)]
    report = {"stored": list(stored), "lost": lost}
    sizes = [part.nbytes for part in parts]
    places = {"places": fresh.places, "front": places_in_front(fresh.places), "directory": working_directory(folder)}
    header = json.dumps({"version": VERSION, "parts": sizes, **places, **report}).encode() + b"\n"
    size = len(header) + sum(sizes)
    # The file that the host keeps consists of whole pages.
    rest = -size % PAGE
    into.write(header)
    into.writelines(parts)
    into.write(bytes(rest))
    return size + rest, report


def load(source: BinaryIO, space: Dict[str, Any]) -> Dict[str, Any]:
    """Read the variables into the session. Returns ``stored`` and ``lost``; ``ValueError`` for another version."""
    header = json.loads(source.readline(MAX_HEADER))
    if header["version"] != VERSION:
        raise ValueError(f"it was saved by {header['version']}, and this is {VERSION}")
    # The buffers must be writable: arrays are made of them.
    parts = [bytearray(size) for size in header["parts"]]
    for part in parts:
        if source.readinto(part) != len(part):  # type: ignore[attr-defined]
            raise ValueError("it ends too early")
    add_places(header.get("places", []), header.get("front", []))
    names, lost = header["stored"], dict(header["lost"])
    data = bytes(parts[0])
    try:
        unpickler = pickle.Unpickler(io.BytesIO(data), buffers=parts[1:])  # noqa: S301 - inside the jail
        values = {name: unpickler.load() for name in names}
    except Exception:
        values, failed = _load_what_can_be(names, data, parts[1:], space)
        lost.update(failed)
    space.update(values)
    # Modules of the work folder were found from there.
    go_into(header.get("directory", ""))
    return {"stored": list(values), "lost": lost}


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

"""Writes the variables of a Python session for a file of the host, by cloudpickle. ``loading.py`` reads them.

The file: one line of JSON (versions, names, the sizes of the parts), the pickles of all variables that can be stored,
then their large buffers. One pickler writes them one after the other, so that what they share is shared again, and one
that cannot be made again does not take the others along. Functions of cells get the session's own variables as globals.

Saving runs code of the variables (``__reduce__``), so it happens in a fork where that is possible: the session stays as
it is, whatever that code does. What is saved goes to the host through a pipe, when all of it is ready, so it takes no
room in the work folder.
"""

from __future__ import annotations

import builtins
import collections
import functools
import io
import json
import mmap
import os
import pickle
import select
import signal
import sys
import time
import types

from .process_state import can_import, only_there, random_state, surroundings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, ClassVar, Dict, List

#: Python versions read each other's code objects wrongly, so the file fits one version only.
VERSION = f"{sys.implementation.name} {sys.version_info[0]}.{sys.version_info[1]}, form 4"
MAX_HEADER, PAGE, MAX_REASON = 16 << 20, 1 << 16, 200
#: How long the fork may take; how long all variables may take, and the part of the rest of it that each may take.
SAVE_S, ALL_S, PART = 100.0, 90.0, 0.2
#: How deep objects may lie in each other in a fork that saves.
DEEP = 20_000
#: References taken before the first cell, because a cell may replace these functions.
_fork, _exit, _dumps, _loads = os.fork, os._exit, json.dumps, json.loads

#: Names, without their underscores, that IPython gives to what was typed and shown.
_OF_IPYTHON = ("i", "ii", "iii", "ih", "oh", "dh", "exit_code")
#: Names that every module has, or IPython's.
_OF_MODULES = (
    *("__name__", "__doc__", "__package__", "__loader__", "__spec__", "__builtin__", "__builtins__", "__file__"),
    *("__cached__", "__session__", "__warningregistry__"),
)


def private_variables(space: Dict[str, Any], hidden: Dict[str, Any]) -> Dict[str, Any]:
    """Return the variables whose names begin with ``_``, which functions of cells may use; not those of IPython."""
    nothing = object()
    found = {}
    for name, value in space.items():
        bare = name.lstrip("_") if type(name) is str else ""
        if not bare or name[0] != "_" or name in _OF_MODULES or value is hidden.get(name, nothing):
            continue
        numbered = bare.isdigit() or (bare[0] == "i" and bare[1:].isdigit())
        if not numbered and bare not in _OF_IPYTHON:
            found[name] = value
    return found


def cloudpickle(source: str) -> Any:
    """Return cloudpickle, whose text the host sends: the user's Python may have none, or another version.

    Files name this module, so it has a name that no package of the user has.
    """
    name = f"{__name__.partition('.')[0]}.cloudpickle"
    if name not in sys.modules:
        made = types.ModuleType(name)
        made.__dict__["__builtins__"] = builtins
        sys.modules[name] = made
        exec(compile(source, "cloudpickle.py", "exec"), made.__dict__)
    return sys.modules[name]


class _Globals:
    """Stands for the variables of a module, which a function of a cell gets as its globals."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __reduce__(self) -> Any:
        return globals_of, (self._module,)


def globals_of(module: str) -> Dict[str, Any]:
    """Return the variables of a module."""
    return vars(import_again(module))


def import_again(name: str) -> types.ModuleType:
    """Import a module."""
    __import__(name)
    return sys.modules[name]


def make_cached(function: Any, size: int | None, attributes: Dict[str, Any]) -> Any:
    """Wrap a function by ``functools.lru_cache``, with nothing in its cache."""
    made = functools.lru_cache(size)(function)
    made.__dict__.update(attributes)
    return made


def make_cached_property(function: Any, name: str) -> Any:
    """Make a ``functools.cached_property``; before Python 3.12 it has a lock, which cannot be stored."""
    made: Any = functools.cached_property(function)
    made.attrname = name
    return made


def _reduce_cached(value: Any) -> Any:
    if value.__module__ != "__main__":
        return value.__reduce__()
    attributes = {name: part for name, part in vars(value).items() if name not in ("__wrapped__", "cache_parameters")}
    return make_cached, (value.__wrapped__, value.cache_info().maxsize, attributes)


def _reduce_cached_property(value: Any) -> Any:
    return make_cached_property, (value.func, value.attrname)


def _refuse_file(value: Any) -> Any:
    # cloudpickle would read the whole file, which may have no end, and make a copy of it.
    raise pickle.PicklingError("it is an open file")


def pickler_class(ours: Any, folder: str) -> Any:
    """Return the class of the pickler; ``ours`` is cloudpickle, ``folder`` the work folder."""
    own = {
        functools._lru_cache_wrapper: _reduce_cached,
        functools.cached_property: _reduce_cached_property,
        io.TextIOWrapper: _refuse_file,
    }

    class StatePickler(ours.Pickler):  # type: ignore[misc]
        """Pickles what cells define by what it is made of, and modules by name."""

        dispatch_table: ClassVar[Any] = collections.ChainMap(own, ours.Pickler.dispatch_table)

        def reducer_override(self, value: Any) -> Any:
            """See ``pickle``."""
            if issubclass(type(value), types.ModuleType):
                if value.__name__ != "__main__" and not can_import(value.__name__, folder):
                    raise pickle.PicklingError(f"a new session cannot import the module {value.__name__}")
                return import_again, (value.__name__,)
            return super().reducer_override(value)

        def _dynamic_function_reduce(self, function: types.FunctionType) -> Any:
            # cloudpickle would copy the globals that a function uses; here it shares them with later cells.
            home = str(function.__globals__.get("__name__", ""))
            if vars(sys.modules.get(home, types)) is not function.__globals__:
                return super()._dynamic_function_reduce(function)
            code, _, *others = self._function_getnewargs(function)
            attributes, slots = ours._function_getstate(function)
            slots["__globals__"] = {}
            made = (code, _Globals(home), *others)
            return ours._make_function, made, (attributes, slots), None, None, ours._function_setstate

    return StatePickler


class TrialUnpickler(pickle.Unpickler):
    """Makes a value again from what a fresh process has. Nothing is taken from this session's ``__main__``."""

    folder = ""

    def find_class(self, module: str, name: str) -> Any:
        """See ``pickle``."""
        if module == "__main__" or not can_import(module, self.folder):
            raise pickle.PicklingError(f"{name} is only in the memory of this session, in its module {module}")
        return super().find_class(module, name)


class TooSlow(BaseException):
    """Raised in the code of a variable that takes too long to be stored."""


class SaveTrial:
    """Tries variables before they are stored.

    Attributes:
        made_again: whether each one is made again as a trial, which takes its memory a second time.
        lost: variables that are not tried, each with the reason.

    """

    def __init__(self, order: Dict[str, Any], *, made_again: bool = True, place: Any = None) -> None:
        self.made_again, self.lost = made_again, dict(order["lost"])
        self.folder: str = order["folder"]
        self._ours = cloudpickle(order["cloudpickle"])
        self._pickler = pickler_class(self._ours, self.folder)
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

    def pickler(self, into: io.BytesIO, buffers: List[Any]) -> Any:
        """Return a pickler that writes to a file, and appends large buffers to a list."""
        return self._pickler(into, protocol=5, buffer_callback=buffers.append)

    def why_not(self, value: Any) -> str:
        """Return why a value cannot be stored; empty when it can. One that takes too long cannot."""
        began, allowed = time.monotonic(), self._rest_s * PART
        if self.made_again:
            signal.setitimer(signal.ITIMER_REAL, allowed, 0.5)
        try:
            self._try(value)
        except TooSlow:
            return f"{type(value).__name__}: it took too long"
        except BaseException as error:
            return reason(value, error)
        finally:
            if self.made_again:
                signal.setitimer(signal.ITIMER_REAL, 0)
                self._rest_s -= min(time.monotonic() - began, allowed)
        return ""

    def _try(self, value: Any) -> None:
        """Pickle a value, and make it again from that if asked: as a fresh process would, without this ``__main__``."""
        out, buffers = io.BytesIO(), []  # type: ignore[var-annotated]
        self.pickler(out, buffers).dump(value)
        if self.made_again:
            out.seek(0)
            unpickler = TrialUnpickler(out, buffers=buffers)
            unpickler.folder = self.folder
            # cloudpickle would take classes that it knows in this process, and fill them a second time.
            self._ours._DYNAMIC_CLASS_TRACKER_BY_ID.clear()
            try:
                unpickler.load()
            finally:
                self._ours._DYNAMIC_CLASS_TRACKER_BY_ID.clear()


def reason(value: Any, error: BaseException) -> str:
    """Return why a value cannot be stored."""
    return f"{type(value).__name__}: {type(error).__name__}: {str(error)[:MAX_REASON]}"


def save(
    variables: Dict[str, Any],
    into: int,
    text: str,
    interrupted: Callable[[], bool],
    *,
    cells: List[str],
    apart: bool = True,
) -> Dict[str, Any]:
    """Write the variables to a descriptor, which is closed afterwards.

    Args:
        variables: the variables.
        into: the descriptor.
        text: JSON: ``folder``, the work folder; ``lost``: variables that are not tried, each with the reason;
            ``rights``: variables of the environment that are rights of this session, which are not saved; and
            ``cloudpickle``, its program.
        interrupted: whether the host has asked to give up.
        cells: the texts of the cells.
        apart: whether a fork writes them; it cannot read the memory of an accelerator.

    Returns:
        How much was written, and the report; or ``problem``, why nothing was; or ``ended``: the variable that ended the
        fork, with the reason, before anything was written. The others can be saved without it.

    """
    order = _loads(text)
    # The fork says there at which variable it is.
    place = mmap.mmap(-1, mmap.PAGESIZE) if apart else None
    trial, numbers = SaveTrial(order, made_again=apart, place=place), random_state()

    def write() -> Dict[str, Any]:
        try:
            with open(into, "wb", closefd=False) as file:
                process = surroundings(trial.folder, order["rights"])
                return _write(variables, file, trial, {"process": process}, numbers, cells)
        except BaseException as error:
            return {"problem": f"{type(error).__name__}: {str(error)[:200]}", "full": False}

    try:
        found = _in_fork(write, interrupted) if apart else write()
    except OSError as error:
        found = {"problem": str(error), "full": False}
    finally:
        os.close(into)
    if found is not None:
        return found
    name = trial.at()
    if not name:
        return {"problem": "the process that saved was ended, for its memory or its time", "full": False}
    kind = f"{type(variables[name]).__name__}: " if name in variables else ""
    return {"ended": {name: f"{kind}the process that stored it ended, for its memory or by its code"}}


def _write(
    variables: Dict[str, Any],
    into: Any,
    trial: SaveTrial,
    header: Dict[str, Any],
    numbers: Dict[str, Any],
    cells: List[str],
) -> Dict[str, Any]:
    """Write all variables that can be stored, when all of them are pickled, and the state of random numbers."""
    lost = trial.lost
    for name, value in variables.items():
        if name not in lost:
            trial.begin(name)
            why = trial.why_not(value)
            if why:
                lost[name] = why
    while True:
        stored = {name: value for name, value in variables.items() if name not in lost}
        out, buffers = io.BytesIO(), []  # type: ignore[var-annotated]
        pickler, name = trial.pickler(out, buffers), ""
        try:
            for name in stored:
                trial.begin(name)
                pickler.dump(stored[name])
            break
        except BaseException as error:
            # The second pickling failed though the first did not. What was written refers to it: begin anew.
            lost[name] = reason(stored[name], error)
    trial.begin("")
    pickler.dump(numbers)
    changed = {name: why for name, why in changed_values(stored).items() if name in stored}
    lost.update(only_there(cells))
    report = {"stored": list(stored), "lost": lost, "changed": changed}
    parts: List[Any] = [out.getbuffer(), *(buffer.raw() for buffer in buffers)]
    sizes = [part.nbytes for part in parts]
    line = _dumps({"version": VERSION, "parts": sizes, **header, **report}).encode() + b"\n"
    size = len(line) + sum(sizes)
    # The file that the host keeps consists of whole pages.
    rest = -size % PAGE
    into.write(line)
    into.writelines(parts)
    into.write(bytes(rest))
    return {"size": size + rest, "elapsed_s": 0.0, "report": report}


def changed_values(variables: Dict[str, Any]) -> Dict[str, str]:
    """Return the variables that are not the same in a file, each with the difference: arrays with memory of others."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return {}
    base: Any = numpy.ndarray.base.__get__
    arrays = {name: value for name, value in variables.items() if issubclass(type(value), numpy.ndarray)}
    found, owners = {}, {}  # type: ignore[var-annotated]
    for name, array in arrays.items():
        owner = array
        while issubclass(type(base(owner)), numpy.ndarray):
            owner = base(owner)
        owners.setdefault(id(owner), []).append(name)
        if issubclass(type(array), numpy.memmap):
            found[name] = "it is in memory and no longer mapped to its file"
    for names in owners.values():
        for name in names:
            others = [other for other in names if arrays[other] is not arrays[name]]
            if others:
                found[name] = f"it no longer shares memory with {', '.join(others)}"
    return found


def _in_fork(write: Callable[[], Dict[str, Any]], interrupted: Callable[[], bool]) -> Dict[str, Any] | None:
    """Return the answer of a fork; None when it ended without one, or took too long."""
    deadline = time.monotonic() + SAVE_S
    reader, writer = os.pipe()
    pid = _fork()
    if pid == 0:
        try:
            os.close(reader)
            nowhere = os.open("/dev/null", os.O_RDWR)
            for stream in (1, 2):
                os.dup2(nowhere, stream)
            signal.signal(signal.SIGALRM, _too_slow)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
            # A long chain of objects is pickled deep down. If the stack does not last, this process alone ends.
            sys.setrecursionlimit(max(sys.getrecursionlimit(), DEEP))
            answer = _dumps(write()).encode() + b"\n"
            while answer:
                answer = answer[os.write(writer, answer) :]
        finally:
            _exit(0)
    os.close(writer)
    data, ended = b"", False
    try:
        # A child of the fork may hold the pipe open, so its end is no sign that the fork has ended.
        while not data.endswith(b"\n") and time.monotonic() < deadline:
            if not select.select([reader], [], [], 0.2)[0]:
                if interrupted():
                    return {"interrupted": True}
                if ended:
                    break
                ended = os.waitpid(pid, os.WNOHANG)[0] == pid
            elif not (part := os.read(reader, 1 << 16)):
                break
            else:
                data += part
    finally:
        os.close(reader)
        if not ended:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
    try:
        found: Dict[str, Any] = _loads(data)
    except ValueError:
        return None
    return found


def _too_slow(_number: int, _frame: object) -> None:
    raise TooSlow("it took too long")

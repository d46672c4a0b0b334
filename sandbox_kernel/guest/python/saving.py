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
import os
import pickle
import re
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

#: Private names that are not saved: those of IPython, for what was typed and shown, and those that every module has.
_NOT_SAVED = re.compile(
    r"_*|_+(?:i{1,3}|[iod]h|i?\d+|exit_code)"
    r"|__(?:name|doc|package|loader|spec|builtins?|file|cached|session|warningregistry)__"
)


def private_variables(space: Dict[str, Any], hidden: Dict[str, Any]) -> Dict[str, Any]:
    """Return the variables whose names begin with ``_``, which functions of cells may use; not those of IPython."""
    nothing = object()
    names = [name for name in space if type(name) is str and name[:1] == "_" and not _NOT_SAVED.fullmatch(name)]
    return {name: space[name] for name in names if space[name] is not hidden.get(name, nothing)}


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


def _refuse_file(value: Any) -> Any:
    # cloudpickle would read the whole file, which may have no end, and make a copy of it.
    raise pickle.PicklingError("it is an open file")


def pickler_class(ours: Any, folder: str) -> Any:
    """Return the class of the pickler; ``ours`` is cloudpickle, ``folder`` the work folder."""
    own = {
        functools._lru_cache_wrapper: _reduce_cached,
        functools.cached_property: lambda value: (make_cached_property, (value.func, value.attrname)),
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


def _too_slow(_number: int, _frame: object) -> None:
    raise TooSlow("it took too long")


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

    ``text`` is JSON: ``folder``, the work folder; ``lost``, variables that are not tried, each with the reason;
    ``rights``, variables of the environment that stay with this session; and ``cloudpickle``, its program. ``apart``: a
    fork writes them; it cannot read the memory of an accelerator.

    Returns how much was written, and the report; or ``problem``, why nothing was; or ``ended``: the variable that ended
    the fork, with the reason, before anything was written. The others can be saved without it.
    """
    order, numbers = _loads(text), random_state()

    def write(begin: Callable[[str], None]) -> Dict[str, Any]:
        try:
            with open(into, "wb", closefd=False) as file:
                return _Saving(order, begin, made_again=apart).write(variables, file, numbers, cells)
        except BaseException as error:
            return {"problem": f"{type(error).__name__}: {str(error)[:MAX_REASON]}"}

    try:
        found = _in_fork(write, interrupted) if apart else write(lambda name: None)
    except OSError as error:
        found = {"problem": str(error)}
    finally:
        os.close(into)
    if isinstance(found, dict):
        return found
    if not found:
        return {"problem": "the process that saved was ended, for its memory or its time"}
    kind = f"{type(variables[found]).__name__}: " if found in variables else ""
    return {"ended": {found: f"{kind}the process that stored it ended, for its memory or by its code"}}


class _Saving:
    """Tries variables and writes those that can be stored.

    ``begin`` is called with the name of each before it is pickled, and with an empty one after the last.
    ``made_again``: this is a fork, where each is made again as a trial, for a limited time. That takes its memory a
    second time.
    """

    def __init__(self, order: Dict[str, Any], begin: Callable[[str], None], *, made_again: bool) -> None:
        self._order, self._begin, self._made_again = order, begin, made_again
        self._ours = cloudpickle(order["cloudpickle"])
        self._pickler = pickler_class(self._ours, order["folder"])
        self._rest_s = ALL_S

    def write(self, variables: Dict[str, Any], into: Any, numbers: Dict[str, Any], cells: List[str]) -> Dict[str, Any]:
        """Write all variables that can be stored, when all of them are pickled, and the state of random numbers."""
        lost = dict(self._order["lost"])
        process = surroundings(self._order["folder"], self._order["rights"])  # before code of the variables runs
        for name, value in variables.items():
            if name not in lost:
                self._begin(name)
                why = self._why_not(value)
                if why:
                    lost[name] = why
        while True:
            stored = {name: value for name, value in variables.items() if name not in lost}
            out, buffers = io.BytesIO(), []  # type: ignore[var-annotated]
            pickler, name = self._pickler(out, protocol=5, buffer_callback=buffers.append), ""
            try:
                for name in stored:
                    self._begin(name)
                    pickler.dump(stored[name])
                break
            except BaseException as error:
                # The second pickling failed though the first did not. What was written refers to it: begin anew.
                lost[name] = reason(stored[name], error)
        self._begin("")
        pickler.dump(numbers)
        lost.update(only_there(cells))
        report = {"stored": list(stored), "lost": lost, "changed": changed_values(stored)}
        parts: List[Any] = [out.getbuffer(), *(buffer.raw() for buffer in buffers)]
        sizes = [part.nbytes for part in parts]
        line = _dumps({"version": VERSION, "parts": sizes, "process": process, **report}).encode() + b"\n"
        size = len(line) + sum(sizes)
        # The file that the host keeps consists of whole pages.
        rest = -size % PAGE
        into.write(line)
        into.writelines(parts)
        into.write(bytes(rest))
        return {"size": size + rest, "report": report}

    def _why_not(self, value: Any) -> str:
        """Return why a value cannot be stored; empty when it can. One that takes too long cannot."""
        began, allowed = time.monotonic(), self._rest_s * PART
        if self._made_again:
            signal.setitimer(signal.ITIMER_REAL, allowed, 0.5)
        try:
            out, buffers = io.BytesIO(), []  # type: ignore[var-annotated]
            self._pickler(out, protocol=5, buffer_callback=buffers.append).dump(value)
            if self._made_again:
                out.seek(0)
                unpickler = TrialUnpickler(out, buffers=buffers)
                unpickler.folder = self._order["folder"]
                # cloudpickle would take classes that it knows in this process, and fill them a second time.
                self._ours._DYNAMIC_CLASS_TRACKER_BY_ID.clear()
                unpickler.load()
        except TooSlow:
            return f"{type(value).__name__}: it took too long"
        except BaseException as error:
            return reason(value, error)
        finally:
            if self._made_again:
                signal.setitimer(signal.ITIMER_REAL, 0)
                self._rest_s -= min(time.monotonic() - began, allowed)
                self._ours._DYNAMIC_CLASS_TRACKER_BY_ID.clear()
        return ""


def reason(value: Any, error: BaseException) -> str:
    """Return why a value cannot be stored."""
    return f"{type(value).__name__}: {type(error).__name__}: {str(error)[:MAX_REASON]}"


def changed_values(variables: Dict[str, Any]) -> Dict[str, str]:
    """Return the variables that are not the same in a file, each with the difference: arrays with memory of others."""
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return {}
    base: Any = numpy.ndarray.base.__get__
    found, owners = {}, {}  # type: ignore[var-annotated]
    for name, array in variables.items():
        owner = array
        while issubclass(type(owner), numpy.ndarray):
            array, owner = owner, base(owner)
        if issubclass(type(variables[name]), numpy.ndarray):
            owners.setdefault(id(array), []).append(name)
        if issubclass(type(variables[name]), numpy.memmap):
            found[name] = "it is in memory and no longer mapped to its file"
    for names in owners.values():
        for name in names:
            others = [other for other in names if variables[other] is not variables[name]]
            if others:
                found[name] = f"it no longer shares memory with {', '.join(others)}"
    return found


def _in_fork(
    write: Callable[[Callable[[str], None]], Dict[str, Any]], interrupted: Callable[[], bool]
) -> Dict[str, Any] | str:
    """Return the answer of a fork; the variable that it was at when it ended without one, or took too long."""
    deadline = time.monotonic() + SAVE_S
    reader, writer = os.pipe()

    def tell(said: object) -> None:
        data = _dumps(said).encode() + b"\n"
        while data:
            data = data[os.write(writer, data) :]

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
            tell(write(tell))
        finally:
            _exit(0)
    os.close(writer)
    data, last, ended = b"", b'""', False
    try:
        # A child of the fork may hold the pipe open, so its end is no sign that the fork has ended.
        while not last.startswith(b"{") and time.monotonic() < deadline:
            if not select.select([reader], [], [], 0.2)[0]:
                if interrupted():
                    return {"interrupted": True}
                if ended:
                    break
                ended = os.waitpid(pid, os.WNOHANG)[0] == pid
            elif not (part := os.read(reader, 1 << 16)):
                break
            else:
                *lines, data = (data + part).split(b"\n")
                last = lines[-1] if lines else last
    finally:
        os.close(reader)
        if not ended:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
    try:
        found: Dict[str, Any] | str = _loads(last)
    except ValueError:
        return ""
    return found

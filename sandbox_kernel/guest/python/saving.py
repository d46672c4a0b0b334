"""Writes the variables of a Python session for a file of the host, by cloudpickle, and makes them again.

The file: one line of JSON (versions, names, the sizes of the parts), the pickles of all variables that can be stored,
then their large buffers. One pickler writes them one after the other, so that what they share is shared again, and one
that cannot be made again does not take the others along. Functions of cells get the session's own variables as globals.

Saving runs code of the variables (``__reduce__``), so it happens in a fork where that is possible: the session stays as
it is, whatever that code does. What is saved goes to the host through a pipe, when all of it is ready, so it takes no
room in the work folder. When a variable cannot be made again, the others come whole, and it has its reason.
"""

from __future__ import annotations

import builtins
import collections
import functools
import gc
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

from .process_state import can_import, only_there, random_state, set_random_state, set_surroundings, surroundings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, ClassVar, Dict, List, Tuple


#: Python versions read each other's code objects wrongly, so the file fits one version only.
VERSION = f"{sys.implementation.name} {sys.version_info[0]}.{sys.version_info[1]}, form 5"
MAX_HEADER, PAGE, MAX_REASON = 16 << 20, 1 << 16, 200
#: How long the fork may take; how long all variables may take, and the part of the rest of it that each may take.
SAVE_S, ALL_S, PART = 100.0, 90.0, 0.2
#: How deep objects may lie in each other in a fork that saves.
DEEP = 20_000
#: References taken before the first cell, because a cell may replace these functions.
_fork, _exit, _dumps, _loads = os.fork, os._exit, json.dumps, json.loads

#: Private names that are not saved: those of IPython, for what was typed and shown, and those that every module has.
NOT_SAVED = re.compile(
    r"_*|_+(?:i{1,3}|[iod]h|i?\d+|exit_code)"
    r"|__(?:name|doc|package|loader|spec|builtins?|file|cached|session|warningregistry)__"
)


def cloudpickle(source: str) -> Any:
    """Return the cloudpickle that the host sends, under a name that no package has, because files hold it."""
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
        return vars, (sys.modules[self._module],)


def import_again(name: str) -> types.ModuleType:
    """Import a module."""
    __import__(name)
    return sys.modules[name]


def make_cached(function: Any, size: int | None, attributes: Dict[str, Any]) -> Any:
    """Wrap a function by ``functools.lru_cache``, with nothing in its cache."""
    made = functools.lru_cache(size)(function)
    made.__dict__.update(attributes)
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
        # Before Python 3.12 it has a lock, which cannot be stored.
        functools.cached_property: lambda value: (type(value), (value.func,), {"attrname": value.attrname}),
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


def load(space: Dict[str, Any], source: int, text: str, before: Dict[str, Any]) -> Dict[str, Any]:
    """Read variables from a descriptor into the session, close it, and run the cells of what the file lacks.

    ``text`` is JSON: ``recipes``, the code that makes each variable that could not be stored, and ``cloudpickle``, its
    program. Variables that the session has (``before``) and the saved one had not are removed. Returns the report, or
    the problem.
    """
    order = _loads(text)
    try:
        cloudpickle(order["cloudpickle"])
        with open(source, "rb") as file:
            file.seek(0)
            report, numbers = _read(file, space)
    except Exception as error:
        return {"problem": f"{type(error).__name__}: {str(error)[:200]}"}
    for name in before:
        if name not in report["stored"] and name not in report["lost"]:
            space.pop(name, None)
    remade: List[str] = []
    cells: Dict[str, List[str]] = {}
    for name, code in order["recipes"].items():
        cells.setdefault(code, []).append(name)
    for code, names in cells.items():
        remade += _run_again(space, code, names, report["lost"])
    # Only now: imports and cells may have taken random numbers.
    set_random_state(numbers, report["lost"])
    report["recomputed"] = [name for name in remade if name in report["lost"]]
    report["lost"] = {name: why for name, why in report["lost"].items() if name not in remade}
    return {"report": report}


def _read(source: Any, space: Dict[str, Any]) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    """Read the variables into the session; ``ValueError`` for another version. Returns report and random numbers."""
    header = _loads(source.readline(MAX_HEADER))
    if header["version"] != VERSION:
        raise ValueError(f"it was saved by {header['version']}, and this is {VERSION}; save it again from its notebook")
    # The buffers must be writable: arrays are made of them.
    parts = [bytearray(size) for size in header["parts"]]
    for part in parts:
        if source.readinto(part) != len(part):
            raise ValueError("it ends too early")
    lost, folder = dict(header["lost"]), os.getcwd()
    set_surroundings(header["process"], lost)
    # Modules may have been imported before the directory was changed.
    sys.path.insert(1, folder)
    try:
        values, failed = _made([*header["stored"], ""], bytes(parts[0]), parts[1:], space)
    finally:
        sys.path.remove(folder)
    numbers = values.pop("", {})
    lost.update({name: why for name, why in failed.items() if name})
    space.update(values)
    changed = {name: why for name, why in header["changed"].items() if name not in lost}
    return {"stored": list(values), "lost": lost, "changed": changed}, numbers


def _made(
    names: List[str], data: bytes, buffers: List[Any], space: Dict[str, Any]
) -> Tuple[Dict[str, Any], Dict[str, str]]:
    """Return what a file holds by name, and why the rest of it cannot be made."""
    values: Dict[str, Any] = {}
    lost: Dict[str, str] = {}
    try:
        plain = pickle.Unpickler(io.BytesIO(data), buffers=buffers)  # noqa: S301 - inside the jail
        return {name: plain.load() for name in names}, lost
    except Exception:
        patient = PatientUnpickler(io.BytesIO(data), buffers=buffers)
    for name in names:
        patient.reason = ""
        values[name] = patient.load()
        if patient.reason:
            lost[name] = f"it could not be made again: {patient.reason}"
    for name, value in values.items():
        if name not in lost and patient.holds_broken(value, space):
            lost[name] = "it refers to a value that could not be made again"
    return {name: value for name, value in values.items() if name not in lost}, lost


def _run_again(space: Dict[str, Any], code: str, names: List[str], lost: Dict[str, str]) -> List[str]:
    """Run a cell again and take over the variables ``names``; all others are what they were. Returns what it made.

    It runs once for all of them, because they may refer to each other, and with the session's variables as globals,
    because functions and generators of the cell keep them.
    """
    before = dict(space)
    made: Dict[str, Any] = {}
    why = "its cell was run again and did not make it"
    try:
        exec(compile(code, "<cell of a saved session>", "exec"), space)
        made = {name: space[name] for name in names if name in space}
    except Exception as error:
        why = f"its cell was run again and failed: {type(error).__name__}: {str(error)[:100]}"
    for name in [name for name in space if name not in before]:
        del space[name]
    space.update(before)
    space.update(made)
    lost.update({name: why for name in names if name in lost and name not in made})
    return list(made)


#: Steps of ``pickle`` whose object stays on the stack when they fail, and steps that leave nothing there.
_OBJECT = (pickle.BUILD, pickle.APPEND, pickle.APPENDS, pickle.SETITEM, pickle.SETITEMS, pickle.ADDITEMS)
_NOTHING = (pickle.NEWOBJ, pickle.NEWOBJ_EX, pickle.FROZENSET)
#: What gives a function or a class of a cell its content.
_FILLS = ("_function_setstate", "_class_setstate")


class Broken:
    """Stands where a value could not be made."""


class PatientUnpickler(pickle._Unpickler):
    """Goes on after a step that failed. ``reason`` is why the first one of the present variable failed."""

    stack: List[Any]
    dispatch: ClassVar[Dict[int, Callable[[Any], None]]] = dict(pickle._Unpickler.dispatch)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.reason = ""
        self.broken: List[Any] = []  # they are kept, so that no other object gets their addresses

    def failed(self, error: Exception, half: Any = None) -> Broken:
        """Note a failure and the object that it left unfinished. Returns what stands in the place of the result."""
        self.reason = self.reason or f"{type(error).__name__}: {str(error)[:MAX_REASON]}"
        mark = Broken()
        self.broken += [mark, half]
        return mark

    def find_class(self, module: str, name: str) -> Any:
        """See ``pickle``."""
        try:
            return super().find_class(module, name)
        except Exception as error:
            return self.failed(error)

    def load_reduce(self) -> None:
        """See ``pickle``."""
        args = self.stack.pop()
        function = self.stack[-1]
        try:
            self.stack[-1] = function(*args)
        except Exception as error:
            fills = getattr(function, "__name__", "") in _FILLS
            self.stack[-1] = self.failed(error, args[0] if fills else None)

    dispatch[pickle.REDUCE[0]] = load_reduce

    def holds_broken(self, value: Any, space: Dict[str, Any]) -> bool:
        """Whether a value refers to something that could not be made. The session's variables are no part of it."""
        broken = {id(each) for each in self.broken if each is not None}
        seen, todo = {id(space)}, [value]
        while todo:
            one = todo.pop()
            if id(one) in broken:
                return True
            if id(one) in seen or isinstance(one, (types.ModuleType, str, bytes, int, float)):
                continue
            if isinstance(one, type) and one.__module__ != "__main__":
                continue
            seen.add(id(one))
            if not (isinstance(one, dict) and "__builtins__" in one):  # the globals of a module
                todo += gc.get_referents(one)
        return False


def _patient(step: Callable[[Any], None], leaves_object: bool) -> Callable[[Any], None]:
    def run(self: Any) -> None:
        try:
            step(self)
        except Exception as error:
            mark = self.failed(error, self.stack[-1] if leaves_object else None)
            if not leaves_object:
                self.append(mark)

    return run


for _code in (*_OBJECT, *_NOTHING):
    PatientUnpickler.dispatch[_code[0]] = _patient(PatientUnpickler.dispatch[_code[0]], _code in _OBJECT)

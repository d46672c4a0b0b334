"""Makes the variables of a saved Python session again (``saving.py``). This happens only inside a jail.

When one cannot be made, the others come whole, and it has its reason. What no file could hold is made again by its
cell, if the host sends that.
"""

from __future__ import annotations

import gc
import io
import json
import os
import pickle
import sys
import types

from .process_state import set_random_state, set_surroundings
from .saving import MAX_HEADER, MAX_REASON, VERSION, cloudpickle

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, ClassVar, Dict, List, Tuple

#: A reference taken before the first cell, because a cell may replace it.
_loads = json.loads


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

"""Makes variables again of which some cannot be made: the others come whole, and each of those has its reason."""

from __future__ import annotations

import gc
import pickle
import types

from . import by_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, ClassVar, Dict, List

MAX_REASON = 200
#: What a failed step leaves on the stack of ``pickle``: its object, a place for its result, or nothing.
_OBJECT, _PLACE, _NOTHING = range(3)
_STEPS = {
    pickle.BUILD: _OBJECT,
    pickle.APPEND: _OBJECT,
    pickle.APPENDS: _OBJECT,
    pickle.SETITEM: _OBJECT,
    pickle.SETITEMS: _OBJECT,
    pickle.ADDITEMS: _OBJECT,
    pickle.NEWOBJ: _NOTHING,
    pickle.NEWOBJ_EX: _NOTHING,
    pickle.FROZENSET: _NOTHING,
}


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

    def next_variable(self) -> Any:
        """Make the next variable of the file."""
        self.reason = ""
        return self.load()

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
            # What gives a value its content (``by_value.fill_class`` and others) has left it half made.
            fills = getattr(function, "__module__", "") == by_value.__name__ and function.__name__.startswith("fill_")
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


def _patient(step: Callable[[Any], None], leaves: int) -> Callable[[Any], None]:
    def run(self: Any) -> None:
        try:
            step(self)
        except Exception as error:
            mark = self.failed(error, self.stack[-1] if leaves == _OBJECT else None)
            if leaves == _NOTHING:
                self.append(mark)

    return run


for _code, _leaves in _STEPS.items():
    PatientUnpickler.dispatch[_code[0]] = _patient(PatientUnpickler.dispatch[_code[0]], _leaves)

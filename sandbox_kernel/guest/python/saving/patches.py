"""Attributes of modules and classes of libraries that cells have set: ``json.dumps = mine``.

Found in three ways: what holds a function or a class of a cell, what the text of a cell assigns, and the data of
modules that lie in the work folder. A change that a function of a library makes for a cell is not found.

Objects are asked for their type, and not for their class: ``__class__`` may be code of a program.
"""

from __future__ import annotations

import ast
import gc
import os
import sys
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Set, Tuple

    Place = Tuple[str, str]

_MAIN = "__main__"
_OURS = __name__.partition(".")[0]
#: How many of the last cells are read, and how many attributes are stored.
MOST_CELLS, MOST = 2000, 500
#: How many functions and classes of cells are traced to what holds them.
_MOST_TRACED = 64


class Known:
    """What the cells of a loaded session had set, whose text is no longer there."""

    places: Set[Place]


Known.places = set()


def patches(cells: List[str], folder: str) -> Dict[str, Any]:
    """Return module, path and value of each attribute that cells have set, by its dotted name.

    ``folder`` is the work folder.
    """
    found: Dict[str, Any] = {}
    for module, path in sorted({*Known.places, *_held_by_libraries(), *_assigned(cells), *_of_own_modules(folder)}):
        holder = _holder(module, path)
        name = path.rpartition(".")[2]
        if holder is not None and name in vars(holder) and len(found) < MOST:
            found[f"{module}.{path}"] = (module, path, vars(holder)[name])
    return found


def set_again(value: Any) -> str:
    """Set an attribute again. Returns why that is not possible; empty when it was."""
    module, path, what = value
    try:
        __import__(module)
        holder = _holder(module, path)
        setattr(holder, path.rpartition(".")[2], what)
    except Exception as error:
        return f"it could not be set again: {type(error).__name__}: {str(error)[:200]}"
    Known.places.add((module, path))
    return ""


def _holder(module: str, path: str) -> Any:
    """Return the module or class that has an attribute; None when it is not there."""
    found: Any = sys.modules.get(module)
    for name in path.split(".")[:-1]:
        found = vars(found).get(name) if issubclass(type(found), (types.ModuleType, type)) else None
    return found if issubclass(type(found), (types.ModuleType, type)) else None


#: Types of attributes that hold nothing of a cell: most of them are of these.
_PLAIN = (str, int, float, bool, bytes, type(None), tuple, frozenset, dict, list, set, types.ModuleType)
_OF_C = (
    types.BuiltinFunctionType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
)
_NOTHING_OF_CELLS = frozenset((*_PLAIN, *_OF_C))
_module_of: Any = type.__dict__["__module__"].__get__


def _is_of_cells(value: Any, space: Dict[str, Any]) -> bool:
    """Whether a value is a function or a class of a cell; ``space`` are the session's variables."""
    if type(value) is types.FunctionType:
        return value.__globals__ is space
    return issubclass(type(value), type) and _module_of(value) == _MAIN


def _held_by_libraries() -> Iterator[Place]:
    """Find functions and classes of cells in modules of libraries and in their classes. This looks at everything."""
    space = vars(sys.modules[_MAIN])
    for name, module in _libraries() if _may_be_held(space) else ():
        for attribute, value in list(vars(module).items()):
            if type(value) in _NOTHING_OF_CELLS:
                continue
            if type(value) is types.FunctionType:
                if value.__globals__ is space:
                    yield name, attribute
            elif issubclass(type(value), type):
                home = _module_of(value)
                if home == _MAIN:
                    yield name, attribute
                elif home == name:
                    for inner, held in list(vars(value).items()):
                        if type(held) is types.FunctionType:
                            if held.__globals__ is space:
                                yield name, f"{attribute}.{inner}"
                        elif type(held) not in _NOTHING_OF_CELLS and any(
                            _is_of_cells(part, space) for part in (held, *_parts(held))
                        ):
                            yield name, f"{attribute}.{inner}"


def _may_be_held(space: Dict[str, Any]) -> bool:
    """Whether anything but the cells themselves holds a function or a class of theirs. Takes less time than looking."""
    functions = [each for each in gc.get_referrers(space) if type(each) is types.FunctionType]
    classes = [each for each in space.values() if issubclass(type(each), type) and _module_of(each) == _MAIN]
    if len(functions) + len(classes) > _MOST_TRACED:
        return True
    own = {id(space), *(id(part) for each in classes for part in gc.get_referents(each) if type(part) is dict)}
    holders = gc.get_referrers(*functions, *classes) if functions or classes else []
    passing = (list, tuple, types.FrameType, types.CellType, types.FunctionType, types.MethodType)
    return any(
        id(each) not in own
        and type(each) not in passing
        and not (issubclass(type(each), type) and _module_of(each) == _MAIN)
        and getattr(type(each), "__module__", "") != _MAIN
        for each in holders
    )


def _parts(held: Any) -> List[Any]:
    """Return what an attribute of a class consists of: a property, a static method, an object of a library."""
    if issubclass(type(held), property):
        return [held.fget, held.fset, held.fdel]
    if issubclass(type(held), (staticmethod, classmethod)):
        return [held.__func__]
    if issubclass(type(held), type):
        return []
    own = getattr(type(held), "__dictoffset__", 0) and getattr(held, "__dict__", None)
    return list(own.values()) if type(own) is dict else []


def _libraries() -> Iterator[Tuple[str, types.ModuleType]]:
    for name, module in list(sys.modules.items()):
        known = type(name) is str and issubclass(type(module), types.ModuleType) and module.__name__ == name
        if known and name.partition(".")[0] not in (_MAIN, _OURS):
            yield name, module


def _parsed(cells: List[str], *words: str) -> Iterator[Any]:
    """Return every part of the cells that contain one of these words."""
    for text in cells[-MOST_CELLS:]:
        if any(word in text for word in words):
            try:
                yield from ast.walk(ast.parse(text))
            except (SyntaxError, ValueError, RecursionError):
                continue


def _assigned(cells: List[str]) -> Iterator[Place]:
    """Find ``a.b.c = …`` and ``setattr(a.b, "c", …)`` in the text of cells, where ``a.b`` is of a library."""
    space = vars(sys.modules[_MAIN])
    for part in _parsed(cells, ".", "setattr"):
        targets: List[Tuple[Any, Any]] = []
        if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store):
            targets = [(part.value, part.attr)]
        elif isinstance(part, ast.Call) and getattr(part.func, "id", "") == "setattr" and len(part.args) == 3:
            targets = [(part.args[0], getattr(part.args[1], "value", None))]
        for holder, name in targets:
            place = _place(_value_of(holder, space), name)
            if place is not None:
                yield place


#: Functions with which libraries are given something that cannot be read from them.
_REGISTER = (
    ("atexit", "register"),
    ("codecs", "register"),
    ("codecs", "register_error"),
    ("mimetypes", "add_type"),
    ("os", "register_at_fork"),
    ("sys", "addaudithook"),
    ("weakref", "finalize"),
)


def registered(cells: List[str]) -> Dict[str, str]:
    """Return the functions that cells name with which something is registered that no file can hold."""
    space = vars(sys.modules[_MAIN])
    known = {
        id(getattr(sys.modules[module], name)): f"{module}.{name}"
        for module, name in _REGISTER
        if module in sys.modules
    }
    found = {}
    for part in _parsed(cells, "register", "finalize", "add_type", "addaudithook"):
        if isinstance(part, (ast.Name, ast.Attribute)):
            name = known.get(id(_value_of(part, space)))
            if name is not None:
                found[name] = "what cells registered with it is only in the session that was saved"
    return found


def _value_of(node: Any, space: Dict[str, Any]) -> Any:
    """Return the module or class that an expression of names and dots means; None for everything else."""
    if isinstance(node, ast.Name):
        return space.get(node.id)
    if isinstance(node, ast.Attribute):
        holder = _value_of(node.value, space)
        return vars(holder).get(node.attr) if issubclass(type(holder), (types.ModuleType, type)) else None
    return None


def _place(holder: Any, name: Any) -> Place | None:
    if not isinstance(name, str) or not name.isidentifier() or name[:2] == "__":
        return None
    if issubclass(type(holder), types.ModuleType):
        home = str(holder.__name__)
        return (home, name) if home != _MAIN and sys.modules.get(home) is holder else None
    if issubclass(type(holder), type) and holder.__module__ != _MAIN and "<" not in holder.__qualname__:
        return holder.__module__, f"{holder.__qualname__}.{name}"
    return None


def own_modules(folder: str) -> Dict[str, types.ModuleType]:
    """Return the imported modules whose files lie in the work folder, without packages that were installed there."""
    roots = (f"{folder}/", f"{os.path.realpath(folder)}/")
    found = {}
    for name, module in _libraries():
        file = vars(module).get("__file__")
        if isinstance(file, str) and file.startswith(roots) and "/packages/" not in file:
            found[name] = module
    return found


def _of_own_modules(folder: str) -> Iterator[Place]:
    code = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type)
    for name, module in own_modules(folder).items():
        for attribute, value in list(vars(module).items()):
            if attribute[:2] != "__" and not issubclass(type(value), code):
                yield name, attribute


def changed_files(folder: str) -> Dict[str, str]:
    """Return the modules of the work folder whose files hold other functions than those that were imported."""
    found = {}
    for name, module in own_modules(folder).items():
        try:
            with open(str(module.__file__), "rb") as file:
                now = set(_codes(compile(file.read(), str(module.__file__), "exec", dont_inherit=True)))
        except (OSError, SyntaxError, ValueError):
            continue
        parts = [*vars(module).values()]
        parts += [
            each
            for kind in parts
            if issubclass(type(kind), type) and kind.__module__ == name
            for each in vars(kind).values()
        ]
        functions = [each for each in parts if type(each) is types.FunctionType and each.__module__ == name]
        if any(each.__code__ not in now for each in functions if each.__code__.co_filename == module.__file__):
            found[name] = "its file was changed after it was imported, and is imported as it is now"
    return found


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from _codes(each)

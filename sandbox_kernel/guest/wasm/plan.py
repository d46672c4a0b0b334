"""The plan that the host gives the embedder, parsed from JSON and checked once.

The host writes the plan, so an error in it is a bug and not an attack: it ends the embedder with a ``ValueError``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import TypeVar

from .engine import PLAIN, Switches
from .host_line import HostLine

_Kind = TypeVar("_Kind")


@dataclass(frozen=True, kw_only=True)
class Preopen:
    """A folder of the jail that the guest may read and, if ``writable``, write."""

    host: str
    guest: str
    writable: bool


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """Run a module; its stdin, stdout and stderr are the embedder's own.

    A command is entered by ``_start``. With ``program`` the module is an image of the JavaScript engine that runs
    that file (a path the guest sees), through the functions in ``handles``.
    """

    module: str
    program: str | None = None
    handles: str | None = None
    #: The function of the image that first translates the program into JavaScript (TypeScript and bash have one).
    translate: str | None = None
    #: The exit code that stands for "1, because memory ran out"; our code inside an interpreter uses it.
    memory_exit: int | None = None
    #: A file that is mapped as the memory of the module when it is instantiated; None for the module's own memory.
    memory: str | None = None
    argv: tuple[str, ...] = ("guest",)
    env: tuple[tuple[str, str], ...] = ()
    preopens: tuple[Preopen, ...] = ()
    memory_bytes: int = 256 << 20
    table_elements: int = 200_000
    fuel: int | None = None
    deadline_s: float = 10.0
    #: Whether the guest may ask the user for standard input, over the report's channel; the host then keeps the time.
    asks: bool = False
    #: A fixed wall clock in nanoseconds, for repeatable runs; None uses the real one.
    clock_ns: int | None = None
    #: The seed of the guest's random numbers; None uses real randomness.
    seed: int | None = None
    #: The way to host functions, which comes beside the document; None for a guest that may call none.
    line: HostLine | None = None
    switches: Switches = PLAIN


@dataclass(frozen=True, kw_only=True)
class CompilePlan:
    """Check and compile the module in file ``source`` into file ``out``."""

    source: str
    out: str
    #: Whether the source is text (WAT); otherwise it is a binary.
    text: bool = False
    #: Whether it is a module of the catalogue, whose checksum the host has verified; it may be larger than a cell's.
    trusted: bool = False
    memory_bytes: int | None = None
    #: Whether to compile it unchanged, without the counter of refused memory: it is too large to be rewritten here.
    plain: bool = False
    switches: Switches = PLAIN


@dataclass(frozen=True, kw_only=True)
class LibraryPlan:
    """A file that is read into an image: a path, or the name of a script beside this program.

    ``kind`` is script, commonjs, module, or json and text, which are values and not code. A library with a ``name`` can
    be imported by others; ``imports`` lists what a module imports, by name; ``patches`` are texts to replace.
    """

    path: str
    kind: str
    name: str | None = None
    imports: dict[str, tuple[str, ...]] = field(default_factory=dict)
    patches: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class BakePlan:
    """Make an image of the JavaScript engine in ``source`` with libraries; writes ``out`` and ``handles``."""

    source: str
    out: str
    handles: str
    libraries: tuple[LibraryPlan, ...] = ()
    #: A script beside this program that gets the libraries and returns the functions named in ``glue_names``.
    glue: str | None = None
    glue_names: tuple[str, ...] = ()
    switches: Switches = PLAIN


@dataclass(frozen=True, kw_only=True)
class BootPlan:
    """Make an image of the CPython in ``source`` that has started; writes ``out`` and ``facts``."""

    source: str
    out: str
    facts: str
    #: Programs beside this one that become modules of the image, by their names there; ``_boot`` is one of them.
    programs: dict[str, str]
    #: The names of the folders that every run has, in the order of their descriptors.
    places: tuple[str, ...]
    #: How many more folders a run may have, and how long their names may be.
    spares: int
    spare_bytes: int
    #: Room for the arguments and the environment of a program.
    buffer_bytes: int
    switches: Switches = PLAIN


@dataclass(frozen=True, kw_only=True)
class PackagesPlan:
    """Import packages into the image of a started CPython; writes its memory to ``out``, and ``facts``."""

    #: The compiled image, and the file that says where its record is.
    module: str
    handles: str
    #: The folders of the guest; ``path`` is the zip with the packages, as the guest sees it.
    preopens: tuple[Preopen, ...]
    path: str
    modules: tuple[str, ...]
    out: str
    facts: str
    switches: Switches = PLAIN


#: The plans, by the field ``task`` of their documents.
Plan = RunPlan | CompilePlan | BakePlan | BootPlan | PackagesPlan
_TASKS: dict[object, type[Plan]] = {
    "run": RunPlan, "compile": CompilePlan, "bake": BakePlan, "boot": BootPlan, "packages": PackagesPlan,
}  # fmt: skip


def read_plan(document: object) -> Plan:
    """Turn the JSON document into a plan; its field ``task`` decides which."""
    task = _table(document).get("task")
    if task not in _TASKS:
        raise ValueError(f"plan has the task {task!r}; expected {', '.join(map(str, _TASKS))}")
    return _read(_TASKS[task], document)


def read_switches(fields: object) -> Switches:
    """Return the engine switches of a plan; absent ones are off."""
    return _read(Switches, fields)


def _read(kind: type[_Kind], document: object) -> _Kind:
    """Make a dataclass of the fields that a document has, each read by its annotation."""
    found = _table(document)
    known = [each for each in fields(kind) if each.name in found]  # type: ignore[arg-type]
    given = {each.name: _READERS[str(each.type)](found[each.name]) for each in known}
    try:
        return kind(**given)
    except TypeError as error:
        raise ValueError(f"plan for {kind.__name__} is not whole: {error}") from None


def _table(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ValueError(f"plan holds {value!r} where a table belongs")
    return value


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise ValueError(f"plan holds {value!r} where a list belongs")
    return value


def _text(value: object) -> str:
    # The engine would silently cut arguments and variables at a NUL.
    if not isinstance(value, str) or "\0" in value:
        raise ValueError(f"plan holds {value!r} where a text without NUL belongs")
    return value


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"plan holds {value!r} where a whole number belongs")
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"plan holds {value!r} where a number belongs")
    return float(value)


def _texts(value: object) -> tuple[str, ...]:
    return tuple(_text(each) for each in _list(value))


def _pairs(value: object) -> tuple[tuple[str, str], ...]:
    pairs = [_texts(each) for each in (map(list, value.items()) if isinstance(value, dict) else _list(value))]
    return tuple((first, second) for first, second in pairs)


def _or_none(read: Callable[[object], object]) -> Callable[[object], object]:
    return lambda value: None if value is None else read(value)


#: How a field is read, by its annotation.
_READERS: dict[str, Callable[[object], object]] = {
    "str": _text,
    "str | None": _or_none(_text),
    "bool": bool,
    "int": _whole,
    "int | None": _or_none(_whole),
    "float": _number,
    "tuple[str, ...]": _texts,
    "tuple[tuple[str, str], ...]": _pairs,
    "dict[str, str]": lambda value: dict(_pairs(_table(value))),
    "dict[str, tuple[str, ...]]": lambda value: {name: _texts(names) for name, names in _table(value).items()},
    "tuple[Preopen, ...]": lambda value: tuple(_read(Preopen, each) for each in _list(value)),
    "tuple[LibraryPlan, ...]": lambda value: tuple(_read(LibraryPlan, each) for each in _list(value)),
    "Switches": read_switches,
}

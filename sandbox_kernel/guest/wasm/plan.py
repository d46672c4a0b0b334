"""The plans that the host gives the embedder as JSON.

The host writes them, so an error in one is a bug and not an attack: it ends the embedder with a ``ValueError``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from .engine import PLAIN, Switches

if TYPE_CHECKING:
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

    A command is entered by ``_start``. With a ``program`` (a file as the guest sees it) the module is an image of the
    JavaScript engine, and ``facts`` the handles of its functions.
    """

    module: str
    program: str | None = None
    facts: str | None = None
    #: Whether the module is an image of a CPython that has started.
    booted: bool = False
    #: The function of the image that first translates the program into JavaScript (TypeScript and bash have one).
    translate: str | None = None
    argv: Sequence[str] = ("guest",)
    env: Mapping[str, str] = field(default_factory=dict)
    preopens: Sequence[Preopen] = ()
    memory_bytes: int = 256 << 20
    fuel: int | None = None
    #: Whether the guest may ask the user for standard input, over the report's channel; the host then keeps the time.
    asks: bool = False
    #: A fixed wall clock in nanoseconds and the seed of the random numbers, for repeatable runs; None for real ones.
    clock_ns: int | None = None
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
    #: Whether to compile it for a ``BootPlan``, without the counter of refused memory: it is too large for that here.
    plain: bool = False
    switches: Switches = PLAIN


@dataclass(frozen=True, kw_only=True)
class LibraryPlan:
    """A file that is read into an image: a path, or the name of a script beside this program.

    ``kind`` is script, commonjs or module. A library with a ``name`` can be imported by others; ``imports`` lists what
    a module imports, by name; ``patches`` are texts to replace.
    """

    path: str
    kind: str
    name: str | None = None
    imports: Mapping[str, Sequence[str]] = field(default_factory=dict)
    patches: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, kw_only=True)
class BakePlan:
    """Make an image of the JavaScript engine in ``source`` with libraries; writes ``out`` and ``facts``."""

    source: str
    out: str
    #: The handles of its functions, by name.
    facts: str
    libraries: Sequence[LibraryPlan] = ()
    #: A script beside this program that gets the libraries and returns the functions named in ``glue_names``.
    glue: str | None = None
    glue_names: Sequence[str] = ()
    switches: Switches = PLAIN


@dataclass(frozen=True, kw_only=True)
class BootPlan:
    """Make an image of the CPython in ``source`` that has started; writes ``out``."""

    source: str
    out: str
    #: Whether the source is compiled: the image is the memory alone.
    compiled: bool = False
    #: Its folders besides those of every run, by their names for the guest; an empty path is a new one.
    folders: Mapping[str, str] = field(default_factory=dict)
    #: Programs beside this one that become modules of the image, by their names there; ``_boot`` is one of them.
    programs: dict[str, str]
    switches: Switches = PLAIN


@dataclass(frozen=True, kw_only=True)
class GuestPlan:
    """Load the guest of a session, before the session is known."""

    module: str
    #: The handles of the functions of a JavaScript engine; None for Python.
    facts: str | None = None
    #: The file of the memory with which it begins; None where the module has it.
    memory: str | None = None
    switches: Switches = PLAIN


@dataclass(frozen=True, kw_only=True)
class SessionPlan:
    """Make a session of a loaded guest."""

    memory_bytes: int
    preopens: Sequence[Preopen]
    #: A folder of the jail for files of ours; ``/tmp`` of a guest that has one is ``own`` in it.
    scratch: str
    env: Mapping[str, str]
    #: The age of the session whose memory this one begins with.
    elapsed_s: float = 0.0
    #: Whether that memory is what the other session changed, and not all of it.
    changes: bool = False
    #: The package indexes of ``%pip``.
    indexes: Sequence[str] = ()


#: The plans of a jail, by the field ``task`` of their documents.
Plan = RunPlan | CompilePlan | BakePlan | BootPlan
_TASKS: dict[str, type[Plan]] = {"run": RunPlan, "compile": CompilePlan, "bake": BakePlan, "boot": BootPlan}
_PARTS = {"preopens": Preopen, "libraries": LibraryPlan}


def read_plan(document: dict[str, Any]) -> Plan:
    """Turn the JSON document into a plan; its field ``task`` decides which."""
    fields = dict(document)
    task = fields.pop("task", None)
    if task not in _TASKS:
        raise ValueError(f"plan has the task {task!r}; expected {', '.join(_TASKS)}")
    return read_fields(_TASKS[task], fields)


def read_fields(kind: type[_Kind], fields: dict[str, Any]) -> _Kind:
    """Make a plan of the fields of a document."""
    given = {
        name: [read_fields(_PARTS[name], each) for each in value] if name in _PARTS else value
        for name, value in fields.items()
    }
    if "switches" in given:
        given["switches"] = Switches(**given["switches"])
    try:
        return kind(**given)
    except TypeError as error:
        raise ValueError(f"plan for {kind.__name__} is not whole: {error}") from None

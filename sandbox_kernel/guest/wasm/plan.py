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

    A command is entered by ``_start``. With ``facts`` the module is an image: of the JavaScript engine if there is a
    ``program`` (a file as the guest sees it), else of a CPython that has started.
    """

    module: str
    program: str | None = None
    facts: str | None = None
    #: The function of the image that first translates the program into JavaScript (TypeScript and bash have one).
    translate: str | None = None
    #: The exit code that stands for "1, because memory ran out"; our code inside an interpreter uses it.
    memory_exit: int | None = None
    #: A file that is mapped as the memory of the module when it is instantiated; None for the module's own memory.
    memory: str | None = None
    argv: Sequence[str] = ("guest",)
    env: Mapping[str, str] = field(default_factory=dict)
    preopens: Sequence[Preopen] = ()
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
    """Make an image of the CPython in ``source`` that has started; writes ``out`` and ``facts``."""

    source: str
    out: str
    facts: str
    #: Programs beside this one that become modules of the image, by their names there; ``_boot`` is one of them.
    programs: dict[str, str]
    #: The names of the folders that every run has, in the order of their descriptors.
    places: Sequence[str]
    #: How many more folders a run may have, and how long their names may be.
    spares: int
    spare_bytes: int
    #: Room for the arguments and the environment of a program.
    buffer_bytes: int
    switches: Switches = PLAIN


@dataclass(frozen=True, kw_only=True)
class PackagesPlan:
    """Import packages into the image of a started CPython; writes its memory to ``out``, and ``report``."""

    #: The compiled image, and the file that says where its record is.
    module: str
    facts: str
    #: The folders of the guest; ``path`` is the zip with the packages, as the guest sees it.
    preopens: Sequence[Preopen]
    path: str
    modules: Sequence[str]
    out: str
    report: str
    switches: Switches = PLAIN


@dataclass(frozen=True, kw_only=True)
class GuestPlan:
    """Load the guest of a session, before the session is known."""

    module: str
    #: The file that says how an image is entered; None for the large Python, which is none.
    facts: str | None = None
    #: A file that is mapped as the memory of the module when it is loaded; None for the module's own memory.
    base: str | None = None
    switches: Switches = PLAIN


@dataclass(frozen=True, kw_only=True)
class SessionPlan:
    """Make a session of a loaded guest."""

    memory_bytes: int
    preopens: Sequence[Preopen]
    #: A folder of the jail for files of ours.
    scratch: str
    env: Mapping[str, str]
    #: The age of the session whose memory this one begins with, and whether only its changed pages are given.
    elapsed_s: float = 0.0
    changes: bool = False
    #: The package indexes of ``%pip``.
    indexes: Sequence[str] = ()


#: The plans of a jail, by the field ``task`` of their documents.
Plan = RunPlan | CompilePlan | BakePlan | BootPlan | PackagesPlan
_TASKS: dict[str, type[Plan]] = {
    "run": RunPlan, "compile": CompilePlan, "bake": BakePlan, "boot": BootPlan, "packages": PackagesPlan,
}  # fmt: skip
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

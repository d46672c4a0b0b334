"""The plan that the host gives the embedder, parsed from JSON and checked once.

The host writes the plan, so an error in it is a bug and not an attack: it ends the embedder with a ``ValueError``.
"""

from __future__ import annotations

from dataclasses import dataclass

from .engine import DEFAULT_STACK_BYTES, PLAIN, Switches
from .host_line import HostLine


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
    imports: dict[str, tuple[str, ...]]
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


def read_switches(fields: dict[str, object]) -> Switches:
    """Return the engine switches of a plan; absent ones are off."""
    return Switches(
        fuel=bool(fields.get("fuel", False)),
        stack_bytes=_whole(fields.get("stack_bytes", DEFAULT_STACK_BYTES)),
        exceptions=bool(fields.get("exceptions", False)),
    )


def read_plan(document: object) -> RunPlan | CompilePlan | BakePlan | BootPlan | PackagesPlan:
    """Turn the JSON document into a plan; its field ``task`` decides which."""
    fields = _table(document)
    switches = read_switches(_table(fields.get("switches", {})))
    if fields.get("task") == "bake":
        return _bake_plan(fields, switches)
    if fields.get("task") == "boot":
        return _boot_plan(fields, switches)
    if fields.get("task") == "packages":
        return _packages_plan(fields, switches)
    if fields.get("task") == "compile":
        memory = fields.get("memory_bytes")
        return CompilePlan(
            source=_text(fields["source"]),
            out=_text(fields["out"]),
            text=bool(fields.get("text", False)),
            trusted=bool(fields.get("trusted", False)),
            memory_bytes=None if memory is None else _whole(memory),
            plain=bool(fields.get("plain", False)),
            switches=switches,
        )
    if fields.get("task") != "run":
        raise ValueError(f"plan has the task {fields.get('task')!r}; expected run, compile, bake, boot or packages")
    fuel, clock, seed, memory_exit = (fields.get(name) for name in ("fuel", "clock_ns", "seed", "memory_exit"))
    return RunPlan(
        module=_text(fields["module"]),
        program=_optional(fields.get("program")),
        handles=_optional(fields.get("handles")),
        translate=_optional(fields.get("translate")),
        memory_exit=None if memory_exit is None else _whole(memory_exit),
        memory=_optional(fields.get("memory")),
        argv=tuple(_text(arg) for arg in _list(fields.get("argv", ["guest"]))),
        env=tuple((name, _text(value)) for name, value in _table(fields.get("env", {})).items()),
        preopens=tuple(_preopen(_table(entry)) for entry in _list(fields.get("preopens", []))),
        memory_bytes=_whole(fields.get("memory_bytes", 256 << 20)),
        table_elements=_whole(fields.get("table_elements", 200_000)),
        fuel=None if fuel is None else _whole(fuel),
        deadline_s=_number(fields.get("deadline_s", 10.0)),
        asks=bool(fields.get("asks", False)),
        clock_ns=None if clock is None else _whole(clock),
        seed=None if seed is None else _whole(seed),
        switches=switches,
    )


def _bake_plan(fields: dict[str, object], switches: Switches) -> BakePlan:
    return BakePlan(
        source=_text(fields["source"]),
        out=_text(fields["out"]),
        handles=_text(fields["handles"]),
        libraries=tuple(_library(_table(entry)) for entry in _list(fields.get("libraries", []))),
        glue=_optional(fields.get("glue")),
        glue_names=tuple(_text(name) for name in _list(fields.get("glue_names", []))),
        switches=switches,
    )


def _boot_plan(fields: dict[str, object], switches: Switches) -> BootPlan:
    return BootPlan(
        source=_text(fields["source"]),
        out=_text(fields["out"]),
        facts=_text(fields["facts"]),
        programs={name: _text(path) for name, path in _table(fields["programs"]).items()},
        places=tuple(_text(place) for place in _list(fields["places"])),
        spares=_whole(fields["spares"]),
        spare_bytes=_whole(fields["spare_bytes"]),
        buffer_bytes=_whole(fields["buffer_bytes"]),
        switches=switches,
    )


def _packages_plan(fields: dict[str, object], switches: Switches) -> PackagesPlan:
    return PackagesPlan(
        module=_text(fields["module"]),
        handles=_text(fields["handles"]),
        preopens=tuple(_preopen(_table(entry)) for entry in _list(fields["preopens"])),
        path=_text(fields["path"]),
        modules=tuple(_text(name) for name in _list(fields["modules"])),
        out=_text(fields["out"]),
        facts=_text(fields["facts"]),
        switches=switches,
    )


def _library(fields: dict[str, object]) -> LibraryPlan:
    pairs = [_list(pair) for pair in _list(fields.get("patches", []))]
    imports = _table(fields.get("imports", {}))
    return LibraryPlan(
        path=_text(fields["path"]),
        kind=_text(fields["kind"]),
        name=_optional(fields.get("name")),
        imports={name: tuple(_text(item) for item in _list(names)) for name, names in imports.items()},
        patches=tuple((_text(old), _text(new)) for old, new in pairs),
    )


def _optional(value: object) -> str | None:
    return None if value is None else _text(value)


def _preopen(entry: dict[str, object]) -> Preopen:
    return Preopen(host=_text(entry["host"]), guest=_text(entry["guest"]), writable=bool(entry.get("writable", False)))


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

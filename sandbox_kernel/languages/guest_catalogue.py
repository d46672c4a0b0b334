"""The catalogue of languages that run inside WebAssembly (``guests.toml``), read once and checked."""

from __future__ import annotations

import functools
import importlib.resources
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from types import MappingProxyType

from sandbox_kernel.ground.values import dataclass
from sandbox_kernel.limits import MIB
from sandbox_kernel.model import Language

ENTRIES = ("command", "quickjs", "turn", "zig", "rustc")
REGISTRIES = ("npm", "pypi")
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")


class CatalogueError(ValueError):
    """``guests.toml`` is wrong. This is a mistake in the package, which a test finds."""


@dataclass(frozen=True, kw_only=True)
class Package:
    """A registry package: its source, the checksum of its archive, and the files that are used."""

    key: str
    registry: str
    name: str
    version: str
    sha256: str
    licence: str
    files: Mapping[str, str]

    @property
    def archive(self) -> str:
        """The name of its archive in an offline folder, the same as the registry's client uses."""
        if self.registry == "npm":
            return f"{self.name.removeprefix('@').replace('/', '-')}-{self.version}.tgz"
        return f"{self.name.replace('-', '_')}-{self.version}-py3-none-any.whl"

    def __hash__(self) -> int:
        return hash(self.sha256)


@dataclass(frozen=True, kw_only=True)
class Library:
    """A file that is read into an image: from a package, or one of ours in ``guest/``.

    ``kind`` is script, commonjs, module, json or text. ``guest/wasm/plan.py`` explains the other fields, which it
    receives unchanged.
    """

    file: str
    kind: str
    package: Package | None = None
    name: str | None = None
    imports: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    patches: tuple[tuple[str, str], ...] = ()

    @property
    def identity(self) -> str:
        """What decides its content, except our own files."""
        return f"{self.package.sha256 if self.package else ''} {self.file}"

    def to_plan(self, path: str) -> dict[str, object]:
        """Return the library in the form of a plan."""
        return {
            "path": path,
            "kind": self.kind,
            "name": self.name,
            "imports": {name: list(names) for name, names in self.imports.items()},
            "patches": [list(pair) for pair in self.patches],
        }


@dataclass(frozen=True, kw_only=True)
class WasmLanguage:
    """One language inside WebAssembly."""

    language: Language
    entry: str
    script: str
    version: str
    can: str
    memory_mb: int
    stack_bytes: int = MIB
    package: Package | None = None
    file: str = ""
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    #: Our files that are put beside the program: name there to name in ``guest/``.
    helpers: Mapping[str, str] = field(default_factory=dict)
    #: Our programs that become modules of an image of the started interpreter, by their names there; empty for none.
    image: Mapping[str, str] = field(default_factory=dict)
    #: The exit code of a helper for a program that reached its memory limit.
    memory_exit: int | None = None
    libraries: tuple[Library, ...] = ()
    glue: str | None = None
    functions: tuple[str, ...] = ()
    translate: str | None = None
    #: The same language with type checking, if that is a separate image.
    checked: WasmLanguage | None = None
    #: The guest for sessions of the language, if it is a different one.
    session: WasmLanguage | None = None
    #: The usual time of its compilation, for a progress bar.
    compile_s: int = 10
    #: What its preparation costs, said before it begins; empty for one that takes seconds.
    cost: str = ""
    #: A program of ours that is loaded into a session's memory at its start.
    boot: str | None = None

    @property
    def packages(self) -> tuple[Package, ...]:
        """All packages that must be fetched."""
        found = [self.package, *(library.package for library in self.libraries)]
        return tuple(dict.fromkeys(package for package in found if package is not None))

    @property
    def is_compiled(self) -> bool:
        """Whether a compiler makes a module for each program; otherwise one module, an interpreter, runs all."""
        return self.entry in ("zig", "rustc")

    def __hash__(self) -> int:
        return hash(self.language)


@functools.lru_cache(maxsize=1)
def catalogue() -> Mapping[Language, WasmLanguage]:
    """Return all guests, by language."""
    source = importlib.resources.files("sandbox_kernel") / "languages" / "guests.toml"
    return read_catalogue(source.read_text(encoding="utf-8"))


def read_catalogue(text: str) -> Mapping[Language, WasmLanguage]:
    """Parse the catalogue from a TOML text. Raises ``CatalogueError``."""
    document = tomllib.loads(text)
    packages = {key: _package(key, fields) for key, fields in document.get("packages", {}).items()}
    guests = {}
    for name, fields in document.get("languages", {}).items():
        guest = _guest(Language(name), fields, packages)
        guests[guest.language] = guest
    return MappingProxyType(guests)


def _package(key: str, fields: dict[str, object]) -> Package:
    known = {"registry", "name", "version", "sha256", "licence", "files"}
    if set(fields) != known:
        raise CatalogueError(f"package {key} must have exactly the fields {', '.join(sorted(known))}")
    files = fields["files"]
    if fields["registry"] not in REGISTRIES or not isinstance(files, dict) or not files:
        raise CatalogueError(f"package {key} must name a registry ({', '.join(REGISTRIES)}) and its files")
    if not _SHA256.match(str(fields["sha256"])):
        raise CatalogueError(f"package {key} has no SHA-256")
    return Package(
        key=key,
        registry=str(fields["registry"]),
        name=str(fields["name"]),
        version=str(fields["version"]),
        sha256=str(fields["sha256"]),
        licence=str(fields["licence"]),
        files=MappingProxyType(dict(files)),
    )


def _guest(language: Language, fields: dict[str, object], packages: Mapping[str, Package]) -> WasmLanguage:
    def strings(name: str) -> tuple[str, ...]:
        value = fields.get(name, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise CatalogueError(f"{language}.{name} must be a list of strings")
        return tuple(value)

    def table(name: str) -> Mapping[str, str]:
        value = fields.get(name, {})
        if not isinstance(value, dict):
            raise CatalogueError(f"{language}.{name} must be a table")
        return MappingProxyType({str(key): str(item) for key, item in value.items()})

    def whole(name: str, default: int | None = None) -> int:
        value = fields.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise CatalogueError(f"{language}.{name} must be a whole number")
        return value

    def owner(key: str, file: str) -> Package:
        if key not in packages or file not in packages[key].files:
            raise CatalogueError(f"{language} wants the file {file} of the package {key}, which is not listed")
        return packages[key]

    entry = str(fields.get("entry"))
    if entry not in ENTRIES:
        raise CatalogueError(f"{language}.entry must be one of {', '.join(ENTRIES)}")
    module = strings("module")
    guest = WasmLanguage(
        language=language,
        entry=entry,
        script=str(fields["script"]),
        version=str(fields["version"]),
        can=str(fields["can"]),
        memory_mb=whole("memory_mb"),
        stack_bytes=whole("stack_mb", 1) * MIB,
        package=owner(*module) if module else None,
        file=module[1] if module else "",
        argv=strings("argv"),
        env=table("env"),
        helpers=table("helpers"),
        image=table("image"),
        memory_exit=whole("memory_exit") if "memory_exit" in fields else None,
        libraries=tuple(_library(row, owner) for row in _rows(fields.get("libraries", []))),
        glue=str(fields["glue"]) if "glue" in fields else None,
        functions=strings("functions"),
        translate=str(fields["translate"]) if "translate" in fields else None,
        boot=str(fields["boot"]) if "boot" in fields else None,
        compile_s=whole("compile_s", 10),
        cost=str(fields.get("cost", "")),
    )
    session = fields.get("session")
    if isinstance(session, dict):
        guest = replace(guest, session=_guest(language, {**session, "script": ""}, packages))
    check = fields.get("check")
    if not isinstance(check, dict):
        return guest
    added = tuple(_library(row, owner) for row in _rows(check.get("libraries", [])))
    checked = replace(
        guest,
        libraries=(*guest.libraries, *added),
        functions=tuple(check["functions"]),
        translate=str(check["translate"]),
        memory_mb=int(check["memory_mb"]),
    )
    return replace(guest, checked=checked)


def _rows(value: object) -> list[dict[str, object]]:
    if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
        raise CatalogueError("libraries must be a list of tables")
    return value


def _library(row: dict[str, object], owner: Callable[[str, str], Package]) -> Library:
    file, imports, patches = str(row["file"]), row.get("imports", {}), row.get("patches", [])
    if row["kind"] not in ("script", "commonjs", "module", "json", "text"):
        raise CatalogueError(f"library {file} has the unknown kind {row['kind']!r}")
    if not isinstance(imports, dict) or not isinstance(patches, list):
        raise CatalogueError(f"library {file} has imports or patches of the wrong form")
    return Library(
        file=file,
        kind=str(row["kind"]),
        package=owner(str(row["package"]), file) if "package" in row else None,
        name=str(row["name"]) if "name" in row else None,
        imports=MappingProxyType({str(name): tuple(names) for name, names in imports.items()}),
        patches=tuple((str(old), str(new)) for old, new in patches),
    )

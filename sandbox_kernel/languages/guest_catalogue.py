"""The catalogue of languages that run inside WebAssembly (``guests.toml``), read once. A test finds mistakes in it."""

from __future__ import annotations

import functools
import importlib.resources
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sandbox_kernel.limits import MIB
from sandbox_kernel.model import Language
from sandbox_kernel.util.wire import check


@dataclass(frozen=True, kw_only=True)
class Package:
    """A registry package: its source, the checksum of its archive, and the files that are used."""

    key: str
    registry: Literal["npm", "pypi"]
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
    """A file that is read into an image: from a package, or one of ours in ``guest/`` (``guest/wasm/plan.py``)."""

    file: str
    kind: Literal["script", "commonjs", "module"]
    package: Package | None = None
    name: str | None = None
    imports: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    patches: tuple[tuple[str, str], ...] = ()

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
    entry: Literal["command", "quickjs", "turn", "zig", "rustc"]
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
    libraries: tuple[Library, ...] = ()
    glue: str | None = None
    functions: tuple[str, ...] = ()
    translate: str | None = None
    #: The guest for sessions of the language, if it is a different one.
    session: WasmLanguage | None = None
    #: What its preparation costs, said before it begins; empty for one that takes seconds.
    cost: str = ""

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
    document = tomllib.loads(source.read_text(encoding="utf-8"))
    packages = {key: {"key": key, **fields} for key, fields in document["packages"].items()}
    guests = {name: _guest(name, fields, packages) for name, fields in document["languages"].items()}
    return check(guests, dict[Language, WasmLanguage])


def _guest(language: str, fields: dict[str, Any], packages: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a ``WasmLanguage``: packages for their keys, and its variants whole."""
    guest = {"language": language, **fields, "stack_bytes": fields.get("stack_mb", 1) * MIB}
    if "module" in fields:
        key, guest["file"] = fields["module"]
        guest["package"] = packages[key]
    guest["libraries"] = [
        {**row, "package": packages[row["package"]] if "package" in row else None}
        for row in fields.get("libraries", [])
    ]
    if "session" in fields:
        guest["session"] = _guest(language, {**fields["session"], "script": ""}, packages)
    return guest

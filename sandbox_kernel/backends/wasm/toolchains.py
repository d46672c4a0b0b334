"""The compilers to WebAssembly: Zig for C, C++ and Zig, rustc with a WASI target for Rust."""

from __future__ import annotations

import functools
import glob
import os
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from sandbox_kernel.errors import BackendUnavailable
from sandbox_kernel.jail.core.interpreter import runtime_grants
from sandbox_kernel.jail.core.walls import Places
from sandbox_kernel.languages.compiled import Compilation, compiler_identity
from sandbox_kernel.languages.recipe import Availability
from sandbox_kernel.languages.rust import Rustc, find_rustc, wrap
from sandbox_kernel.languages.zig_toolchain import REMEDY, Zig, find_zig
from sandbox_kernel.model import ExecRequest, Language
from sandbox_kernel.policy import Grant

#: File name of the compiled module in the work folder.
OUT = ".cell.wasm"
TARGET = "wasm32-wasi"
#: C++ exceptions need a WebAssembly proposal that is switched off. Optimisation and target must match the libraries of
#: ``zig_toolchain``. Symbols are kept, because the messages of traps name functions.
_COMMON = ("-target", TARGET, "-Wall", "-Wextra")
_FLAGS = {
    Language.C: ("cc", ("-O1", *_COMMON)),
    Language.CPP: ("c++", ("-O1", "-std=c++20", "-fno-exceptions", *_COMMON)),
    Language.ZIG: ("build-exe", ("-target", TARGET, "--color", "off")),
}

#: Names of the WASI target in Rust, newest first.
RUST_TARGETS = ("wasm32-wasip1", "wasm32-wasi")
RUST_REMEDY = (
    "add the target with: rustup target add wasm32-wasip1 (Debian: apt-get install rustc libstd-rust-dev-wasm32 lld), "
    "or use backend='process'"
)


class Toolchain(ABC):
    """One compiler for one language."""

    @property
    @abstractmethod
    def version(self) -> str:
        """Name and version of the compiler, for reports."""

    @property
    @abstractmethod
    def executable(self) -> str:
        """Path of the compiler."""

    @abstractmethod
    def warm(self) -> None:
        """Build the libraries that every program of the language needs, once. May take minutes, or nothing."""

    @property
    def is_warm(self) -> bool:
        """Whether these libraries are built, or there are none to build."""
        return True

    @abstractmethod
    def runtime(self) -> Sequence[Grant]:
        """Return the host paths that the compiler needs."""

    @abstractmethod
    def compilation(self, request: ExecRequest, script: str, places: Places) -> Compilation:
        """Return the command that compiles the source of a request to ``OUT``."""


@dataclass(frozen=True)
class ZigToolchain(Toolchain):
    """Zig; it contains the sources of the C and C++ libraries for WASI."""

    zig: Zig
    language: Language

    @property
    def version(self) -> str:
        """See ``Toolchain``."""
        return f"zig {self.zig.version}"

    @property
    def executable(self) -> str:
        """See ``Toolchain``."""
        return self.zig.executable

    def warm(self) -> None:
        """See ``Toolchain``."""
        self.runtime()

    @property
    def is_warm(self) -> bool:
        """See ``Toolchain``."""
        return self.zig.is_prepared(_FLAGS[self.language][0], TARGET)

    def runtime(self) -> Sequence[Grant]:
        """See ``Toolchain``."""
        return self.zig.runtime(_FLAGS[self.language][0], TARGET)

    def compilation(self, request: ExecRequest, script: str, places: Places) -> Compilation:
        """See ``Toolchain``."""
        command, flags = _FLAGS[self.language]
        out = f"{places.work}/{OUT}"
        emit = [f"-femit-bin={out}"] if command == "build-exe" else ["-iquote", places.work, "-o", out]
        return Compilation(
            name=script,
            source=request.source,
            argv=[self.zig.executable, command, *flags, *emit, script],
            identity=compiler_identity(self.zig.executable, self.zig.version),
            env=self.zig.environment(command, places.tmp, target=TARGET),
        )


@dataclass(frozen=True)
class RustToolchain(Toolchain):
    """rustc with the standard library for WASI."""

    rustc: Rustc
    target: str
    #: Linker of the system, used when the toolchain has none.
    linker: str | None

    @property
    def version(self) -> str:
        """See ``Toolchain``."""
        return f"{self.rustc.version}, {self.target}"

    @property
    def executable(self) -> str:
        """See ``Toolchain``."""
        return self.rustc.executable

    def warm(self) -> None:
        """See ``Toolchain``; its library is already compiled."""

    def runtime(self) -> Sequence[Grant]:
        """See ``Toolchain``."""
        linker = [self.linker] if self.linker is not None else []
        return runtime_grants([self.rustc.sysroot, self.rustc.executable, *linker])

    def compilation(self, request: ExecRequest, script: str, places: Places) -> Compilation:
        """See ``Toolchain``; integer overflow is checked, as on the process backend."""
        source, columns = wrap(request.source.decode())
        linking = ["-C", f"linker={self.linker}", "-C", "linker-flavor=wasm-ld"] if self.linker is not None else []
        argv = [
            self.rustc.executable, "--edition", self.rustc.edition, "--crate-name", "cell", "--error-format", "json",
            "--target", self.target, *linking, "-C", "opt-level=1", "-C", "debug-assertions=on",
            "-C", "strip=debuginfo", "-o", f"{places.work}/{OUT}", script,
        ]  # fmt: skip
        return Compilation(
            name=script,
            source=source.encode(),
            argv=argv,
            identity=compiler_identity(self.rustc.executable, self.rustc.version),
            style=f"rustc:{columns}",
            parts=".rs",
        )


def find_toolchain(language: Language) -> Toolchain:
    """Return the compiler of a language. Raises ``BackendUnavailable`` that says what is missing and how to get it."""
    if language is Language.RUST:
        return find_wasi_rust("rustc")
    zig = find_zig()
    if zig is None:
        raise BackendUnavailable(f"{language} in WebAssembly is compiled by zig, which was not found; {REMEDY}")
    return ZigToolchain(zig, language)


@functools.lru_cache(maxsize=4)
def find_wasi_rust(path: str) -> RustToolchain:
    """Return a rustc with a WASI target and a linker for it."""
    try:
        rustc = find_rustc(path)
    except BackendUnavailable as error:
        raise BackendUnavailable(f"rust in WebAssembly: {error}; then {RUST_REMEDY}") from None
    libraries = os.path.join(rustc.sysroot, "lib", "rustlib")
    for target in RUST_TARGETS:
        if glob.glob(os.path.join(libraries, target, "lib", "libstd-*.rlib")):
            own = glob.glob(os.path.join(libraries, "*", "bin", "rust-lld"))
            linker = None if own else _wasm_linker()
            if own or linker is not None:
                return RustToolchain(rustc, target, linker)
            raise BackendUnavailable(f"rust has the target {target}, but no wasm-ld to link with; install lld")
    raise BackendUnavailable(f"{rustc.version} has no library for WebAssembly ({RUST_TARGETS[0]}); {RUST_REMEDY}")


def _wasm_linker() -> str | None:
    """Return the path of ``wasm-ld``, or of the newest ``wasm-ld-NN``."""
    plain = shutil.which("wasm-ld")
    if plain is not None:
        return plain
    folders = os.get_exec_path()
    found = [path for folder in folders for path in glob.glob(os.path.join(folder, "wasm-ld-[0-9]*"))]
    return max(found, key=lambda path: int(re.sub(r"\D", "", os.path.basename(path)) or 0), default=None)


def toolchain_availability(language: Language) -> Availability:
    """Return whether a compiled language can run in WebAssembly here."""
    try:
        found = find_toolchain(language)
    except BackendUnavailable as error:
        reason, _, remedy = str(error).partition("; ")
        return Availability(available=False, reason=reason, remedy=remedy)
    return Availability(available=True, version=found.version, origin=found.executable)

"""The compilers to WebAssembly, which run in a jail: Zig for C, C++ and Zig, rustc with a WASI target for Rust."""

from __future__ import annotations

import functools
import glob
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from sandbox_kernel.backends.outcome import make_result, run_facts
from sandbox_kernel.backends.wasm.wasm_job import read_file
from sandbox_kernel.errors import BackendUnavailable
from sandbox_kernel.jail.gate_messages import JobFile
from sandbox_kernel.jail.interpreter import find_python, runtime_grants
from sandbox_kernel.jail.jail import Jail
from sandbox_kernel.jail.pool import Pool
from sandbox_kernel.jail.run_job import Job, run_job
from sandbox_kernel.jail.walls import Places, Walls, sizes
from sandbox_kernel.languages.c_family import REMEDY, Zig, find_zig
from sandbox_kernel.languages.compile_cache import CompileCache, Compiled, default_folder
from sandbox_kernel.languages.compiled import Compilation, cache_key, compiler_identity, parts_beside
from sandbox_kernel.languages.recipe import Availability, ProgramPlan, StepBuilder, Toolchains, rlimits, search_path
from sandbox_kernel.languages.rust import Rustc, find_rustc, wrap
from sandbox_kernel.limits import MIB, Limits
from sandbox_kernel.model import ExecRequest, ExecResult, Language, Status
from sandbox_kernel.policy import Grant
from sandbox_kernel.workspace.overlay.overlay_folder import HereFolder

if TYPE_CHECKING:
    from _typeshed import HasFileno

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


@dataclass(frozen=True)
class ZigToolchain:
    """Zig; it contains the sources of the C and C++ libraries for WASI, which it builds once."""

    zig: Zig
    language: Language

    @property
    def version(self) -> str:
        """Name and version of the compiler, for reports."""
        return f"zig {self.zig.version}"

    @property
    def executable(self) -> str:
        """Path of the compiler."""
        return self.zig.executable

    @property
    def is_warm(self) -> bool:
        """Whether the libraries that every program of the language needs are built."""
        return self.zig.is_prepared(_FLAGS[self.language][0], TARGET)

    def runtime(self) -> Sequence[Grant]:
        """Return the host paths that the compiler needs; builds its libraries if they are missing, for minutes."""
        return self.zig.runtime(_FLAGS[self.language][0], TARGET)

    def compilation(self, request: ExecRequest, script: str, places: Places) -> Compilation:
        """Return the command that compiles the source of a request to ``OUT``."""
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
class RustToolchain:
    """rustc with the standard library for WASI, which is compiled already; works like ``ZigToolchain``."""

    rustc: Rustc
    target: str
    #: Linker of the system, used when the toolchain has none.
    linker: str | None
    is_warm: ClassVar[bool] = True

    @property
    def version(self) -> str:
        """Name and version of the compiler, for reports."""
        return f"{self.rustc.version}, {self.target}"

    @property
    def executable(self) -> str:
        """Path of the compiler."""
        return self.rustc.executable

    def runtime(self) -> Sequence[Grant]:
        """Return the host paths that the compiler needs."""
        linker = [self.linker] if self.linker is not None else []
        return runtime_grants([self.rustc.sysroot, self.rustc.executable, *linker])

    def compilation(self, request: ExecRequest, script: str, places: Places) -> Compilation:
        """Return the command that compiles a request; integer overflow is checked, as on the process backend."""
        linking = ["-C", f"linker={self.linker}", "-C", "linker-flavor=wasm-ld"] if self.linker is not None else []
        argv = [
            self.rustc.executable, "--edition", self.rustc.edition, "--crate-name", "cell",
            "--target", self.target, *linking, "-C", "opt-level=1", "-C", "debug-assertions=on",
            "-C", "strip=debuginfo", "-o", f"{places.work}/{OUT}", script,
        ]  # fmt: skip
        return Compilation(
            name=script,
            source=wrap(request.source.decode()).encode(),
            argv=argv,
            identity=compiler_identity(self.rustc.executable, self.rustc.version),
            parts=".rs",
        )


Toolchain = ZigToolchain | RustToolchain


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


_MEMORY_MB = 2048
#: Most open files of the compiler. Zig keeps some six hundred open when it builds its libraries again.
_OPEN_FILES = 4096


@functools.lru_cache(maxsize=1)
def _cache() -> CompileCache:
    return CompileCache(default_folder())


def build(
    request: ExecRequest, script: str, pool: Pool, enforcer: str, stop: HasFileno | None, over: HereFolder | None = None
) -> tuple[Compiled, float] | ExecResult:
    """Compile the source of a request; returns its module and the seconds that this took, or why there is none.

    ``over`` is the user's folder that the program works on: the compiler sees a private copy of it. What may include
    files of that folder is not kept.
    """
    toolchain = find_toolchain(request.language)
    work = toolchain.compilation(request, script, Places())
    alone = over is None or work.alone
    key = cache_key(request, _step_builder(Places(), enforcer), work) if alone else None
    known = _cache().get(key) if key is not None else None
    if known is not None:
        return known, 0.0
    python = find_python("python3")
    runtime = tuple(dict.fromkeys((*python.runtime, *toolchain.runtime())))
    walls = Walls(python.executable, runtime, (), *sizes(Limits(), _MEMORY_MB), enforcer=enforcer)
    jail = pool.take(walls)
    try:
        if over is not None and not alone:
            over.fill(jail.box_fd, -1, request.files, walls.box_bytes).root.close()
            request = replace(request, files={})
        job = _job(request, script, toolchain, jail)
        outcome = run_job(jail, job, stop=stop)
        facts = run_facts(outcome, job, ProgramPlan(steps=tuple(job.steps)), backend="wasm", isolation="wasm")
        if facts.status is not Status.OK:
            return make_result(request, outcome, facts)
        built = Compiled(read_file(jail.box_fd, OUT), outcome.stderr.text.encode())
    finally:
        jail.destroy()
        jail.forget()
    if key is not None:
        _cache().put(key, built)
    return built, outcome.duration_s


def _step_builder(places: Places, enforcer: str) -> StepBuilder:
    python = find_python("python3")
    return StepBuilder(
        config=Toolchains(),
        places=places,
        path=search_path(python.executable),
        rlimits=rlimits(enforcer, Limits(open_files=_OPEN_FILES), _MEMORY_MB, processes=None, reserved_mb=512),
    )


def _job(request: ExecRequest, script: str, toolchain: Toolchain, jail: Jail) -> Job:
    places = jail.places
    work = toolchain.compilation(request, script, places)
    builder = _step_builder(places, jail.walls.enforcer or "")
    parts = parts_beside(request, places.cell, work.parts) if work.parts is not None else ()
    given = [
        JobFile(root=places.work, name=name, data=data.encode() if isinstance(data, str) else data)
        for name, data in request.files.items()
    ]
    return Job(
        steps=(builder.compiler(work.argv, work.env),),
        files=(*parts, JobFile(root=places.cell, name=script, data=work.source), *given),
        timeout_s=request.timeout,
        memory_bytes=_MEMORY_MB * MIB,
        processes=request.limits.processes,
        cpu_seconds=request.limits.cpu_seconds,
        output_bytes=request.limits.output_bytes,
    )

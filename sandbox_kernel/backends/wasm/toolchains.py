"""The compilers to WebAssembly, which run in a jail: Zig for C, C++ and Zig, rustc with a WASI target for Rust."""

from __future__ import annotations

import functools
import glob
import os
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sandbox_kernel.backends.checks import given_files
from sandbox_kernel.backends.outcome import run_result
from sandbox_kernel.backends.wasm.wasm_job import read_file, taken
from sandbox_kernel.errors import BackendUnavailable
from sandbox_kernel.jail.gate_messages import JobFile
from sandbox_kernel.jail.interpreter import find_python, runtime_grants
from sandbox_kernel.jail.pool import Pool
from sandbox_kernel.jail.run_job import Job, run_job
from sandbox_kernel.jail.walls import Places, Walls, sizes
from sandbox_kernel.languages.c_family import REMEDY, find_zig
from sandbox_kernel.languages.compile_cache import CompileCache, Compiled, default_folder
from sandbox_kernel.languages.compiled import Compilation, cache_key, compiler_identity, parts_beside
from sandbox_kernel.languages.recipe import Availability, ProgramPlan, StepBuilder, Toolchains, rlimits, search_path
from sandbox_kernel.languages.rust import find_rustc, wrap
from sandbox_kernel.limits import MIB, Limits
from sandbox_kernel.model import ExecRequest, ExecResult, Language
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


@dataclass(frozen=True, kw_only=True)
class Toolchain:
    """A compiler to WebAssembly."""

    executable: str
    #: Name and version, for reports.
    version: str
    #: Returns the host paths that it needs; builds libraries that are missing, for minutes.
    runtime: Callable[[], Sequence[Grant]]
    #: Returns the command that compiles the source of a request, in a file of this name, to ``OUT``.
    compilation: Callable[[ExecRequest, str, Places], Compilation]
    #: Whether the libraries that every program of the language needs are built.
    is_warm: bool = True


def find_toolchain(language: Language) -> Toolchain:
    """Return the compiler of a language. Raises ``BackendUnavailable`` that says what is missing and how to get it."""
    if language is Language.RUST:
        return find_wasi_rust("rustc")
    zig = find_zig()
    if zig is None:
        raise BackendUnavailable(f"{language} in WebAssembly is compiled by zig, which was not found; {REMEDY}")
    command, flags = _FLAGS[language]

    def compilation(request: ExecRequest, script: str, places: Places) -> Compilation:
        out = f"{places.work}/{OUT}"
        emit = [f"-femit-bin={out}"] if command == "build-exe" else ["-iquote", places.work, "-o", out]
        return Compilation(
            name=script,
            source=request.source,
            argv=[zig.executable, command, *flags, *emit, script],
            identity=compiler_identity(zig.executable, zig.version),
            env=zig.environment(command, places.tmp, target=TARGET),
        )

    return Toolchain(
        executable=zig.executable,
        version=f"zig {zig.version}",
        runtime=lambda: zig.runtime(command, TARGET),
        compilation=compilation,
        is_warm=zig.is_prepared(command, TARGET),
    )


@functools.lru_cache(maxsize=4)
def find_wasi_rust(path: str) -> Toolchain:
    """Return a rustc with the library of a WASI target, which is compiled already, and a linker for it."""
    try:
        rustc = find_rustc(path)
    except BackendUnavailable as error:
        raise BackendUnavailable(f"rust in WebAssembly: {error}; then {RUST_REMEDY}") from None
    libraries = os.path.join(rustc.sysroot, "lib", "rustlib")
    there = [name for name in RUST_TARGETS if glob.glob(os.path.join(libraries, name, "lib", "libstd-*.rlib"))]
    if not there:
        raise BackendUnavailable(f"{rustc.version} has no library for WebAssembly ({RUST_TARGETS[0]}); {RUST_REMEDY}")
    target, linker = there[0], list[str]()
    if not glob.glob(os.path.join(libraries, "*", "bin", "rust-lld")):
        # The newest of the system.
        found = [path for folder in os.get_exec_path() for path in glob.glob(os.path.join(folder, "wasm-ld-[0-9]*"))]
        found.sort(key=lambda path: int(re.sub(r"\D", "", os.path.basename(path)) or 0))
        linker = [plain] if (plain := shutil.which("wasm-ld")) is not None else found[-1:]
        if not linker:
            raise BackendUnavailable(f"rust has the target {target}, but no wasm-ld to link with; install lld")

    def compilation(request: ExecRequest, script: str, places: Places) -> Compilation:
        # Integer overflow is checked, as on the process backend.
        linking = ["-C", f"linker={linker[0]}", "-C", "linker-flavor=wasm-ld"] if linker else []
        argv = [
            rustc.executable, "--edition", rustc.edition, "--crate-name", "cell",
            "--target", target, *linking, "-C", "opt-level=1", "-C", "debug-assertions=on",
            "-C", "strip=debuginfo", "-o", f"{places.work}/{OUT}", script,
        ]  # fmt: skip
        return Compilation(
            name=script,
            source=wrap(request.source.decode()).encode(),
            argv=argv,
            identity=compiler_identity(rustc.executable, rustc.version),
            parts=".rs",
        )

    return Toolchain(
        executable=rustc.executable,
        version=f"{rustc.version}, {target}",
        runtime=lambda: runtime_grants([rustc.sysroot, rustc.executable, *linker]),
        compilation=compilation,
    )


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


def build(
    request: ExecRequest, script: str, pool: Pool, enforcer: str, stop: HasFileno | None, over: HereFolder | None = None
) -> tuple[Compiled, float] | ExecResult:
    """Compile a request, on a private copy of ``over``; returns its module and the seconds, or why there is none."""
    toolchain, python = find_toolchain(request.language), find_python("python3")
    work = toolchain.compilation(request, script, Places())
    builder = StepBuilder(
        config=Toolchains(),
        places=Places(),
        path=search_path(python.executable),
        rlimits=rlimits(enforcer, Limits(open_files=_OPEN_FILES), _MEMORY_MB, processes=None, reserved_mb=512),
    )
    alone = over is None or work.alone
    key = cache_key(request, builder, work) if alone else None
    cache = CompileCache(default_folder())
    known = cache.get(key) if key is not None else None
    if known is not None:
        return known, 0.0
    runtime = tuple(dict.fromkeys((*python.runtime, *toolchain.runtime())))
    walls = Walls(python.executable, runtime, (), *sizes(Limits(), _MEMORY_MB), enforcer=enforcer)
    with taken(pool, walls) as jail:
        places = jail.places
        if over is not None and not alone:
            over.fill(jail.box_fd, -1, request.files, walls.box_bytes).root.close()
            request = replace(request, files={})
        work = toolchain.compilation(request, script, places)
        parts = parts_beside(request, places.cell, work.parts) if work.parts is not None else ()
        job = Job(
            steps=(replace(builder, places=places).compiler(work.argv, work.env),),
            files=(*parts, JobFile(root=places.cell, name=script, data=work.source), *given_files(request, places)),
            timeout_s=request.timeout,
            memory_bytes=_MEMORY_MB * MIB,
            processes=request.limits.processes,
            cpu_seconds=request.limits.cpu_seconds,
            output_bytes=request.limits.output_bytes,
        )
        outcome = run_job(jail, job, stop=stop)
        plan = ProgramPlan(steps=tuple(job.steps))
        result = run_result(request, outcome, job, plan, backend="wasm", isolation="wasm")
        if not result.ok:
            return result
        built = Compiled(read_file(jail.box_fd, OUT), outcome.stderr.text.encode())
    if key is not None:
        cache.put(key, built)
    return built, outcome.duration_s

"""C, C++ and Zig for WebAssembly: Zig compiles inside a jail, and what comes out is a module like any other."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass

from sandbox_kernel.backends.outcome import make_result
from sandbox_kernel.backends.wasm_prepare import read_file
from sandbox_kernel.errors import BackendUnavailable
from sandbox_kernel.jail.cgroup import find_hierarchies
from sandbox_kernel.jail.control import JobFile
from sandbox_kernel.jail.interpreter import find_python
from sandbox_kernel.jail.jail import Jail
from sandbox_kernel.jail.job import Job, Stop, run_job
from sandbox_kernel.jail.pool import Pool
from sandbox_kernel.jail.start import has_own_disk
from sandbox_kernel.jail.walls import Places, Walls, sizes
from sandbox_kernel.languages.compile_cache import CompileCache, Compiled, default_folder
from sandbox_kernel.languages.compiled import Compilation, cache_key, compiler_identity
from sandbox_kernel.languages.recipe import SYSTEM_PATH, Availability, Kitchen, Plan, ProcessConfig, rlimits
from sandbox_kernel.languages.zig_toolchain import REMEDY, Zig, find_zig
from sandbox_kernel.limits import MIB, Limits
from sandbox_kernel.model import ExecRequest, ExecResult, Language, Status

TARGET = "wasm32-wasi"
_OUT = ".cell.wasm"
_MEMORY_MB = 2048
#: Zig holds each manifest of a library that it has to build again, and there are some six hundred.
_OPEN_FILES = 4096
#: Exceptions need a proposal that is switched off. Optimisation and target decide which built libraries fit, so they
#: are those of ``zig_toolchain``; symbols stay, because traps name functions by them.
_COMMON = ("-target", TARGET, "-Wall", "-Wextra")
_FLAGS = {
    Language.C: ("cc", ("-O1", *_COMMON)),
    Language.CPP: ("c++", ("-O1", "-std=c++20", "-fno-exceptions", *_COMMON)),
    Language.ZIG: ("build-exe", ("-target", TARGET, "--color", "off")),
}


@dataclass(frozen=True)
class Built:
    """A module, what its compiler said, and how long it took now."""

    module: bytes
    messages: bytes
    seconds: float


def native_availability(language: Language) -> Availability:
    """Whether Zig is here to compile this language."""
    zig = find_zig()
    if zig is None:
        return Availability(available=False, reason="zig was not found", remedy=REMEDY)
    return Availability(available=True, version=f"zig {zig.version}", origin=zig.executable)


@functools.lru_cache(maxsize=1)
def _cache() -> CompileCache:
    return CompileCache(default_folder())


def warm(language: Language) -> None:
    """Build the libraries that every program of the language needs; takes from seconds to minutes, once."""
    command, _ = _FLAGS[language]
    _zig(language).runtime(command, TARGET)


def build(request: ExecRequest, script: str, pool: Pool, enforcer: str, stop: Stop | None) -> Built | ExecResult:
    """Compile the request's source; the result when that fails or is stopped."""
    zig = _zig(request.language)
    command, _ = _FLAGS[request.language]
    key = cache_key(request, _kitchen(Places(), enforcer), _compilation(request, script, zig, Places()))
    known = _cache().get(key)
    if known is not None:
        return Built(known.program, known.messages, 0.0)
    python = find_python("python3")
    runtime = tuple(dict.fromkeys((*python.runtime, *zig.runtime(command, TARGET))))
    jail = pool.take(Walls(python.executable, runtime, (), *sizes(Limits(), _MEMORY_MB), enforcer=enforcer))
    try:
        job = _job(request, script, zig, jail)
        outcome = run_job(jail, job, stop=stop)
        result = make_result(request, outcome, job, Plan(steps=tuple(job.steps)), backend="wasm", isolation="wasm")
        if result.status is not Status.OK:
            return result
        module, messages = read_file(jail.box_fd, _OUT), outcome.stderr.text.encode()
    finally:
        jail.destroy()
        jail.forget()
    _cache().put(key, Compiled(module, messages))
    return Built(module, messages, outcome.duration_s)


def _compilation(request: ExecRequest, script: str, zig: Zig, places: Places) -> Compilation:
    command, flags = _FLAGS[request.language]
    out = f"{places.work}/{_OUT}"
    emit = [f"-femit-bin={out}"] if command == "build-exe" else ["-iquote", places.work, "-o", out]
    return Compilation(
        name=script,
        source=request.source,
        argv=[zig.executable, command, *flags, *emit, script],
        identity=compiler_identity(zig.executable, zig.version),
        env=zig.environment(command, places.tmp, target=TARGET),
    )


def _kitchen(places: Places, enforcer: str) -> Kitchen:
    python = find_python("python3")
    exact = find_hierarchies() is not None
    return Kitchen(
        config=ProcessConfig(),
        places=places,
        path=f"{os.path.dirname(python.executable)}:{SYSTEM_PATH}",
        rlimits=rlimits(
            Limits(open_files=_OPEN_FILES),
            _MEMORY_MB,
            exact_memory=exact,
            processes=None,
            own_disk=has_own_disk(enforcer),
            reserved_mb=512,
        ),
    )


def _job(request: ExecRequest, script: str, zig: Zig, jail: Jail) -> Job:
    places = jail.places
    work = _compilation(request, script, zig, places)
    kitchen = _kitchen(places, jail.walls.enforcer or "")
    given = [
        JobFile(root=places.work, name=name, data=data.encode() if isinstance(data, str) else data)
        for name, data in request.files.items()
    ]
    return Job(
        steps=(kitchen.compiler(work.argv, work.env),),
        files=(JobFile(root=places.cell, name=script, data=request.source), *given),
        timeout_s=request.timeout,
        memory_bytes=_MEMORY_MB * MIB,
        processes=request.limits.processes,
        cpu_seconds=request.limits.cpu_seconds,
        output_bytes=request.limits.output_bytes,
    )


def _zig(language: Language) -> Zig:
    zig = find_zig()
    if zig is None:
        raise BackendUnavailable(f"{language} in WebAssembly is compiled by zig, which was not found; {REMEDY}")
    return zig

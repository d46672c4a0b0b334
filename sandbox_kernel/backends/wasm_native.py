"""C, C++ and Zig for WebAssembly: Zig compiles inside a jail, and what comes out is a module like any other."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass

from sandbox_kernel.backends.outcome import make_result
from sandbox_kernel.errors import BackendUnavailable
from sandbox_kernel.jail.cgroup import find_hierarchies
from sandbox_kernel.jail.control import JobFile
from sandbox_kernel.jail.interpreter import find_python
from sandbox_kernel.jail.job import Job, Stop, run_job
from sandbox_kernel.jail.pool import Pool
from sandbox_kernel.jail.walls import CELL, WORK, Walls, sizes
from sandbox_kernel.languages.compile_cache import CompileCache, Compiled, default_folder
from sandbox_kernel.languages.compiled import Compilation, cache_key, compiler_identity
from sandbox_kernel.languages.recipe import SYSTEM_PATH, Availability, Kitchen, Plan, ProcessConfig, rlimits
from sandbox_kernel.languages.zig_toolchain import REMEDY, Zig, find_zig
from sandbox_kernel.limits import MIB, Limits
from sandbox_kernel.model import ExecRequest, ExecResult, Language, Status

TARGET = "wasm32-wasi"
_OUT = "cell.wasm"
_MEMORY_MB = 2048
#: Exceptions need a proposal that is switched off. Optimisation and target decide which built libraries fit, so they
#: are those of ``zig_toolchain``; symbols stay, because traps name functions by them.
_COMMON = ("-target", TARGET, "-Wall", "-Wextra", "-iquote", WORK)
_FLAGS = {
    Language.C: ("cc", ("-O1", *_COMMON)),
    Language.CPP: ("c++", ("-O1", "-std=c++20", "-fno-exceptions", *_COMMON)),
    Language.ZIG: ("build-exe", ("-target", TARGET, "-O", "ReleaseSmall")),
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


def build(request: ExecRequest, script: str, pool: Pool, stop: Stop | None) -> Built | ExecResult:
    """Compile the request's source; the result when that fails or is stopped."""
    zig = _zig(request.language)
    command, flags = _FLAGS[request.language]
    python = find_python("python3")
    emit = [f"-femit-bin={CELL}/{_OUT}"] if command == "build-exe" else ["-o", f"{CELL}/{_OUT}"]
    work = Compilation(
        name=script,
        source=request.source,
        argv=[zig.executable, command, *flags, *emit, script],
        identity=compiler_identity(zig.executable, zig.version),
        env=zig.environment(command, target=TARGET),
    )
    kitchen = Kitchen(
        config=ProcessConfig(),
        path=f"{os.path.dirname(python.executable)}:{SYSTEM_PATH}",
        rlimits=rlimits(Limits(), _MEMORY_MB, exact_memory=find_hierarchies() is not None, processes=None),
    )
    key = cache_key(request, kitchen, work)
    known = _cache().get(key)
    if known is not None:
        return Built(known.program, known.messages, 0.0)
    runtime = tuple(dict.fromkeys((*python.runtime, *zig.runtime(command, TARGET))))
    box, tmp, shm = sizes(Limits(), _MEMORY_MB)
    step = kitchen.compiler(work.argv, work.env, keeps=(f"{CELL}/{_OUT}",))
    given = [
        JobFile(root=WORK, name=name, data=data.encode() if isinstance(data, str) else data)
        for name, data in request.files.items()
    ]
    job = Job(
        steps=(step,),
        files=(JobFile(root=CELL, name=script, data=request.source), *given),
        timeout_s=request.timeout,
        memory_bytes=_MEMORY_MB * MIB,
        processes=request.limits.processes,
        cpu_seconds=request.limits.cpu_seconds,
        output_bytes=request.limits.output_bytes,
    )
    jail = pool.take(Walls(python.executable, runtime, (), box, tmp, shm))
    try:
        outcome = run_job(jail, job, stop=stop)
    finally:
        jail.forget()
    result = make_result(request, outcome, job, Plan(steps=(step,)), backend="wasm", isolation="wasm")
    if result.status is not Status.OK or len(outcome.kept) != 2:
        return result
    module, messages = outcome.kept
    _cache().put(key, Compiled(module, messages))
    return Built(module, messages, outcome.duration_s)


def _zig(language: Language) -> Zig:
    zig = find_zig()
    if zig is None:
        raise BackendUnavailable(f"{language} in WebAssembly is compiled by zig, which was not found; {REMEDY}")
    return zig

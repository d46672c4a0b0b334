"""Compiles the source of compiled languages to WebAssembly modules, inside a jail."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from sandbox_kernel.backends.results.outcome import make_result
from sandbox_kernel.backends.wasm.prepare import read_file
from sandbox_kernel.backends.wasm.toolchains import OUT, Toolchain, find_toolchain
from sandbox_kernel.jail.cgroups.cgroup import find_hierarchies
from sandbox_kernel.jail.core.gate_messages import JobFile
from sandbox_kernel.jail.core.interpreter import find_python
from sandbox_kernel.jail.core.jail import Jail
from sandbox_kernel.jail.core.job import Job
from sandbox_kernel.jail.core.walls import Places, Walls, sizes
from sandbox_kernel.jail.pool import Pool
from sandbox_kernel.jail.run.run_job import run_job
from sandbox_kernel.jail.start import has_own_disk
from sandbox_kernel.jail.streams.stop import Stop
from sandbox_kernel.languages.compile_cache import CompileCache, Compiled, default_folder
from sandbox_kernel.languages.compiled import cache_key, parts_beside
from sandbox_kernel.languages.recipe import ProcessConfig, ProgramPlan, StepBuilder, rlimits, search_path
from sandbox_kernel.limits import MIB, Limits
from sandbox_kernel.model import ExecRequest, ExecResult, Status
from sandbox_kernel.workspace.here.here_folder import HereFolder

_MEMORY_MB = 2048
#: Most open files of the compiler. Zig keeps some six hundred open when it builds its libraries again.
_OPEN_FILES = 4096


@dataclass(frozen=True)
class Built:
    """A module, the messages of its compiler, and the seconds that this compilation took."""

    module: bytes
    messages: bytes
    seconds: float


@functools.lru_cache(maxsize=1)
def _cache() -> CompileCache:
    return CompileCache(default_folder())


def build(
    request: ExecRequest, script: str, pool: Pool, enforcer: str, stop: Stop | None, over: HereFolder | None = None
) -> Built | ExecResult:
    """Compile the source of a request. Returns the result of the run when that fails or is stopped.

    ``over`` is the user's folder that the program works on: the compiler sees a private copy of it. What may include
    files of that folder is not kept.
    """
    toolchain = find_toolchain(request.language)
    work = toolchain.compilation(request, script, Places())
    alone = over is None or work.alone
    key = cache_key(request, _step_builder(Places(), enforcer), work) if alone else None
    known = _cache().get(key) if key is not None else None
    if known is not None:
        return Built(known.program, known.messages, 0.0)
    python = find_python("python3")
    runtime = tuple(dict.fromkeys((*python.runtime, *toolchain.runtime())))
    walls = Walls(python.executable, runtime, (), *sizes(Limits(), _MEMORY_MB), enforcer=enforcer)
    jail = pool.take(walls)
    try:
        if over is not None and not alone:
            over.fill_copy(jail.box_fd, request.files, walls.box_bytes).layer.close()
            request = replace(request, files={})
        job = _job(request, script, toolchain, jail)
        outcome = run_job(jail, job, stop=stop)
        result = make_result(
            request, outcome, job, ProgramPlan(steps=tuple(job.steps)), backend="wasm", isolation="wasm"
        )
        if result.status is not Status.OK:
            return result
        module, messages = read_file(jail.box_fd, OUT), outcome.stderr.text.encode()
    finally:
        jail.destroy()
        jail.forget()
    if key is not None:
        _cache().put(key, Compiled(module, messages))
    return Built(module, messages, outcome.duration_s)


def _step_builder(places: Places, enforcer: str) -> StepBuilder:
    python = find_python("python3")
    exact = find_hierarchies() is not None
    return StepBuilder(
        config=ProcessConfig(),
        places=places,
        path=search_path(python.executable),
        rlimits=rlimits(
            Limits(open_files=_OPEN_FILES),
            _MEMORY_MB,
            exact_memory=exact,
            processes=None,
            own_disk=has_own_disk(enforcer),
            reserved_mb=512,
        ),
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
        steps=(builder.compiler(work.argv, work.env, style=work.style),),
        files=(*parts, JobFile(root=places.cell, name=script, data=work.source), *given),
        timeout_s=request.timeout,
        memory_bytes=_MEMORY_MB * MIB,
        processes=request.limits.processes,
        cpu_seconds=request.limits.cpu_seconds,
        output_bytes=request.limits.output_bytes,
    )

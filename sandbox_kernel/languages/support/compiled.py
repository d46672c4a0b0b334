"""From a source and a compiler to the steps of a compiled language: compile and run, or run what is remembered."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sandbox_kernel.jail.core.gate_messages import JobFile
from sandbox_kernel.languages.support.recipe import ProgramPlan, StepBuilder
from sandbox_kernel.model import ExecRequest, notes

#: The compiled program, beside the cell.
PROGRAM = "cell"
CACHED = notes.compile_cached()


@dataclass(frozen=True, kw_only=True)
class Compilation:
    """One source, the command that compiles it inside the jail, and who that compiler is."""

    name: str
    source: bytes
    argv: Sequence[str]
    identity: str
    env: Mapping[str, str] = field(default_factory=dict)
    style: str = "plain"
    #: False for a source that asks for the time of its compilation, or the like.
    cacheable: bool = True
    #: True for a source that certainly pulls in no other file of the request: those do not decide what is compiled.
    alone: bool = False
    #: Files of the request with this ending are put beside the cell too: other parts of the program.
    parts: str | None = None


def compiler_identity(executable: str, version: str) -> str:
    """Which compiler this is: another version, or another build under the same path, is another one."""
    found = os.stat(executable)
    return f"{os.path.realpath(executable)} {found.st_size} {found.st_mtime_ns} {version}"


def compiled_plan(request: ExecRequest, kitchen: StepBuilder, work: Compilation) -> ProgramPlan:
    """Compile inside the walls and the deadline, then run; only run when this very program was compiled before."""
    cell = kitchen.places.cell
    program = f"{cell}/{PROGRAM}"
    run = kitchen.program(request, [program, *request.args])
    key = cache_key(request, kitchen, work) if kitchen.cache is not None and work.cacheable else None
    known = kitchen.cache.get(key) if kitchen.cache is not None and key is not None else None
    parts = parts_beside(request, cell, work.parts) if work.parts is not None else ()
    sources = (*parts, JobFile(root=cell, name=work.name, data=work.source))
    if known is not None:
        # With its sources, which stack traces quote.
        file = JobFile(root=cell, name=PROGRAM, data=known.program, mode=0o755)
        return ProgramPlan(steps=(run,), files=(*sources, file), notes=(CACHED,), messages=known.messages)
    keeps = (program,) if key is not None else ()
    build = kitchen.compiler(work.argv, work.env, style=work.style, keeps=keeps)
    return ProgramPlan(steps=(build, run), files=sources, cache_key=key)


def parts_beside(request: ExecRequest, cell: str, ending: str) -> tuple[JobFile, ...]:
    """The request's files with this ending, beside the cell: compilers look for other parts of a program there."""
    return tuple(
        JobFile(root=cell, name=name, data=data.encode() if isinstance(data, str) else data)
        for name, data in request.files.items()
        if name.endswith(ending)
    )


def cache_key(request: ExecRequest, kitchen: StepBuilder, work: Compilation) -> str:
    """A digest of everything that the compiler can see: the source, the files beside it, the command, itself."""
    given = {} if work.alone else request.files
    files = {name: data.encode() if isinstance(data, str) else data for name, data in given.items()}
    seen = {
        "source": hashlib.sha256(work.source).hexdigest(),
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())},
        "argv": list(work.argv),
        "env": dict(sorted(work.env.items())),
        "path": kitchen.path,
        "identity": work.identity,
        "style": work.style,
    }
    return hashlib.sha256(json.dumps(seen, sort_keys=True).encode()).hexdigest()

"""Makes the steps of a compiled language: compile and run, or run the cached program."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import field

from sandbox_kernel.jail.gate_messages import JobFile
from sandbox_kernel.languages.recipe import ProgramPlan, StepBuilder
from sandbox_kernel.model import ExecRequest, notes
from sandbox_kernel.util.values import dataclass

#: The name of the compiled program, in the folder of the cell.
PROGRAM = "cell"
CACHED = notes.compile_cached()


@dataclass(frozen=True, kw_only=True)
class Compilation:
    """One source, the command that compiles it inside the jail, and the identity of the compiler."""

    name: str
    source: bytes
    argv: Sequence[str]
    identity: str
    env: Mapping[str, str] = field(default_factory=dict)
    #: False for a source that uses the time of its compilation, or the like.
    cacheable: bool = True
    #: True if the source certainly uses no other file of the request, so that these are no part of the key.
    alone: bool = False
    #: Files of the request with this ending are put beside the cell too, as other parts of the program.
    parts: str | None = None


def compiler_identity(executable: str, version: str) -> str:
    """Return a text that identifies a compiler. Another version or build at the same path has another text."""
    found = os.stat(executable)
    return f"{os.path.realpath(executable)} {found.st_size} {found.st_mtime_ns} {version}"


def compiled_plan(request: ExecRequest, builder: StepBuilder, work: Compilation) -> ProgramPlan:
    """Compile inside the jail and its time limit, then run. If the same program is in the cache, only run it."""
    cell = builder.places.cell
    program = f"{cell}/{PROGRAM}"
    run = builder.program(request, [program, *request.args])
    key = cache_key(request, builder, work) if builder.cache is not None and work.cacheable else None
    known = builder.cache.get(key) if builder.cache is not None and key is not None else None
    parts = parts_beside(request, cell, work.parts) if work.parts is not None else ()
    sources = (*parts, JobFile(root=cell, name=work.name, data=work.source))
    if known is not None:
        # The sources are added too, because stack traces quote them.
        file = JobFile(root=cell, name=PROGRAM, data=known.program, mode=0o755)
        return ProgramPlan(steps=(run,), files=(*sources, file), notes=(CACHED,), messages=known.messages)
    keeps = (program,) if key is not None else ()
    build = builder.compiler(work.argv, work.env, keeps=keeps)
    return ProgramPlan(steps=(build, run), files=sources, cache_key=key)


def parts_beside(request: ExecRequest, cell: str, ending: str) -> tuple[JobFile, ...]:
    """Return the request's files with this ending, to be put beside the cell, where compilers look for them."""
    return tuple(
        JobFile(root=cell, name=name, data=data.encode() if isinstance(data, str) else data)
        for name, data in request.files.items()
        if name.endswith(ending)
    )


def cache_key(request: ExecRequest, builder: StepBuilder, work: Compilation) -> str:
    """Return a digest of everything that the compiler can read: source, files beside it, command, compiler."""
    given = {} if work.alone else request.files
    files = {name: data.encode() if isinstance(data, str) else data for name, data in given.items()}
    seen = {
        "source": hashlib.sha256(work.source).hexdigest(),
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())},
        "argv": list(work.argv),
        "env": dict(sorted(work.env.items())),
        "path": builder.path,
        "identity": work.identity,
    }
    return hashlib.sha256(json.dumps(seen, sort_keys=True).encode()).hexdigest()

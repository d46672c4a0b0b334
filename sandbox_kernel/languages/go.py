"""Go, if the host has it: one file of package main, compiled with the standard library only."""

from __future__ import annotations

import re

from sandbox_kernel.errors import BackendUnavailable
from sandbox_kernel.languages.compiled import PROGRAM, Compilation, compiled_plan, compiler_identity
from sandbox_kernel.languages.interpreters import find_program, program_runtime
from sandbox_kernel.languages.recipe import Availability, ProcessConfig, ProgramPlan, Recipe, StepBuilder
from sandbox_kernel.model import ExecRequest, Language
from sandbox_kernel.policy import Grant

SCRIPT = "cell.go"
REMEDY = "apt install golang-go (or your system's package of it)"
_FIND = (("go",), ("version",))
_PACKAGE = re.compile(rb"^[^\S\n]*+package\s", re.MULTILINE)
#: No network, no modules, no C; few threads, because they count as processes.
_ENV = {
    "CGO_ENABLED": "0", "GO111MODULE": "off", "GOFLAGS": "-p=2", "GOMAXPROCS": "2", "GOTELEMETRY": "off",
    "GOTOOLCHAIN": "local",
}  # fmt: skip


class Go(Recipe):
    """The Go toolchain of the host."""

    language = Language.GO
    minimum_memory_mb = 192
    reserved_mb = 512

    def probe(self, config: ProcessConfig) -> Availability:
        """See ``Recipe``."""
        try:
            program, version = find_program(*_FIND)
        except BackendUnavailable as error:
            return Availability(available=False, reason=str(error), remedy=REMEDY)
        return Availability(available=True, version=version, origin=program)

    def runtime(self, config: ProcessConfig) -> tuple[Grant, ...]:
        """See ``Recipe``."""
        return program_runtime(find_program(*_FIND)[0])

    def plan(self, request: ExecRequest, builder: StepBuilder) -> ProgramPlan:
        """See ``Recipe``. The package clause may be left out."""
        program, version = find_program(*_FIND)
        source = request.source if _PACKAGE.search(request.source) else b"package main; " + request.source
        argv = [program, "build", "-o", f"{builder.places.cell}/{PROGRAM}", SCRIPT]
        identity = compiler_identity(program, version)
        tmp = builder.places.tmp
        env = {**_ENV, "GOCACHE": f"{tmp}/go-cache", "GOPATH": f"{tmp}/go"}
        work = Compilation(
            name=SCRIPT, source=source, argv=argv, identity=identity, env=env, alone=b"go:embed" not in source
        )
        return compiled_plan(request, builder, work)

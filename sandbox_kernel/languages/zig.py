"""Zig, from the registry package: one file with a ``main``, compiled as a debug build: a crash names its line."""

from __future__ import annotations

import re

from sandbox_kernel.errors import BackendUnavailable
from sandbox_kernel.languages.support.compiled import PROGRAM, Compilation, compiled_plan, compiler_identity
from sandbox_kernel.languages.support.recipe import Availability, ProcessConfig, ProgramPlan, Recipe, StepBuilder
from sandbox_kernel.languages.support.zig_toolchain import REMEDY, Zig, find_zig
from sandbox_kernel.model import ExecRequest, Language
from sandbox_kernel.policy import Grant

SCRIPT = "cell.zig"
COMMAND = "build-exe"
#: Everything that can refer to another file.
_OTHER_FILES = re.compile(rb'@import(?!\("(?:std|builtin|root)"\))|@embedFile|@c|asm')


def the_zig() -> Zig:
    """Return Zig. Raises ``BackendUnavailable`` when the package is not installed."""
    zig = find_zig()
    if zig is None:
        raise BackendUnavailable(f"the package ziglang is not installed; {REMEDY}")
    return zig


class ZigLanguage(Recipe):
    """The Zig compiler, which also serves as a C compiler."""

    language = Language.ZIG
    minimum_memory_mb = 512
    reserved_mb = 512

    def probe(self, config: ProcessConfig) -> Availability:
        """See ``Recipe``."""
        zig = find_zig()
        if zig is None:
            return Availability(available=False, reason="the package ziglang is not installed", remedy=REMEDY)
        return Availability(available=True, version=zig.readiness(COMMAND), origin=zig.executable)

    def runtime(self, config: ProcessConfig) -> tuple[Grant, ...]:
        """See ``Recipe``."""
        return the_zig().runtime(COMMAND)

    def plan(self, request: ExecRequest, builder: StepBuilder) -> ProgramPlan:
        """See ``Recipe``."""
        zig = the_zig()
        argv = [zig.executable, COMMAND, "--color", "off", f"-femit-bin={builder.places.cell}/{PROGRAM}", SCRIPT]
        work = Compilation(
            name=SCRIPT,
            source=request.source,
            argv=argv,
            identity=compiler_identity(zig.executable, zig.version),
            env=zig.environment(COMMAND, builder.places.tmp),
            parts=".zig",
            alone=not _OTHER_FILES.search(request.source),
        )
        return compiled_plan(request, builder, work)

"""C and C++: the system's compiler if there is one, else Zig's (``zig cc``) from a registry package."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from dataclasses import dataclass

from sandbox_kernel.errors import BackendUnavailable
from sandbox_kernel.jail.interpreter import is_system, runtime_grants
from sandbox_kernel.languages.compiled import PROGRAM, Compilation, compiled_plan, compiler_identity
from sandbox_kernel.languages.recipe import Availability, ProcessConfig, ProgramPlan, Recipe, StepBuilder
from sandbox_kernel.languages.zig_toolchain import REMEDY, Zig, find_zig
from sandbox_kernel.model import ExecRequest, Language
from sandbox_kernel.policy import Grant
from sandbox_kernel.policy.written_folders import host_program

#: Macros with a different value at every compilation.
_TIME_MACROS = re.compile(rb"__(DATE|TIME|TIMESTAMP)__")
#: Includes of system headers. Without these, the next pattern finds everything that can refer to another file; a word
#: may be split between two lines.
_SYSTEM_HEADERS = re.compile(rb"^[ \t]*#[ \t]*include[ \t]*<\w[\w/+-]*(?:\.\w+)?>", re.MULTILINE)
_OTHER_FILES = re.compile(rb"include|embed|import|incbin|asm|\\\s*\n|\?\?")


@dataclass(frozen=True)
class CCompiler:
    """A compiler: the command that starts it, its version text, and the Zig that it belongs to, if any."""

    command: tuple[str, ...]
    version: str
    zig: Zig | None = None

    @property
    def origin(self) -> str:
        """The command, for the report."""
        return " ".join(self.command)


@functools.lru_cache(maxsize=16)
def find_compiler(path: str, names: tuple[str, ...], zig_command: str) -> CCompiler:
    """Return the compiler of this name or path. The default name also tries the usual names, then Zig.

    ``zig`` selects Zig's compiler. Raises ``BackendUnavailable``, with what to install, when there is none.
    """
    usual = names if path == names[0] else (path,)
    for name in () if path == "zig" else usual:
        found = shutil.which(name)
        if found is not None:
            host_program(found)
            answer = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=30, check=False)
            if answer.returncode == 0 and answer.stdout:
                return CCompiler((found,), answer.stdout.splitlines()[0])
    zig = find_zig() if path in ("zig", names[0]) else None
    if zig is None:
        raise BackendUnavailable(f"no compiler: {', '.join(usual)} was not found", REMEDY)
    return CCompiler((zig.executable, zig_command), f"zig {zig.version}", zig)


class CFamily(Recipe):
    """What C and C++ share; each subclass names its compilers and flags."""

    script: str
    names: tuple[str, ...]
    flags: tuple[str, ...]
    libraries: tuple[str, ...] = ()
    zig_command: str

    def compiler_path(self, config: ProcessConfig) -> str:
        """Return the configured compiler."""
        raise NotImplementedError

    def compiler(self, config: ProcessConfig) -> CCompiler:
        """Return the compiler for this configuration."""
        return find_compiler(self.compiler_path(config), self.names, self.zig_command)

    def probe(self, config: ProcessConfig) -> Availability:
        """See ``Recipe``."""
        try:
            found = self.compiler(config)
        except BackendUnavailable as error:
            return Availability(available=False, reason=error.reason, remedy=REMEDY)
        version = found.version if found.zig is None else found.zig.readiness(self.zig_command)
        return Availability(available=True, version=version, origin=found.origin)

    def runtime(self, config: ProcessConfig) -> tuple[Grant, ...]:
        """See ``Recipe``. A compiler outside of the system folders comes with the folders around it."""
        found = self.compiler(config)
        if found.zig is not None:
            return found.zig.runtime(self.zig_command)
        real = os.path.realpath(found.command[0])
        return () if is_system(real) else runtime_grants([found.command[0], os.path.dirname(os.path.dirname(real))])

    def plan(self, request: ExecRequest, builder: StepBuilder) -> ProgramPlan:
        """See ``Recipe``. Headers are looked up in the work folder."""
        found = self.compiler(builder.config)
        work, cell = builder.places.work, builder.places.cell
        flags = [*self.flags, "-Wall", "-Wextra", "-pthread", "-iquote", work, "-o", f"{cell}/{PROGRAM}"]
        job = Compilation(
            name=self.script,
            source=request.source,
            argv=[*found.command, *flags, self.script, *self.libraries],
            identity=compiler_identity(found.command[0], found.version),
            env=found.zig.environment(self.zig_command, builder.places.tmp) if found.zig is not None else {},
            cacheable=not _TIME_MACROS.search(request.source),
            alone=not _OTHER_FILES.search(_SYSTEM_HEADERS.sub(b"", request.source)),
        )
        return compiled_plan(request, builder, job)


class C(CFamily):
    """The system's C compiler, or Zig's."""

    language = Language.C
    minimum_memory_mb = 64
    script = "cell.c"
    names = ("cc", "gcc", "clang")
    flags = ("-std=gnu17", "-O1")
    libraries = ("-lm",)
    zig_command = "cc"

    def compiler_path(self, config: ProcessConfig) -> str:
        """See ``CFamily``."""
        return config.cc_path


class Cpp(CFamily):
    """The system's C++ compiler, or Zig's."""

    language = Language.CPP
    minimum_memory_mb = 128
    script = "cell.cpp"
    names = ("c++", "g++", "clang++")
    flags = ("-std=gnu++20", "-O1")
    zig_command = "c++"

    def compiler_path(self, config: ProcessConfig) -> str:
        """See ``CFamily``."""
        return config.cxx_path

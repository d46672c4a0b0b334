"""Ruby, Lua, Perl, PHP, R and Go, where the host has them, and shell commands."""

from __future__ import annotations

import functools
import os
import re
import shutil

from sandbox_kernel.errors import BackendUnavailable
from sandbox_kernel.jail.gate_messages import JobFile
from sandbox_kernel.jail.interpreter import answer_of, runtime_grants
from sandbox_kernel.languages.compiled import PROGRAM, Compilation, compiled_plan, compiler_identity
from sandbox_kernel.languages.recipe import ProgramPlan, Recipe, StepBuilder, Toolchains
from sandbox_kernel.model import ExecRequest, Language
from sandbox_kernel.policy import Grant
from sandbox_kernel.policy.written_folders import host_program
from sandbox_kernel.util.values import dataclass


@functools.lru_cache(maxsize=32)
def find_program(names: tuple[str, ...], version_argv: tuple[str, ...], package: str) -> tuple[str, str]:
    """Return the first of these programs that starts, and its version. Raises ``BackendUnavailable`` if none does."""
    for name in names:
        found = shutil.which(name)
        if found is None:
            continue
        answer = answer_of([host_program(found), *version_argv])
        version = re.search(r"\d+(\.\d+)+\w*", answer.stdout + answer.stderr)
        if answer.returncode == 0 and version is not None:
            return found, version.group()
    remedy = f"apt install {package} (or your system's package of it)"
    raise BackendUnavailable(f"{' or '.join(names)} was not found on PATH", remedy)


@dataclass(frozen=True, kw_only=True)
class Scripted(Recipe):
    """An interpreter that is found on the host and runs the cell as a file. ``package`` is Debian's package of it."""

    language: Language
    script: str
    names: tuple[str, ...]
    package: str
    version_argv: tuple[str, ...] = ("--version",)
    #: Before those of the request. ``{path}`` is the file, ``{work}`` and ``{guest}`` are places of the jail.
    arguments: tuple[str, ...] = ("{path}",)
    #: What a cell without ``opened_by`` gets before its first line.
    opened_by: bytes = b""
    opening: bytes = b""
    #: A folder that it needs besides its own.
    also_shown: str = ""
    minimum_memory_mb: int = 16

    def find(self, config: Toolchains) -> tuple[str, str]:
        """See ``Recipe``."""
        return find_program(self.names, self.version_argv, self.package)

    def runtime(self, config: Toolchains) -> tuple[Grant, ...]:
        """See ``Recipe``."""
        return (*super().runtime(config), *(runtime_grants([self.also_shown]) if self.also_shown else ()))

    def plan(self, request: ExecRequest, builder: StepBuilder) -> ProgramPlan:
        """See ``Recipe``. The file has the same lines as the cell."""
        places = builder.places
        source = request.source if self.opened_by in request.source else self.opening + request.source
        path = f"{places.cell}/{self.script}"
        own = [each.format(path=path, work=places.work, guest=places.guest) for each in self.arguments]
        step = builder.program(request, [self.find(builder.config)[0], *own, *request.args])
        return ProgramPlan(steps=(step,), files=(JobFile(root=places.cell, name=self.script, data=source),))


LUA = Scripted(
    language=Language.LUA,
    script="cell.lua",
    names=("lua5.4", "lua", "lua5.3", "luajit"),
    package="lua5.4",
    version_argv=("-v",),
)
PERL = Scripted(
    language=Language.PERL,
    script="cell.pl",
    names=("perl",),
    package="perl",
    version_argv=("-e", "printf '%vd', $^V"),
    arguments=("-I{work}", "{path}"),
)
#: Without the host's php.ini. PHP's own memory limit is off, because the jail limits memory.
PHP = Scripted(
    language=Language.PHP,
    script="cell.php",
    names=("php",),
    package="php-cli",
    arguments=(
        *("-n", "-d", "display_errors=stderr", "-d", "log_errors=0", "-d", "html_errors=0", "-d", "memory_limit=-1"),
        "{path}",
    ),
    opened_by=b"<?",
    opening=b"<?php ",
    minimum_memory_mb=32,
)
RUBY = Scripted(
    language=Language.RUBY,
    script="cell.rb",
    names=("ruby",),
    package="ruby",
    arguments=("-I{work}", "{path}"),
    minimum_memory_mb=48,
)
#: Without profiles and saved workspaces. Run as a plain file, R would not print values and not say where an error was.
#: Debian keeps its configuration in /etc, with links from R's own folder.
R = Scripted(
    language=Language.R,
    script="cell.R",
    names=("Rscript",),
    package="r-base-core",
    arguments=(
        *("--vanilla", "-e"),
        "local({{ cell <- '{path}'; source('{guest}/scripts/r_run.R', local = TRUE) }})",
    ),
    also_shown="/etc/R",
    minimum_memory_mb=128,
)

GO_SCRIPT = "cell.go"
#: The beginning of an import of a folder beside the program, which may be written with escapes.
_RELATIVE = re.compile(rb"[\"`][./\\]")
_PACKAGE = re.compile(rb"^[^\S\n]*+package\s", re.MULTILINE)
#: No network, no modules, no C; few threads, because they count as processes.
_GO_ENV = {
    "CGO_ENABLED": "0", "GO111MODULE": "off", "GOFLAGS": "-p=2", "GOMAXPROCS": "2", "GOTELEMETRY": "off",
    "GOTOOLCHAIN": "local",
}  # fmt: skip


class Go(Recipe):
    """The Go toolchain of the host: one file of package main, compiled with the standard library only."""

    language = Language.GO
    minimum_memory_mb = 192
    reserved_mb = 512

    def find(self, config: Toolchains) -> tuple[str, str]:
        """See ``Recipe``."""
        return find_program(("go",), ("version",), "golang-go")

    def plan(self, request: ExecRequest, builder: StepBuilder) -> ProgramPlan:
        """See ``Recipe``. The package clause may be left out."""
        program, version = self.find(builder.config)
        source = request.source if _PACKAGE.search(request.source) else b"package main; " + request.source
        tmp = builder.places.tmp
        work = Compilation(
            name=GO_SCRIPT,
            source=source,
            argv=[program, "build", "-o", f"{builder.places.cell}/{PROGRAM}", GO_SCRIPT],
            identity=compiler_identity(program, version),
            env={**_GO_ENV, "GOCACHE": f"{tmp}/go-cache", "GOPATH": f"{tmp}/go"},
            alone=b"go:embed" not in source and not _RELATIVE.search(source),
        )
        return compiled_plan(request, builder, work)


SHELL_SCRIPT = "cell.sh"


def shell() -> str:
    """Return the path of bash, else sh. System folders are the same inside, so the host's path is valid there."""
    return next((path for path in ("/usr/bin/bash", "/bin/bash") if os.path.exists(path)), "/bin/sh")


class CommandLanguage(Recipe):
    """A shell script, with the system's tools. Its exit code or signal becomes the result's."""

    language = Language.COMMAND

    def find(self, config: Toolchains) -> tuple[str, str]:
        """See ``Recipe``."""
        program = shell()
        if not os.path.exists(program):
            raise BackendUnavailable("no shell was found", "install bash")
        answer = answer_of([program, "--version"], {})
        said = answer.stdout.splitlines() if answer.returncode == 0 else []
        return program, said[0] if said else os.path.basename(os.path.realpath(program))

    def plan(self, request: ExecRequest, builder: StepBuilder) -> ProgramPlan:
        """See ``Recipe``. The script is a file, because an argument may not be longer than 128 KiB."""
        file = JobFile(root=builder.places.cell, name=SHELL_SCRIPT, data=request.source)
        step = builder.program(request, [shell(), f"{builder.places.cell}/{SHELL_SCRIPT}", *request.args])
        return ProgramPlan(steps=(step,), files=(file,))


RECIPES = (LUA, PERL, PHP, RUBY, R, Go(), CommandLanguage())

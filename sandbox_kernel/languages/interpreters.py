"""Ruby, Lua, Perl, PHP and R, where the host has them: a program, the file that it runs, the version that it prints."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Sequence

from sandbox_kernel.errors import BackendUnavailable
from sandbox_kernel.jail.gate_messages import JobFile
from sandbox_kernel.jail.interpreter import is_system, runtime_grants
from sandbox_kernel.languages.compiled import PROGRAM, Compilation, compiled_plan, compiler_identity
from sandbox_kernel.languages.recipe import Availability, ProgramPlan, Recipe, StepBuilder, Toolchains
from sandbox_kernel.model import ExecRequest, Language
from sandbox_kernel.policy import Grant
from sandbox_kernel.policy.written_folders import host_program


@functools.lru_cache(maxsize=32)
def find_program(names: tuple[str, ...], version_argv: tuple[str, ...]) -> tuple[str, str]:
    """Return the first of these programs that starts, and its version. Raises ``BackendUnavailable`` if none does."""
    for name in names:
        found = shutil.which(name)
        if found is None:
            continue
        host_program(found)
        answer = subprocess.run(
            [found, *version_argv], capture_output=True, text=True, timeout=30, check=False, stdin=subprocess.DEVNULL
        )
        version = re.search(r"\d+(\.\d+)+\w*", answer.stdout + answer.stderr)
        if answer.returncode == 0 and version is not None:
            return found, version.group()
    raise BackendUnavailable(f"{' or '.join(names)} was not found on PATH")


def program_runtime(program: str) -> tuple[Grant, ...]:
    """Return what a program must read: nothing more for one in a system folder, else the folders around it."""
    real = os.path.realpath(program)
    return () if is_system(real) else runtime_grants([program, os.path.dirname(os.path.dirname(real))])


class Scripted(Recipe):
    """An interpreter that is found on the host and runs the cell as a file."""

    script: str
    names: tuple[str, ...]
    version_argv: tuple[str, ...] = ("--version",)
    remedy: str

    def program(self) -> str:
        """The interpreter."""
        return find_program(self.names, self.version_argv)[0]

    def probe(self, config: Toolchains) -> Availability:
        """See ``Recipe``."""
        try:
            program, version = find_program(self.names, self.version_argv)
        except BackendUnavailable as error:
            return Availability(available=False, reason=str(error), remedy=self.remedy)
        return Availability(available=True, version=version, origin=program)

    def runtime(self, config: Toolchains) -> tuple[Grant, ...]:
        """See ``Recipe``."""
        return program_runtime(self.program())

    def command(self, path: str, builder: StepBuilder) -> Sequence[str]:
        """Return the command that runs the file, without the request's arguments."""
        return [self.program(), path]

    def source(self, request: ExecRequest) -> bytes:
        """Return the content of the file, with the same lines as the cell."""
        return request.source

    def plan(self, request: ExecRequest, builder: StepBuilder) -> ProgramPlan:
        """See ``Recipe``."""
        file = JobFile(root=builder.places.cell, name=self.script, data=self.source(request))
        argv = [*self.command(f"{builder.places.cell}/{self.script}", builder), *request.args]
        return ProgramPlan(steps=(builder.program(request, argv),), files=(file,))


class Lua(Scripted):
    """PUC Lua, or LuaJIT."""

    language = Language.LUA
    script = "cell.lua"
    names = ("lua5.4", "lua", "lua5.3", "luajit")
    version_argv = ("-v",)
    remedy = "apt install lua5.4 (or your system's package of it)"


class Perl(Scripted):
    """Perl 5."""

    language = Language.PERL
    script = "cell.pl"
    names = ("perl",)
    version_argv = ("-e", "printf '%vd', $^V")
    remedy = "apt install perl (or your system's package of it)"

    def command(self, path: str, builder: StepBuilder) -> Sequence[str]:
        """See ``Scripted``."""
        return [self.program(), f"-I{builder.places.work}", path]


class Php(Scripted):
    """The PHP command line interpreter, without the host's php.ini."""

    language = Language.PHP
    minimum_memory_mb = 32
    script = "cell.php"
    names = ("php",)
    remedy = "apt install php-cli (or your system's package of it)"

    def command(self, path: str, builder: StepBuilder) -> Sequence[str]:
        """See ``Scripted``. PHP's own memory limit is off, because the jail limits memory."""
        settings = ("display_errors=stderr", "log_errors=0", "html_errors=0", "memory_limit=-1")
        return [self.program(), "-n", *(part for name in settings for part in ("-d", name)), path]

    def source(self, request: ExecRequest) -> bytes:
        """See ``Scripted``."""
        return request.source if b"<?" in request.source else b"<?php " + request.source


class Ruby(Scripted):
    """CRuby."""

    language = Language.RUBY
    minimum_memory_mb = 48
    script = "cell.rb"
    names = ("ruby",)
    remedy = "apt install ruby (or your system's package of it)"

    def command(self, path: str, builder: StepBuilder) -> Sequence[str]:
        """See ``Scripted``."""
        return [self.program(), f"-I{builder.places.work}", path]


#: Where Debian keeps the configuration of R, with links from R's own folder.
_CONFIGURATION = "/etc/R"


class R(Scripted):
    """Rscript, without profiles and saved workspaces."""

    language = Language.R
    minimum_memory_mb = 128
    script = "cell.R"
    names = ("Rscript",)
    remedy = "apt install r-base-core (or your system's package of it)"

    def runtime(self, config: Toolchains) -> tuple[Grant, ...]:
        """See ``Recipe``."""
        own = runtime_grants([_CONFIGURATION]) if os.path.isdir(_CONFIGURATION) else ()
        return (*super().runtime(config), *own)

    def command(self, path: str, builder: StepBuilder) -> Sequence[str]:
        """See ``Scripted``. Run as a plain file, R would not print values and not say where an error was."""
        start = f"local({{ cell <- '{path}'; source('{builder.places.guest}/scripts/r_run.R', local = TRUE) }})"
        return [self.program(), "--vanilla", "-e", start]


# Go, if the host has it: one file of package main, compiled with the standard library only.

GO_SCRIPT = "cell.go"
GO_REMEDY = "apt install golang-go (or your system's package of it)"
_FIND_GO = (("go",), ("version",))
_PACKAGE = re.compile(rb"^[^\S\n]*+package\s", re.MULTILINE)
#: No network, no modules, no C; few threads, because they count as processes.
_GO_ENV = {
    "CGO_ENABLED": "0", "GO111MODULE": "off", "GOFLAGS": "-p=2", "GOMAXPROCS": "2", "GOTELEMETRY": "off",
    "GOTOOLCHAIN": "local",
}  # fmt: skip


class Go(Recipe):
    """The Go toolchain of the host."""

    language = Language.GO
    minimum_memory_mb = 192
    reserved_mb = 512

    def probe(self, config: Toolchains) -> Availability:
        """See ``Recipe``."""
        try:
            program, version = find_program(*_FIND_GO)
        except BackendUnavailable as error:
            return Availability(available=False, reason=str(error), remedy=GO_REMEDY)
        return Availability(available=True, version=version, origin=program)

    def runtime(self, config: Toolchains) -> tuple[Grant, ...]:
        """See ``Recipe``."""
        return program_runtime(find_program(*_FIND_GO)[0])

    def plan(self, request: ExecRequest, builder: StepBuilder) -> ProgramPlan:
        """See ``Recipe``. The package clause may be left out."""
        program, version = find_program(*_FIND_GO)
        source = request.source if _PACKAGE.search(request.source) else b"package main; " + request.source
        argv = [program, "build", "-o", f"{builder.places.cell}/{PROGRAM}", GO_SCRIPT]
        identity = compiler_identity(program, version)
        tmp = builder.places.tmp
        env = {**_GO_ENV, "GOCACHE": f"{tmp}/go-cache", "GOPATH": f"{tmp}/go"}
        work = Compilation(
            name=GO_SCRIPT, source=source, argv=argv, identity=identity, env=env, alone=b"go:embed" not in source
        )
        return compiled_plan(request, builder, work)


# Shell commands: bash if the host has it, else sh, with the system's tools.

SHELL_SCRIPT = "cell.sh"


def shell() -> str:
    """Return the path of the shell. System folders are the same inside, so the host's path is valid there."""
    return next((path for path in ("/usr/bin/bash", "/bin/bash") if os.path.exists(path)), "/bin/sh")


class CommandLanguage(Recipe):
    """A shell script. Its exit code or signal becomes the result's."""

    language = Language.COMMAND
    minimum_memory_mb = 16

    def probe(self, config: Toolchains) -> Availability:
        """See ``Recipe``."""
        program = shell()
        if not os.path.exists(program):
            return Availability(available=False, reason="no shell was found", remedy="install bash")
        answer = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=False, env={})
        lines = answer.stdout.splitlines()
        version = lines[0] if answer.returncode == 0 and lines else os.path.basename(os.path.realpath(program))
        if config.pipefail and not program.endswith("/bash"):
            return Availability(available=False, reason=f"{program} has no pipefail", remedy="install bash")
        return Availability(available=True, version=version, origin=program)

    def plan(self, request: ExecRequest, builder: StepBuilder) -> ProgramPlan:
        """See ``Recipe``. The script is a file, because an argument may not be longer than 128 KiB."""
        file = JobFile(root=builder.places.cell, name=SHELL_SCRIPT, data=request.source)
        options = ["-o", "pipefail"] if builder.config.pipefail else []
        step = builder.program(request, [shell(), *options, f"{builder.places.cell}/{SHELL_SCRIPT}", *request.args])
        return ProgramPlan(steps=(step,), files=(file,))

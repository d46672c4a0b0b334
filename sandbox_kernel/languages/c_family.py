"""C and C++: the system's compiler if there is one, else Zig's (``zig cc``) from a registry package."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping

from sandbox_kernel.errors import BackendUnavailable, install_line
from sandbox_kernel.jail.interpreter import answer_of, runtime_grants
from sandbox_kernel.jail.walls import TMP
from sandbox_kernel.languages.compile_cache import default_folder
from sandbox_kernel.languages.compiled import PROGRAM, Compilation, compiled_plan, compiler_identity
from sandbox_kernel.languages.recipe import ProgramPlan, Recipe, StepBuilder, Toolchains, program_runtime
from sandbox_kernel.model import ExecRequest, Language
from sandbox_kernel.policy import Grant
from sandbox_kernel.policy.written_folders import host_program
from sandbox_kernel.util.own_folder import LockedFolder, make_own_folder
from sandbox_kernel.util.values import dataclass

# Zig from the registry package ``ziglang`` (the extra ``c``): a language, and a C and C++ compiler for any machine.
#
# Zig builds the C and C++ libraries from source at their first use, which takes from seconds (C) to minutes (C++). This
# is done once for each version, on the host and with a program of ours, into a private folder. Jails see that folder
# read-only and put their own cache over it (``guest/scripts/run_compiler.py``).

REMEDY = install_line("c")

#: Programs that are compiled in advance, one for each command; they use every library that cells need.
_FIRST_C = """
#include <math.h>
#include <stdio.h>
int main(int count, char **words) { printf("%f", cos(count)); return !words; }
"""
_FIRST_CPP = """
#include <iostream>
#include <stdexcept>
int main(int count, char **) { if (count > 9) throw std::runtime_error("many"); std::cout << count; }
"""
_FIRST_ZIG = """
const std = @import("std");
pub fn main(init: std.process.Init) !void {
    try std.Io.File.stdout().writeStreamingAll(init.io, "first");
}
"""
_FIRST = {"cc": ("first.c", _FIRST_C), "c++": ("first.cpp", _FIRST_CPP), "build-exe": ("first.zig", _FIRST_ZIG)}


@dataclass(frozen=True)
class Zig:
    """The executable and its version."""

    executable: str
    version: str

    def runtime(self, command: str, target: str = "") -> tuple[Grant, ...]:
        """Return grants for Zig, its library sources, and what was built for a target (default: this machine)."""
        built = prepared(self, command, target)
        return runtime_grants([os.path.dirname(self.executable), built])

    def readiness(self, command: str) -> str:
        """Return the version, with a warning if the first cell has to build libraries."""
        ready = self.is_prepared(command)
        return f"zig {self.version}" + ("" if ready else " (the first cell builds its libraries, once: minutes)")

    def is_prepared(self, command: str, target: str = "") -> bool:
        """Whether the libraries for ``command`` are built."""
        return os.path.isdir(_folder(self, command, target))

    def environment(self, command: str, tmp: str = TMP, target: str = "") -> Mapping[str, str]:
        """Return variables with the folders that Zig writes; ``run_compiler.py`` puts these over the built ones."""
        cache = f"{tmp}/zig"
        built = os.path.realpath(prepared(self, command, target))
        return {"ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache, "SANDBOX_PREPARED": built}


@functools.lru_cache(maxsize=1)
def find_zig() -> Zig | None:
    """Return Zig, or None when the package is not installed or does not start."""
    spec = importlib.util.find_spec("ziglang")
    if spec is None or not spec.submodule_search_locations:
        return None
    executable = os.path.realpath(os.path.join(next(iter(spec.submodule_search_locations)), "zig"))
    if not os.access(executable, os.X_OK):
        return None
    answer = answer_of([executable, "version"], {})
    return Zig(executable, answer.stdout.strip()) if answer.returncode == 0 else None


def _folder(zig: Zig, command: str, target: str) -> str:
    # Zig compiles for the exact system that it runs on. It compares inodes and times of its sources with those of the
    # last build, and builds everything again if they differ.
    found = os.stat(zig.executable)
    identity = f"{zig.executable} {zig.version} {os.uname().release} {found.st_ino} {found.st_mtime_ns}"
    identity = hashlib.sha256(identity.encode()).hexdigest()[:16]
    parent = os.path.join(os.path.dirname(default_folder()), "zig")
    return os.path.join(parent, f"{command.replace('+', 'x')}-{target}{zig.version}-{identity}")


@functools.lru_cache(maxsize=8)
def prepared(zig: Zig, command: str, target: str = "") -> str:
    """Return the folder with the libraries for ``command``. The first call builds them; other processes wait for it."""
    folder = _folder(zig, command, target)
    parent = os.path.dirname(folder)
    try:
        make_own_folder(parent)
        if os.path.isdir(folder):
            return folder
        with LockedFolder.alone(parent):
            if not os.path.isdir(folder):
                _prepare(zig, command, target, folder)
    except OSError as error:
        raise BackendUnavailable(
            f"the libraries of zig {command} cannot be kept in {parent}: {error}; name a folder of your own that "
            "can be written in the environment variable XDG_CACHE_HOME, or install a C compiler"
        ) from None
    return folder


def _prepare(zig: Zig, command: str, target: str, folder: str) -> None:
    name, source = _FIRST[command]
    flags = ["-femit-bin=first"] if command == "build-exe" else ["-O1", "-o", "first"]
    if target:
        # WebAssembly has no exceptions and no threads, so the program for it uses none.
        source = source.replace('throw std::runtime_error("many")', "return 1")
        flags += ["-target", target, "-fno-exceptions"] if command == "c++" else ["-target", target]
    elif command != "build-exe":
        flags.append("-pthread")
    with tempfile.TemporaryDirectory(dir=os.path.dirname(folder)) as aside:
        cache = os.path.join(aside, "cache")
        with open(os.path.join(aside, name), "w") as file:
            file.write(source)
        env = {"PATH": os.defpath, "HOME": aside, "ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}
        argv = [zig.executable, command, *flags, name]
        try:
            subprocess.run(argv, cwd=aside, env=env, capture_output=True, text=True, timeout=1800, check=True)
        except (subprocess.SubprocessError, OSError) as error:
            said = (getattr(error, "stderr", "") or str(error)).strip()[-500:]
            raise BackendUnavailable(f"zig {command} cannot build its libraries here: {said}") from None
        # Zig locks its cache of parsed sources, so a jail cannot share it, and copying it is slower than parsing.
        for name in ("tmp", "z"):
            shutil.rmtree(os.path.join(cache, name), ignore_errors=True)
        os.rename(cache, folder)


# Zig, from the registry package: one file with a ``main``, compiled as a debug build: a crash names its line.

ZIG_SCRIPT = "cell.zig"
ZIG_COMMAND = "build-exe"
#: Everything that can refer to another file.
_OTHER_ZIG_FILES = re.compile(rb'@import(?!\("(?:std|builtin|root)"\))|@embedFile|@c|asm')


def the_zig() -> Zig:
    """Return Zig. Raises ``BackendUnavailable`` when the package is not installed."""
    zig = find_zig()
    if zig is None:
        raise BackendUnavailable("the package ziglang is not installed", REMEDY)
    return zig


class ZigLanguage(Recipe):
    """The Zig compiler, which also serves as a C compiler."""

    language = Language.ZIG
    minimum_memory_mb = 512
    reserved_mb = 512

    def find(self, config: Toolchains) -> tuple[str, str]:
        """See ``Recipe``."""
        zig = the_zig()
        return zig.executable, zig.readiness(ZIG_COMMAND)

    def runtime(self, config: Toolchains) -> tuple[Grant, ...]:
        """See ``Recipe``."""
        return the_zig().runtime(ZIG_COMMAND)

    def plan(self, request: ExecRequest, builder: StepBuilder) -> ProgramPlan:
        """See ``Recipe``."""
        zig = the_zig()
        emit = f"-femit-bin={builder.places.cell}/{PROGRAM}"
        work = Compilation(
            name=ZIG_SCRIPT,
            source=request.source,
            argv=[zig.executable, ZIG_COMMAND, "--color", "off", emit, ZIG_SCRIPT],
            identity=compiler_identity(zig.executable, zig.version),
            env=zig.environment(ZIG_COMMAND, builder.places.tmp),
            parts=".zig",
            alone=not _OTHER_ZIG_FILES.search(request.source),
        )
        return compiled_plan(request, builder, work)


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


@functools.lru_cache(maxsize=16)
def find_compiler(path: str, names: tuple[str, ...], zig_command: str) -> CCompiler:
    """Return the compiler of this name or path. The default name also tries the usual names, then Zig's (``zig``)."""
    usual = names if path == names[0] else (path,)
    for name in () if path == "zig" else usual:
        found = shutil.which(name)
        if found is not None:
            answer = answer_of([host_program(found), "--version"])
            if answer.returncode == 0 and answer.stdout:
                return CCompiler((found,), answer.stdout.splitlines()[0])
    zig = find_zig() if path in ("zig", names[0]) else None
    if zig is None:
        raise BackendUnavailable(f"no compiler: {', '.join(usual)} was not found", REMEDY)
    return CCompiler((zig.executable, zig_command), f"zig {zig.version}", zig)


@dataclass(frozen=True, kw_only=True)
class CFamily(Recipe):
    """C and C++: ``setting`` is the name of the compiler's path in the configuration, ``names`` are its usual names."""

    language: Language
    minimum_memory_mb: int
    script: str
    setting: str
    names: tuple[str, ...]
    flags: tuple[str, ...]
    libraries: tuple[str, ...] = ()

    def _compiler(self, config: Toolchains) -> CCompiler:
        return find_compiler(getattr(config, self.setting), self.names, self.names[0])

    def find(self, config: Toolchains) -> tuple[str, str]:
        """See ``Recipe``."""
        found = self._compiler(config)
        return " ".join(found.command), found.version if found.zig is None else found.zig.readiness(self.names[0])

    def runtime(self, config: Toolchains) -> tuple[Grant, ...]:
        """See ``Recipe``."""
        found = self._compiler(config)
        return program_runtime(found.command[0]) if found.zig is None else found.zig.runtime(self.names[0])

    def plan(self, request: ExecRequest, builder: StepBuilder) -> ProgramPlan:
        """See ``Recipe``. Headers are looked up in the work folder."""
        found = self._compiler(builder.config)
        work, cell = builder.places.work, builder.places.cell
        flags = [*self.flags, "-Wall", "-Wextra", "-pthread", "-iquote", work, "-o", f"{cell}/{PROGRAM}"]
        job = Compilation(
            name=self.script,
            source=request.source,
            argv=[*found.command, *flags, self.script, *self.libraries],
            identity=compiler_identity(found.command[0], found.version),
            env=found.zig.environment(self.names[0], builder.places.tmp) if found.zig is not None else {},
            cacheable=not _TIME_MACROS.search(request.source),
            alone=not _OTHER_FILES.search(_SYSTEM_HEADERS.sub(b"", request.source)),
        )
        return compiled_plan(request, builder, job)


C = CFamily(
    language=Language.C,
    minimum_memory_mb=64,
    script="cell.c",
    setting="cc_path",
    names=("cc", "gcc", "clang"),
    flags=("-std=gnu17", "-O1"),
    libraries=("-lm",),
)
CPP = CFamily(
    language=Language.CPP,
    minimum_memory_mb=128,
    script="cell.cpp",
    setting="cxx_path",
    names=("c++", "g++", "clang++"),
    flags=("-std=gnu++20", "-O1"),
)

RECIPES = (C, CPP, ZigLanguage())

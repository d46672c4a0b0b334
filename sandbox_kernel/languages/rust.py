"""Rust: one file, compiled by rustc inside the jail and its time limit. A cell without ``main`` becomes its body."""

from __future__ import annotations

import functools
import os
import re
import shutil
from dataclasses import dataclass

from sandbox_kernel.errors import BackendUnavailable
from sandbox_kernel.jail.interpreter import answer_of, runtime_grants
from sandbox_kernel.languages.compiled import PROGRAM, Compilation, compiled_plan, compiler_identity
from sandbox_kernel.languages.recipe import ProgramPlan, Recipe, StepBuilder, Toolchains
from sandbox_kernel.model import ExecRequest, Language
from sandbox_kernel.policy import Grant
from sandbox_kernel.policy.written_folders import host_program

SCRIPT = "cell.rs"
REMEDY = "install Rust from https://rustup.rs and a C compiler for linking"

#: What is not closed goes to the end, so that no character is read twice: code may be made to take the host's time.
_NOT_CODE = re.compile(r'//[^\n]*|/\*.*?(?:\*/|\Z)|r?"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_MAIN = re.compile(r"\bfn\s+main\s*[(<]")
#: Everything that can refer to another file.
_OTHER_FILES = re.compile(r"include|\bmod\b|path|asm")
#: An error that is passed on (``parse()?;``): the added ``main`` must return a ``Result`` then.
_HANDS_ON_ERRORS = re.compile(r"[\w)\]>]\?\s*(?:[;.,)\]}]|$)")


@dataclass(frozen=True)
class Rustc:
    """The real compiler, not a shim, and the folder of its toolchain."""

    executable: str
    sysroot: str
    version: str

    @property
    def edition(self) -> str:
        """The newest edition that it supports."""
        found = re.match(r"rustc (\d+)\.(\d+)", self.version)
        return "2024" if found and tuple(map(int, found.groups())) >= (1, 85) else "2021"


@functools.lru_cache(maxsize=8)
def find_rustc(path: str) -> Rustc:
    """Find rustc and its toolchain. The ``rustc`` of rustup is a shim that does not work inside a jail."""
    shim = shutil.which(path)
    if shim is None:
        raise BackendUnavailable(f"no Rust compiler: {path!r} was not found", REMEDY)
    if shutil.which("cc") is None:
        raise BackendUnavailable("rustc was found, but no cc to link with", REMEDY)
    asked = answer_of([host_program(shim), "--print", "sysroot"])
    sysroot = asked.stdout.strip()
    real = os.path.join(sysroot, "bin", "rustc")
    executable = host_program(real if sysroot and os.access(real, os.X_OK) else shim)
    answer = answer_of([executable, "--version"])
    if asked.returncode != 0 or answer.returncode != 0:
        said = (asked.stderr or answer.stderr).strip()[-300:]
        raise BackendUnavailable(f"{shim} is no working Rust compiler: {said}", REMEDY)
    return Rustc(executable, sysroot, answer.stdout.strip())


def wrap(source: str) -> str:
    """Return a complete program; text is added only on the first line and after the last one: lines keep numbers."""
    code = _NOT_CODE.sub(" ", source)
    if _MAIN.search(code):
        return source
    if _HANDS_ON_ERRORS.search(code):
        end = "" if code.rstrip().endswith((";", "}")) else "; "
        head, tail = "fn main() -> Result<(), Box<dyn std::error::Error>> { ", f"\n{end}Ok(()) }}\n"
    else:
        head, tail = "fn main() { ", "\n}\n"
    return head + source + tail


class Rust(Recipe):
    """The host's rustc, with its toolchain folder readable."""

    language = Language.RUST
    minimum_memory_mb = 128
    reserved_mb = 256

    def find(self, config: Toolchains) -> tuple[str, str]:
        """See ``Recipe``."""
        found = find_rustc(config.rustc_path)
        return found.executable, found.version

    def runtime(self, config: Toolchains) -> tuple[Grant, ...]:
        """See ``Recipe``."""
        found = find_rustc(config.rustc_path)
        return runtime_grants([found.sysroot, found.executable])

    def plan(self, request: ExecRequest, builder: StepBuilder) -> ProgramPlan:
        """See ``Recipe``. Overflow is checked as in a debug build; the optimisation level is low."""
        found = find_rustc(builder.config.rustc_path)
        source = wrap(request.source.decode())
        argv = [
            found.executable, "--edition", found.edition, "--crate-name", "cell",
            "-C", "opt-level=1", "-C", "debug-assertions=on", "-C", "strip=debuginfo",
            "-o", f"{builder.places.cell}/{PROGRAM}", SCRIPT,
        ]  # fmt: skip
        work = Compilation(
            name=SCRIPT,
            source=source.encode(),
            argv=argv,
            identity=compiler_identity(found.executable, found.version),
            alone=not _OTHER_FILES.search(source),
            parts=".rs",
        )
        return compiled_plan(request, builder, work)


RECIPES = (Rust(),)

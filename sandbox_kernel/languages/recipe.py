"""The interface of a language for the process backend, and all languages by name (CONTRIBUTING.md: how to add one)."""

from __future__ import annotations

import functools
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import field
from importlib import import_module

from sandbox_kernel.errors import BackendUnavailable, InvalidRequest
from sandbox_kernel.jail.accounting.cgroups import find_hierarchies
from sandbox_kernel.jail.gate_messages import JobFile, Step
from sandbox_kernel.jail.interpreter import interpreter_name, is_system, runtime_grants
from sandbox_kernel.jail.root_user import has_own_user
from sandbox_kernel.jail.walls import Places, has_own_disk, sizes
from sandbox_kernel.languages.compile_cache import CompileCache
from sandbox_kernel.limits import MIB, Limits, quoted
from sandbox_kernel.model import ExecRequest, Language, Note
from sandbox_kernel.policy import Grant
from sandbox_kernel.util.values import dataclass

#: PATH inside; the interpreter's own folder is put before it.
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: The file with the messages of a compiler, in the folder of the cell.
MESSAGES = "messages.txt"
#: The file with the types of host functions, beside a TypeScript program that may call them and is checked.
HOST_TYPES = "host.d.ts"


def search_path(executable: str) -> str:
    """Return PATH for inside: the interpreter's folder, then the system's. A folder with a colon is left out."""
    folder = os.path.dirname(executable)
    return SYSTEM_PATH if ":" in folder else f"{folder}:{SYSTEM_PATH}"


@dataclass(frozen=True, kw_only=True)
class Toolchains:
    """Which programs run which language. Names are looked up on PATH; paths are used as they are.

    Args:
        python_path: The interpreter, virtual environment or version for Python.
        rustc_path: The Rust compiler.
        node_path: Node.js; ``node`` means the one of the registry package.
        cc_path: The C compiler; ``zig`` means Zig's.
        cxx_path: The C++ compiler; ``zig`` means Zig's.
        check_types: Whether TypeScript is type-checked before it runs.
    """

    rustc_path: str = "rustc"
    python_path: str = "python3"
    node_path: str = "node"
    cc_path: str = "cc"
    cxx_path: str = "c++"
    check_types: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "python_path", interpreter_name(self.python_path))
        for name in ("rustc_path", "node_path", "cc_path", "cxx_path"):
            given = getattr(self, name)
            program = os.fspath(given) if isinstance(given, os.PathLike) else given
            if not isinstance(program, str) or not program or "\0" in program:
                raise InvalidRequest(f"{name} must be the name or path of a program, got {quoted(given)}")
            object.__setattr__(self, name, program)


@dataclass(frozen=True, kw_only=True)
class Availability:
    """Whether a language can run here: its version and origin, or the reason why not and what to install."""

    available: bool
    version: str = ""
    origin: str = ""
    reason: str = ""
    remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class ProgramPlan:
    """The steps and files of a request."""

    steps: tuple[Step, ...]
    files: tuple[JobFile, ...] = ()
    notes: tuple[Note, ...] = ()
    #: The key under which the compiled program is stored after a run that compiled it.
    cache_key: str | None = None
    #: The messages of the compiler, if the program came from the cache.
    messages: bytes | None = None


#: Imported and not passed as source, because imports use the compiled bytecode.
_COMPILE = b"import os, sys; from sandbox_guest.scripts import run_compiler; os._exit(run_compiler.main(sys.argv))"


@dataclass(frozen=True, kw_only=True)
class StepBuilder:
    """Makes steps for recipes. Later layers of the environment win: the sandbox's, the policy's, the request's."""

    config: Toolchains
    places: Places = field(default_factory=Places)
    path: str = SYSTEM_PATH
    policy_env: Mapping[str, str] = field(default_factory=dict)
    rlimits: Mapping[str, int] = field(default_factory=dict)
    #: The filter that denies starting processes, if the policy does.
    no_spawn: bytes | None = None
    #: None when nothing may be cached, because the result of compiling depends on more than the request.
    cache: CompileCache | None = None
    #: Variables for programs, such as the address of the proxy; empty when the policy allows no network.
    network_env: Mapping[str, str] = field(default_factory=dict)
    #: Whether the program may call host functions; a program that waits since before the order cannot.
    calls_host: bool = False
    #: Where programs keep settings and caches; None for the work folder.
    home: str | None = None

    def environment(self, request: ExecRequest) -> dict[str, str]:
        """Return the whole environment of a program."""
        own = self.places.environment(self.path, self.home or self.places.work)
        return {**own, **self.network_env, **self.policy_env, **request.env}

    def program(
        self, request: ExecRequest, argv: Sequence[str], *, kind: str = "exec", source: bytes | None = None
    ) -> Step:
        """Return the step of the program. ``kind``: ``exec``, or ``python`` and ``warm`` for what waits in the jail."""
        return Step(
            kind=kind,
            argv=argv,
            cwd=self.places.work,
            env=self.environment(request),
            rlimits=self.rlimits,
            seccomp=None if kind == "warm" else self.no_spawn,
            source=source,
        )

    def compiler(
        self, argv: Sequence[str], toolchain: Mapping[str, str] | None = None, *, keeps: Sequence[str] = ()
    ) -> Step:
        """Return a step that compiles. It may start processes, gets no input, and prints to stderr.

        The request's environment is only for the program, so that ``env!`` and macros cannot read it at compile time.
        ``keeps`` are files that the host receives when the step succeeded.
        """
        messages = f"{self.places.cell}/{MESSAGES}"
        return Step(
            kind="python",
            argv=[f"{self.places.guest}/scripts/run_compiler.py", messages, *argv],
            source=_COMPILE,
            cwd=self.places.cell,
            env={**self.places.environment(self.path, self.places.tmp), **(toolchain or {})},
            rlimits=self.rlimits,
            no_stdin=True,
            compiles=True,
            keeps=(*keeps, messages) if keeps else (),
        )


class Recipe(ABC):
    """One language. It never starts the user's program, but returns what must be readable, and the steps."""

    language: Language
    #: With less memory the runtime does not start; such requests are refused and the message has this number.
    minimum_memory_mb: int = 16
    #: Address space that the runtime reserves but does not use. RLIMIT_DATA counts it, other meters do not.
    reserved_mb: int = 0

    @abstractmethod
    def find(self, config: Toolchains) -> tuple[str, str]:
        """Return the program for cells and its version. Raises ``BackendUnavailable`` that says what to install."""

    def runtime(self, config: Toolchains) -> tuple[Grant, ...]:
        """Return host paths besides the system folders that must be readable inside: by default around the program."""
        return program_runtime(self.find(config)[0])

    def warm(self, config: Toolchains, memory_mb: int, places: Places) -> tuple[str, ...]:
        """Return the command that waits in a spare for a step of kind ``warm``; empty for none."""
        return ()

    @abstractmethod
    def plan(self, request: ExecRequest, builder: StepBuilder) -> ProgramPlan:
        """Return the steps and files of a checked request."""


def program_runtime(program: str) -> tuple[Grant, ...]:
    """Return what a program must read: nothing more for one in a system folder, else the folders around it."""
    real = os.path.realpath(program)
    return () if is_system(real) else runtime_grants([program, os.path.dirname(os.path.dirname(real))])


#: One sandbox's share of what the kernel counts for each user over all its processes: pending signals and timers, bytes
#: in message queues, locked memory.
_USER_SHARES = {"SIGPENDING": 1024, "MSGQUEUE": 128 << 10, "MEMLOCK": 1 << 20}


def rlimits(
    enforcer: str | None, limits: Limits, memory_mb: int, *, processes: int | None, reserved_mb: int = 0
) -> dict[str, int]:
    """Return the rlimits of each process of a run, by their names in ``resource``.

    If a control group counts memory exactly, RLIMIT_DATA only stops absurd single allocations, so that threads with
    large unused stacks work. A file may be longer than the disk limit if it has holes (memory files do); the file
    system counts what takes space, unless it is the host's.

    The kernel counts processes for each user. That is exact in a user namespace, and for a user that no other sandbox
    has. Elsewhere a control group or the watchdog counts.
    """
    groups, own_disk = find_hierarchies(), has_own_disk(enforcer)
    memory, disk = memory_mb * MIB, limits.disk_mb * MIB
    found = {
        "CORE": 0,
        "NOFILE": limits.open_files,
        "FSIZE": max(4 << 30, 2 * memory, disk) if own_disk else sizes(limits, memory_mb)[0],
        "DATA": (memory if groups is None else 4 * memory + (512 << 20)) + reserved_mb * MIB,
        "RTPRIO": 0,
        **_USER_SHARES,
    }
    if processes is not None and (groups is None or groups.pids is None) and (own_disk or has_own_user(enforcer)):
        found["NPROC"] = processes
    if limits.cpu_seconds is not None:
        found["CPU"] = int(limits.cpu_seconds) + 2
    return found


#: The module of each language's recipe, in whose ``RECIPES`` it is. A run needs one of them, so they are imported late.
MODULES = {
    Language.PYTHON: "python",
    Language.JAVASCRIPT: "node",
    Language.TYPESCRIPT: "node",
    Language.RUST: "rust",
    Language.C: "c_family",
    Language.CPP: "c_family",
    Language.ZIG: "c_family",
    Language.COMMAND: "interpreters",
    Language.SQL: "python",
    Language.RUBY: "interpreters",
    Language.LUA: "interpreters",
    Language.PERL: "interpreters",
    Language.PHP: "interpreters",
    Language.R: "interpreters",
    Language.GO: "interpreters",
}


@functools.cache
def recipe_of(language: Language) -> Recipe:
    """Return the recipe of a language. Raises ``KeyError`` for WebAssembly, which has none."""
    recipes: Sequence[Recipe] = import_module(f"sandbox_kernel.languages.{MODULES[language]}").RECIPES
    return next(recipe for recipe in recipes if recipe.language is language)


@functools.lru_cache(maxsize=64)
def availability(config: Toolchains, language: Language) -> Availability:
    """Return whether this host can run a language with this configuration. Measured once for each process."""
    try:
        origin, version = recipe_of(language).find(config)
    except BackendUnavailable as error:
        return Availability(available=False, reason=error.reason, remedy=error.remedy)
    return Availability(available=True, version=version, origin=origin)

"""What a language must say of itself, so that the process backend can run it.

One file a language in this folder holds one ``Recipe``. A recipe never starts the user's program: it answers questions
(is the toolchain here, what must be readable, how does a request become steps) with plain data.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sandbox_kernel.errors import InvalidRequest
from sandbox_kernel.jail.core.gate_messages import JobFile, Step
from sandbox_kernel.jail.core.interpreter import interpreter_name
from sandbox_kernel.jail.core.walls import TMP, Places, sizes
from sandbox_kernel.languages.support.compile_cache import CompileCache
from sandbox_kernel.limits import MIB, Limits, quoted
from sandbox_kernel.model import ExecRequest, Language, Note
from sandbox_kernel.policy import Grant

#: Where programs are found inside; the interpreter's own folder comes first.
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#: What a compiler said, beside the cell.
MESSAGES = "messages.txt"


def search_path(executable: str) -> str:
    """PATH inside: the folder of the interpreter, then the system's. A folder with a colon cannot stand in PATH."""
    folder = os.path.dirname(executable)
    return SYSTEM_PATH if ":" in folder else f"{folder}:{SYSTEM_PATH}"


@dataclass(frozen=True, kw_only=True)
class ProcessConfig:
    """Which programs serve which language; names are looked up on PATH, paths are taken as they are."""

    rustc_path: str = "rustc"
    python_path: str = "python3"
    node_path: str = "node"
    cc_path: str = "cc"
    cxx_path: str = "c++"
    #: Whether a pipe of a command fails with the first program of it that does.
    pipefail: bool = False
    #: Whether TypeScript is type-checked before it runs.
    check_types: bool = False
    #: Ready-made sandboxes kept for each kind of request; with 0 each is made when it is asked for.
    pool_size: int = 2
    #: Whether sandboxes of a kind that is asked for again are forked from a template: cheap, but they share its address
    #: layout and its hash seed. Without, each is started by itself; with ``pool_size=0`` too, nothing stays in between.
    templates: bool = True
    #: Modules that waiting Python interpreters have imported already.
    preload: tuple[str, ...] = ()
    #: Where compiled programs are remembered; None is a private folder below the user's cache, "" is nowhere.
    cache_dir: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "python_path", interpreter_name(self.python_path))
        for name in ("rustc_path", "node_path", "cc_path", "cxx_path"):
            given = getattr(self, name)
            program = os.fspath(given) if isinstance(given, os.PathLike) else given
            if not isinstance(program, str) or not program or "\0" in program:
                raise InvalidRequest(f"{name} must be the name or path of a program, got {quoted(given)}")
            object.__setattr__(self, name, program)
        if isinstance(self.pool_size, bool) or not isinstance(self.pool_size, int) or self.pool_size < 0:
            raise InvalidRequest(f"pool_size must be a whole number, 0 for none, got {quoted(self.pool_size)}")


@dataclass(frozen=True, kw_only=True)
class Availability:
    """Whether a language can run here: the version and where it comes from, or why not and how to get it."""

    available: bool
    version: str = ""
    origin: str = ""
    reason: str = ""
    remedy: str = ""


@dataclass(frozen=True, kw_only=True)
class ProgramPlan:
    """A request as the jail runs it."""

    steps: tuple[Step, ...]
    files: tuple[JobFile, ...] = ()
    notes: tuple[Note, ...] = ()
    #: Where the compiled program is remembered after a run that compiled it.
    cache_key: str | None = None
    #: What the compiler said when the program, which was taken from the cache, was made.
    messages: bytes | None = None


#: Imported and not given as source, because its compiled form lies beside it; not from the folder that it works in.
_COMPILE = b"import os, sys; from sandbox_guest.gate import run_compiler; os._exit(run_compiler.main(sys.argv))"


@dataclass(frozen=True, kw_only=True)
class StepBuilder:
    """What a recipe works with: the configuration, and how steps get their environment and limits.

    The environment is layered: the sandbox's own < what the toolchain needs < the policy's < the request's.
    """

    config: ProcessConfig
    places: Places = field(default_factory=Places)
    path: str = SYSTEM_PATH
    policy_env: Mapping[str, str] = field(default_factory=dict)
    rlimits: Mapping[str, int] = field(default_factory=dict)
    #: The filter that denies starting processes, when the policy does.
    no_spawn: bytes | None = None
    #: None when nothing may be remembered: what is compiled depends on more than the request.
    cache: CompileCache | None = None
    #: What programs are told beside the address of the proxy; empty where the policy lets nothing out.
    network_env: Mapping[str, str] = field(default_factory=dict)

    def environment(self, request: ExecRequest, toolchain: Mapping[str, str] | None = None) -> dict[str, str]:
        """The whole environment of a step."""
        own = {"PATH": self.path, "HOME": self.places.work, "LANG": "C.UTF-8", **self._tmpdir(), **self.network_env}
        return {**own, **(toolchain or {}), **self.policy_env, **request.env}

    def _tmpdir(self) -> dict[str, str]:
        """Programs look for /tmp by themselves; any other place must be named."""
        return {} if self.places.tmp == TMP else {"TMPDIR": self.places.tmp}

    def waiting(self, request: ExecRequest, argv: Sequence[str]) -> Step:
        """The step that hands the program to the one that waits since the sandbox was made (``Recipe.warm``)."""
        env = self.environment(request)
        return Step(kind="warm", argv=argv, cwd=self.places.work, env=env, rlimits=self.rlimits)

    def program(self, request: ExecRequest, argv: Sequence[str], toolchain: Mapping[str, str] | None = None) -> Step:
        """The step that runs the user's program: policy in full."""
        env = self.environment(request, toolchain)
        return Step(kind="exec", argv=argv, cwd=self.places.work, env=env, rlimits=self.rlimits, seccomp=self.no_spawn)

    def compiler(
        self,
        argv: Sequence[str],
        toolchain: Mapping[str, str] | None = None,
        *,
        style: str = "plain",
        keeps: Sequence[str] = (),
    ) -> Step:
        """A step that compiles: may start processes, gets no input, prints to stderr, and a failure is the compiler's.

        The request's environment is the program's alone, so that ``env!`` and macros cannot read it at compile time.
        ``style`` says how ``guest/gate/run_compiler.py`` shows what the compiler prints.
        """
        messages = f"{self.places.cell}/{MESSAGES}"
        return Step(
            kind="python",
            argv=[f"{self.places.guest}/gate/run_compiler.py", style, messages, *argv],
            source=_COMPILE,
            cwd=self.places.cell,
            env={"PATH": self.path, "HOME": self.places.tmp, "LANG": "C.UTF-8", **self._tmpdir(), **(toolchain or {})},
            rlimits=self.rlimits,
            no_stdin=True,
            compiles=True,
            keeps=(*keeps, messages) if keeps else (),
        )


class Recipe(ABC):
    """One language on the process backend."""

    language: Language
    #: Below this the runtime itself does not start; requests with less are refused with this number.
    minimum_memory_mb: int = 16
    #: Address space that the runtime reserves and never touches; RLIMIT_DATA counts it, other meters do not.
    reserved_mb: int = 0

    @abstractmethod
    def probe(self, config: ProcessConfig) -> Availability:
        """Look for the toolchain; called once and remembered by the backend."""

    def runtime(self, config: ProcessConfig) -> tuple[Grant, ...]:
        """Host paths beyond the system that must be readable inside."""
        return ()

    def warm(self, config: ProcessConfig, memory_mb: int, places: Places) -> tuple[str, ...]:
        """The command that waits in a ready-made sandbox for a step of kind ``warm``; empty: there is none."""
        return ()

    @abstractmethod
    def plan(self, request: ExecRequest, kitchen: StepBuilder) -> ProgramPlan:
        """Turn a checked request into steps and files."""


#: What the kernel counts for a user over all of its processes, and what one sandbox may have of it: pending signals and
#: timers, bytes in message queues, locked memory.
_USER_SHARES = {"SIGPENDING": 1024, "MSGQUEUE": 128 << 10, "MEMLOCK": 1 << 20}


def rlimits(
    limits: Limits,
    memory_mb: int,
    *,
    exact_memory: bool,
    processes: int | None,
    reserved_mb: int = 0,
    own_disk: bool = True,
) -> dict[str, int]:
    """The kernel's limits for each process of a run, by their names in ``resource``.

    Where a control group counts memory exactly, RLIMIT_DATA only stops absurd single allocations, so that threads with
    large untouched stacks are not punished. A file may be larger than the disk limit as long as it has holes (memory
    files do); what really takes room is counted by the file system, unless that is the host's (``own_disk``).
    """
    memory, disk = memory_mb * MIB, limits.disk_mb * MIB
    found = {
        "CORE": 0,
        "NOFILE": limits.open_files,
        "FSIZE": max(4 << 30, 2 * memory, disk) if own_disk else sizes(limits, memory_mb)[0],
        "DATA": (4 * memory + (512 << 20) if exact_memory else memory) + reserved_mb * MIB,
        "RTPRIO": 0,
        **_USER_SHARES,
    }
    if processes is not None:
        found["NPROC"] = processes
    if limits.cpu_seconds is not None:
        found["CPU"] = int(limits.cpu_seconds) + 2
    return found

"""What the embedder in the jail is given and what it leaves: walls, limits and plans; its report and its files.

The embedder shares its process with the guest, so its report is untrusted: only the ending of the guest is taken from
it. Time, CPU time and memory are measured by the jail.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from sandbox_kernel.backends.checks import given_files
from sandbox_kernel.backends.outcome import make_result, run_result
from sandbox_kernel.errors import EnforcerFailed, InvalidRequest, PolicyViolation
from sandbox_kernel.jail import ending
from sandbox_kernel.jail.gate_messages import REPORT_FD, JobFile, Step
from sandbox_kernel.jail.interpreter import find_python
from sandbox_kernel.jail.jail import Jail
from sandbox_kernel.jail.pool import Pool
from sandbox_kernel.jail.rules import seccomp
from sandbox_kernel.jail.run_job import Job, JobOutcome
from sandbox_kernel.jail.sealed_memory import SealedMemory
from sandbox_kernel.jail.walls import CELL, WORK, Walls, Warm, has_own_disk, sizes
from sandbox_kernel.languages.guest_catalogue import WasmLanguage
from sandbox_kernel.languages.recipe import ProgramPlan, rlimits
from sandbox_kernel.limits import MIB, Limits
from sandbox_kernel.model import ExecRequest, ExecResult, Limit, Status
from sandbox_kernel.policy import Grant, SandboxPolicy
from sandbox_kernel.policy.sandbox_policy import ROOT
from sandbox_kernel.util.linux_calls import closed_after
from sandbox_kernel.util.wire import BadMessage, decode, encodable
from sandbox_kernel.workspace.given_grants import GivenGrants

#: Memory of Python, the engine and the compiled code, in addition to the memory of the guest.
RUNTIME_MB = 256
#: Limits of a compilation. Cranelift cannot be interrupted, so the jail ends it.
COMPILE_MEMORY_MB, COMPILE_CPU_S = 2048, 30.0
#: Limits of preparing a language. Its files are known, so they are met only on a machine that is too small.
PREPARE_MEMORY_MB, PREPARE_DISK_MB, PREPARE_S = 4096, 1024, 3600.0
#: Threads of the engine; a guest cannot start any.
_PROCESSES = 64
#: Open files of the embedder itself, in addition to those of the guest.
_OWN_FILES = 32
#: Largest compiled module that fits into the cell folder.
MOST_COMPILED_BYTES = 60 << 20

#: The files of a compiled module, of an image that says how it is entered, and of one that is a memory alone.
COMPILED, FACTS, MEMORY = "module.cwasm", "image.json", "memory.image"
#: What fits into an image: mounts, and bytes of a mount's name; ``guest/wasm/python_image.py`` has them too.
MOST_MOUNTS, MOST_NAME_BYTES = 24, 255
#: Where programs see the files of wheels; ``guest/wasm/inside/image_boot.py`` has it too.
WHEELS = "/wheels"
#: Where a jail has the folder that a policy mounts as the root of a program.
_ROOT_PLACE = "/mounted-root"
#: Guest program that waits in each jail for a plan.
_WAITING = "sandbox_guest.wasm.run"
#: Settings of the engine for a module; ``guest/wasm/engine.py`` has their defaults.
EngineSwitches = dict[str, bool | int]


@dataclass(frozen=True, kw_only=True)
class GuestRun:
    """A compiled module and its arguments."""

    #: The compiled module: a store file that the jail sees, or memory that is passed to it.
    module: str | SealedMemory
    argv: Sequence[str]
    env: Mapping[str, str]
    switches: EngineSwitches
    #: Files for the cell folder, which the guest can read as /cell when ``sees_cell`` is true.
    files: Mapping[str, bytes] = field(default_factory=dict)
    sees_cell: bool = False
    #: Paths of the store that the jail sees, and more folders of the guest.
    runtime: Sequence[Grant] = ()
    folders: Sequence[Mapping[str, object]] = ()
    #: How an interpreter is entered: other fields of ``RunPlan`` (``guest/wasm/plan.py``).
    entered: Mapping[str, object] = field(default_factory=dict)


def make_walls(
    limits: Limits,
    memory_mb: int,
    policy: SandboxPolicy,
    enforcer: str,
    runtime: Sequence[Grant] = (),
    ahead: tuple[str, EngineSwitches] | None = None,
    given: GivenGrants | None = None,
) -> Walls:
    """Return the walls around the engine. They are equal for most requests, so that spares can serve them.

    ``ahead`` is a compiled module of the store, with the settings of its engine, that is loaded while the jail waits.
    ``given`` are the grants of the policy; None for a job of ours, which has none.
    """
    python = find_python("python3")
    box, tmp, shm = sizes(limits, memory_mb + RUNTIME_MB)
    if policy.gpu is not None:
        raise PolicyViolation("WebAssembly programs cannot use a GPU; run it with backend='process', or without --gpu")
    found = given.now(root=True) if given is not None else ()
    grants = tuple(replace(grant, target=_ROOT_PLACE) if grant.target == ROOT else grant for grant in found)
    for grant in grants:
        if not os.path.isdir(grant.source):
            raise PolicyViolation(
                f"{grant.source!r} is a file, and WebAssembly programs can only be given folders; "
                f"mount the folder that holds it: policy.mount({os.path.dirname(grant.source)!r}, '/data')"
            )
    together = tuple(dict.fromkeys((*python.runtime, *runtime)))
    rlimits = tuple(embedder_rlimits(limits, memory_mb + RUNTIME_MB, enforcer).items())
    # A guest that escapes from the engine still cannot start a process.
    no_spawn = seccomp.build_step_filter(seccomp.host_arch(), may_spawn=False, memory_is_watched=False)
    loaded = () if ahead is None else (ahead[0], json.dumps(ahead[1]))
    warm = Warm((_WAITING, *loaded), rlimits, no_spawn)
    preload = ("site", _WAITING)
    return Walls(python.executable, together, grants, box, tmp, shm, preload, warm, enforcer=enforcer)


def embedder_rlimits(limits: Limits, memory_mb: int, enforcer: str) -> dict[str, int]:
    """Return the resource limits of a process with the engine."""
    most = rlimits(enforcer, limits, memory_mb, processes=None)
    return {**most, "NOFILE": limits.open_files + _OWN_FILES}


def _step(jail: Jail, plan: Mapping[str, object], *, compiles: bool = False) -> Step:
    """Return the step for the embedder that waits in a jail with these walls; its limits were set when it started."""
    argv = [json.dumps(plan), str(REPORT_FD)]
    return Step(kind="warm", argv=argv, env={}, rlimits={}, cwd=jail.places.work, compiles=compiles, reports=True)


def making_job(
    jail: Jail,
    plan: Mapping[str, object],
    files: Sequence[JobFile] = (),
    *,
    timeout_s: float,
    memory_mb: int,
    cpu_seconds: float | None = None,
) -> Job:
    """Return the job that compiles a module or makes an image."""
    return Job(
        steps=(_step(jail, plan, compiles=True),),
        files=files,
        timeout_s=timeout_s,
        memory_bytes=memory_mb * MIB,
        processes=_PROCESSES,
        cpu_seconds=cpu_seconds,
        output_bytes=1 << 16,
    )


@contextlib.contextmanager
def taken(pool: Pool, walls: Walls) -> Iterator[Jail]:
    """Take a jail of the pool for one job."""
    jail = pool.take(walls)
    try:
        yield jail
    finally:
        jail.destroy()
        jail.forget()


def preopens(jail: Jail, *, sees_cell: bool) -> list[dict[str, object]]:
    """Return the folders of a guest; they have the same names for the guest in every kind of jail."""
    places, mounts = jail.places, has_own_disk(jail.walls.enforcer)
    given = [(grant.target if mounts else grant.source, grant.target, grant.writable) for grant in jail.walls.grants]
    root = next(((host, ROOT, writable) for host, name, writable in given if name == _ROOT_PLACE), None)
    folders = [(places.work, WORK, True), (places.work, ".", True), root or (places.work, ROOT, True)]
    folders += [(places.cell, CELL, False)] if sees_cell else []
    folders += [folder for folder in given if folder[1] != _ROOT_PLACE]
    return [{"host": host, "guest": name, "writable": writable} for host, name, writable in folders]


def run_job_of(request: ExecRequest, guest: GuestRun, jail: Jail, timeout_s: float, *, asks: bool = False) -> Job:
    """Return the job that runs a compiled module; with ``asks``, its standard input comes from ``on_input``."""
    given = [JobFile(root=jail.places.cell, name=name, data=data) for name, data in guest.files.items()]
    given += given_files(request, jail.places)
    plan = {
        "task": "run",
        "module": guest.module if isinstance(guest.module, str) else "",
        "argv": list(guest.argv),
        "env": dict(guest.env),
        "preopens": [*preopens(jail, sees_cell=guest.sees_cell), *guest.folders],
        "memory_bytes": request.memory_mb * MIB,
        "fuel": request.limits.fuel,
        "asks": asks,
        "clock_ns": _repeatable(guest.env, "SANDBOX_TIME", 10**9),
        "seed": _repeatable(guest.env, "SANDBOX_SEED", 1),
        "switches": guest.switches,
        **guest.entered,
    }
    return Job(
        steps=(_step(jail, plan),),
        files=given,
        descriptors=(guest.module.fileno(),) if isinstance(guest.module, SealedMemory) else (),
        stdin=request.stdin_bytes,
        timeout_s=timeout_s,
        memory_bytes=(request.memory_mb + RUNTIME_MB) * MIB,
        processes=_PROCESSES,
        cpu_seconds=request.limits.cpu_seconds,
        output_bytes=request.limits.output_bytes,
        ends_with_report=True,
    )


def _repeatable(env: Mapping[str, str], name: str, unit: int) -> int | None:
    """Read ``SANDBOX_TIME`` (seconds since 1970) and ``SANDBOX_SEED``, which make a run repeatable."""
    text = env.get(name)
    if text is None:
        return None
    value = int(text) * unit if text.isascii() and text.isdigit() and len(text) < 20 else -1
    if not 0 <= value < 1 << 62:
        raise InvalidRequest(f"{name} must be a whole number from 0 up, got {text!r}; for example {name}=1700000000")
    return value


def check_mounts(policy: SandboxPolicy, grants: Sequence[Grant], guest: WasmLanguage, *, wheels: bool) -> None:
    """Raise ``PolicyViolation`` for mounts that a language has no room for, or where it has something of its own."""
    elsewhere = "mount it elsewhere: policy.mount(…, '/data')"
    if guest.entry not in ("command", "zig", "rustc") and any(mount.guest == ROOT for mount in policy.mounts):
        raise PolicyViolation(
            f"{guest.language} in WebAssembly has a root of its own, so nothing can be mounted at '/'; {elsewhere}"
        )
    taken = [mount.guest for mount in policy.mounts if wheels and f"{mount.guest}/".startswith(f"{WHEELS}/")]
    if taken:
        raise PolicyViolation(
            f"{WHEELS} is the place of the files of wheels=…, so nothing can be mounted at {taken[0]!r}; {elsewhere}"
        )
    long = any(len(grant.target.encode()) > MOST_NAME_BYTES for grant in grants)
    if guest.image and (len(grants) + wheels > MOST_MOUNTS or long):
        raise PolicyViolation(
            f"{guest.language} in WebAssembly has room for {MOST_MOUNTS} mounts with names of {MOST_NAME_BYTES} bytes, "
            f"and {len(grants) + wheels} were given; mount a folder that holds several of them, or use "
            "backend='process'"
        )


class GuestEnd(StrEnum):
    """How a guest ended, by the words of the embedder inside the jail (``guest/wasm/engine.py``)."""

    EXIT = "exit"
    TRAP = "trap"
    FUEL = "fuel"
    MEMORY = "memory"
    UNTRANSLATED = "untranslated"
    INVALID = "invalid"
    COMPILED = "compiled"


#: Exit code that a shell shows for a program that aborted.
TRAPPED = 134
_MOST_MESSAGE = 8000


@dataclass(frozen=True, kw_only=True)
class WasmEnding:
    """The report of one plan; ``code`` is set only for ``exit``."""

    end: GuestEnd
    code: int | None = None
    message: str = ""
    fuel_used: int | None = None
    memory_bytes: int | None = None
    refused: int = 0

    def __post_init__(self) -> None:
        numbers = (self.code, self.fuel_used, self.memory_bytes, self.refused)
        if any(abs(number or 0) >= 1 << 63 for number in numbers) or (self.end is GuestEnd.EXIT and self.code is None):
            raise ValueError("a report with numbers that no guest has")


def read_report(data: bytes) -> WasmEnding | None:
    """Parse the report; None when it is none, because the embedder died or is not ours any more."""
    line, newline, _ = data.partition(b"\n")
    try:
        found = decode(line, WasmEnding) if newline else None
    except BadMessage:
        return None
    return found and replace(found, message=encodable(found.message[:_MOST_MESSAGE]))


#: The status of a guest by its ending, where its exit code does not decide.
_OWN_STATUS = {
    GuestEnd.FUEL: Status.FUEL_EXHAUSTED,
    GuestEnd.MEMORY: Status.MEMORY_EXCEEDED,
    GuestEnd.UNTRANSLATED: Status.COMPILE_FAILED,
}


def wasm_result(request: ExecRequest, outcome: JobOutcome, job: Job, chosen: str) -> ExecResult:
    """Return the result of a run: its end is the limit if the jail ended it, else the ending of the guest."""
    plan = ProgramPlan(steps=tuple(job.steps))
    result = run_result(request, outcome, job, plan, backend="wasm", isolation="wasm", chosen=chosen)
    report = read_report(outcome.report)
    # The memory of the jail is that of the engine too.
    result = replace(result, peak_memory_bytes=None if report is None else report.memory_bytes)
    if report is None or outcome.stopped_by is not None or outcome.reading.memory_exceeded:
        return result
    own = Status.OK if report.end is GuestEnd.EXIT and report.code == 0 else Status.FAILED
    own = _OWN_STATUS.get(report.end, own)
    status, limit = ending.judge(own=own, survived=Limit.MEMORY if report.refused else result.limit)
    has_code = report.end in (GuestEnd.EXIT, GuestEnd.UNTRANSLATED)
    code = TRAPPED if report.end is GuestEnd.TRAP else report.code if has_code else None
    return replace(result, status=status, limit=limit, signal=None, exit_code=code, fuel_used=report.fuel_used)


def unfinished(request: ExecRequest, status: Status, limit: Limit | None, seconds: float = 0.0) -> ExecResult:
    """Return the result of a run that ended in its compiler, or before it."""
    made = make_result(request, status, limit)
    return replace(made, backend="wasm", isolation="wasm", duration=seconds, compile_duration=seconds)


def read_file(folder: int, name: str, most_bytes: int = PREPARE_DISK_MB * MIB) -> bytes:
    """Read a file from the work folder of a jail. Raises ``EnforcerFailed`` unless it is plain and within the size."""
    # The jail compiled untrusted input, so the file may be a link, an endless pipe, or too large.
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        raise EnforcerFailed("compiler", f"it left no file {name!r} that can be read: {error.strerror}") from None
    with closed_after(descriptor):
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > most_bytes:
            raise EnforcerFailed("compiler", f"it left no plain file {name!r} of at most {most_bytes} bytes")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(most_bytes)

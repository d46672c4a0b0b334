"""The result of a run, from what its jail saw. Pure; ``jail/ending.py`` has the order in which evidence counts."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable

from sandbox_kernel.jail import ending
from sandbox_kernel.jail.ending import HEAP_SIGNALS, Verdict
from sandbox_kernel.jail.gate_messages import StepExit
from sandbox_kernel.jail.run_job import Job, JobOutcome
from sandbox_kernel.languages.recipe import ProgramPlan
from sandbox_kernel.model import (
    Call,
    ExecRequest,
    ExecResult,
    FsChange,
    Limit,
    Note,
    NoteKind,
    Status,
    Violation,
    notes,
)
from sandbox_kernel.model.notes import has_note
from sandbox_kernel.policy import SandboxPolicy
from sandbox_kernel.util.values import dataclass

#: What runtimes and compilers write to stderr when they are refused memory. Where the host has no control group,
#: RLIMIT_DATA holds the limit: the kernel refuses an allocation and counts nothing, so these words are the only trace.
#: A program can print them too. It gains nothing: a run that failed is then called one that failed for memory.
OUT_OF_MEMORY_WORDS = {
    "C": "cannot allocate",
    "C++": "bad_alloc",
    "Go, PHP": "out of memory",
    "Lua": "not enough memory",
    "R": "cannot allocate",
    "Ruby": "failed to allocate memory",
    "Rust": "memory allocation of",
}


def judge_run(outcome: JobOutcome, job: Job) -> Verdict:
    """Status and limit of a run; see ``jail/ending.py`` for what counts first."""
    last = outcome.exits[-1] if outcome.exits else None
    own, limit = _own_ending(outcome, last, job)
    refused = outcome.stopped_by is None and last is not None and _out_of_memory(outcome, last, job)
    out_of_memory = outcome.reading.memory_exceeded or refused
    return ending.judge(out_of_memory=out_of_memory, stopped_by=outcome.stopped_by, own=own, survived=limit)


def _own_ending(outcome: JobOutcome, last: StepExit | None, job: Job) -> tuple[Status, Limit | None]:
    """How a run ended that the host did not stop, by the exit of its last step."""
    said = () if last is None else last.flags
    limit = ending.survived_limit(
        kills=False,
        forks_refused=outcome.reading.forks_refused,
        said=[flag for flag in said if flag != Limit.MEMORY] if said else (),
        disk_full=outcome.disk_full,
        truncated=outcome.stdout.truncated or outcome.stderr.truncated,
    )
    if last is None:
        return Status.KILLED, limit
    if last.code == -signal.SIGXCPU and job.cpu_seconds is not None:
        return Status.CPU_LIMIT, Limit.CPU
    if last.code == 0:
        return Status.OK, limit
    step = job.steps[min(len(outcome.exits), len(job.steps)) - 1]
    if step.compiles:
        return Status.COMPILE_FAILED, limit
    # A program calls abort() to say that it failed; any other signal came from elsewhere.
    if last.code < 0 and last.code != -signal.SIGABRT:
        return Status.KILLED, Limit.DISK if last.code == -signal.SIGXFSZ else limit
    return Status.FAILED, limit


def _out_of_memory(outcome: JobOutcome, last: StepExit, job: Job) -> bool:
    """Whether a program failed because it got no more memory, though the kernel killed nothing."""
    if last.code == 0 or (last.code == -signal.SIGXCPU and job.cpu_seconds is not None):
        return False
    had_most = ending.gave_up_near(outcome.peak_bytes, job.memory_bytes)
    # A runtime with a heap limit of its own (V8) ends itself before the kernel has to.
    if Limit.MEMORY in last.flags or (last.code in HEAP_SIGNALS and had_most):
        return True
    if not outcome.reading.refuses_memory:
        return False
    # Without a control group the limit is held by refusing memory. Runtimes then write what happened. A program that
    # does not check the result of an allocation dies when it uses it, with almost all of its memory taken.
    if last.code < 0:
        return had_most and last.code in (-signal.SIGSEGV, -signal.SIGBUS)
    return any(words in outcome.stderr.text[-4096:].lower() for words in OUT_OF_MEMORY_WORDS.values())


@dataclass(kw_only=True)
class RunFacts:
    """What is known of one run besides what its jail saw, by the names that the result has for it."""

    backend: str
    isolation: str
    status: Status
    limit: Limit | None
    exit_code: int | None
    peak_memory_bytes: int | None
    signal: int | None = None
    compile_duration: float | None = None
    fuel_used: int | None = None
    notes: tuple[Note, ...] = ()
    violations: tuple[Violation, ...] = ()
    calls: tuple[Call, ...] = ()
    changes: tuple[FsChange, ...] = ()
    here: str = ""
    chosen: str = ""


def run_facts(
    outcome: JobOutcome, job: Job, plan: ProgramPlan, *, backend: str, isolation: str, chosen: str = ""
) -> RunFacts:
    """Judge the job of one program."""
    status, limit = judge_run(outcome, job)
    step = job.steps[min(len(outcome.exits), len(job.steps) - 1)]
    stopped = step.compiles and outcome.stopped_by is not None
    code = outcome.exits[-1].code if outcome.exits and outcome.stopped_by is None else None
    return RunFacts(
        backend=backend,
        isolation=isolation,
        status=status,
        limit=limit,
        exit_code=None if code is None else code if code >= 0 else 128 - code,
        signal=-code if code is not None and code < 0 else None,
        peak_memory_bytes=outcome.peak_bytes,
        compile_duration=outcome.compile_s if plan.messages is None else 0.0,
        notes=(*plan.notes, notes.compile_stopped()) if stopped else plan.notes,
        chosen=chosen,
    )


def make_result(request: ExecRequest, outcome: JobOutcome, facts: RunFacts, spent_s: float = 0.0) -> ExecResult:
    """Return the result of one run, which nothing changes afterwards. ``spent_s`` are seconds before its job began."""
    cpu = outcome.reading.cpu_seconds
    for step in outcome.exits:
        cpu = max(cpu or 0.0, step.cpu_seconds)
    return ExecResult(
        **vars(facts),
        stdout=outcome.stdout.text,
        stderr=outcome.stderr.text,
        duration=outcome.duration_s + spent_s,
        stdout_bytes=outcome.stdout.total,
        stderr_bytes=outcome.stderr.total,
        stdout_truncated=outcome.stdout.truncated,
        stderr_truncated=outcome.stderr.truncated,
        peak_gpu_memory_bytes=outcome.gpu_peak_bytes,
        cpu_seconds=cpu,
        language=str(request.language),
        timeout=request.timeout,
        memory_limit_mb=request.memory_mb,
        gpu_memory_limit_mb=request.limits.gpu_memory_mb,
    )


# The notes of a result on the network: it was open, the program had none, or the program went past the proxy.
#
# The last two are hints and never verdicts: they come from what the program wrote, or says that it tried. Without any
# rule there is no proxy that knows what the program asked for.

#: Only the end is looked at: programs complain when they give up.
_LOOKED_AT = 1 << 16
# Texts and not compiled: most runs complain of nothing, and ``re`` keeps those that were used.
_SIGNS = (
    r"Name or service not known|Temporary failure in name resolution|[Cc]ould not resolve host|no such host"
    r"|getaddrinfo (?:ENOTFOUND|EAI_AGAIN)|unable to resolve host|failed to lookup address|Network is unreachable"
)
_HOST = (
    r"(?i)(?:could not resolve host:|getaddrinfo (?:ENOTFOUND|EAI_AGAIN)|unable to resolve host address"
    r"|failed to resolve|Pool\(host=|lookup) ?[‘'\"]?([a-z0-9-]+(?:\.[a-z0-9-]+)+)\b"
)
#: Addresses in the source of a program: the best guess of what it wanted when it does not say.
_URL = r"(?i)\b(?:https?|wss?|ftp)://(?:[^\s/'\"@]*@)?([a-z0-9-]+(?:\.[a-z0-9-]+)+(?::[0-9]{1,5})?)"

OPEN = notes.network_open()
BESIDE = notes.network_beside_proxy()


@dataclass(frozen=True)
class NetworkSigns:
    """What may tell that a program wanted the network."""

    #: Its end may hold a complaint about the network.
    stderr: str = ""
    #: The source may name the host.
    code: str = ""
    #: Host names that the program looked up in vain, as its worker says; it may have caught the error.
    tried: tuple[str, ...] = ()

    @property
    def _named(self) -> list[str]:
        """The names with a dot. Others are those of machines, which libraries look up for other reasons."""
        return [name for name in self.tried if "." in name.strip(".")]

    @property
    def complained(self) -> bool:
        """Whether the program met the walls around the network."""
        return bool(self._named) or re.search(_SIGNS, self.stderr[-_LOOKED_AT:]) is not None

    @property
    def domain(self) -> str:
        """The host that the program wanted most likely; empty when nothing names one."""
        if self._named:
            return self._named[0].lower()
        found = re.search(_HOST, self.stderr[-_LOOKED_AT:]) or re.search(_URL, self.code[:_LOOKED_AT])
        return found.group(1).lower() if found is not None else ""


def network_notes(
    policy: SandboxPolicy, signs: NetworkSigns, known: Iterable[Note], *, can_open: bool = True
) -> tuple[Note, ...]:
    """The notes on the network of a run or a cell behind walls, besides its ``known`` notes.

    A program that asked the proxy for a host that cannot be reached used the proxy, so it needs no hint to use it.
    ``can_open``: these walls can open single hosts. A right that nobody can give is not offered.
    """
    complained = signs.complained
    if not policy.network and not policy.network_rules:
        if not complained:
            return ()
        return (notes.no_network(signs.domain) if can_open else notes.never_network(signs.domain or "a host"),)
    beside = (BESIDE,) if complained and not has_note(known, NoteKind.UNREACHED) else ()
    return (OPEN, *beside) if policy.network else beside

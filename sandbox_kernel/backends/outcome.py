"""From what the jail saw to what the caller is told: pure classification, and the only place where it happens."""

from __future__ import annotations

import signal

from sandbox_kernel.jail.core.gate_messages import StepExit
from sandbox_kernel.jail.core.job import Job, JobOutcome
from sandbox_kernel.jail.run.ending import Ending
from sandbox_kernel.languages.support.recipe import ProgramPlan
from sandbox_kernel.model import ExecRequest, ExecResult, Note, Status, notes

#: Status of what was ended before its time; the limit is the ending's own. Sessions use it too.
STOPPED = {
    Ending.TIMEOUT: Status.TIMEOUT,
    Ending.CPU: Status.CPU_LIMIT,
    Ending.MEMORY: Status.MEMORY_EXCEEDED,
    Ending.PROCESSES: Status.KILLED,
    Ending.DISK: Status.KILLED,
    Ending.CANCEL: Status.INTERRUPTED,
    Ending.INTERRUPT: Status.INTERRUPTED,
    Ending.PROTOCOL: Status.KILLED,
    Ending.FAILED: Status.INTERRUPTED,
    Ending.LOST: Status.KILLED,
}
#: What runtimes and compilers say when they are refused memory: C and C++, PHP, Ruby, R, Rust, Lua, Go.
_OUT_OF_MEMORY = (
    "out of memory", "cannot allocate", "failed to allocate memory", "bad_alloc", "memory allocation of",
    "not enough memory",
)  # fmt: skip


def judge(outcome: JobOutcome, job: Job) -> tuple[Status, str | None]:
    """Status and limit of a run, by the kernel's own counters first, then by who stopped it, then by how it ended."""
    last = outcome.exits[-1] if outcome.exits else None
    if outcome.reading.memory_exceeded:
        return Status.MEMORY_EXCEEDED, "memory"
    if outcome.stopped_by is not None:
        return STOPPED[outcome.stopped_by], outcome.stopped_by.limit
    if last is None:
        return Status.KILLED, _survived_limit(outcome, None)
    if last.code == -signal.SIGXCPU and job.cpu_seconds is not None:
        return Status.CPU_LIMIT, "cpu"
    if last.code != 0 and (
        "memory" in last.flags or _gave_up_for_memory(outcome, last, job) or _was_refused_memory(outcome, last, job)
    ):
        return Status.MEMORY_EXCEEDED, "memory"
    limit = _survived_limit(outcome, last)
    if last.code == 0:
        return Status.OK, limit
    step = job.steps[min(len(outcome.exits), len(job.steps)) - 1]
    if step.compiles:
        return Status.COMPILE_FAILED, limit
    # abort() is a program's own way to say that it failed; other signals are somebody else's doing.
    if last.code < 0 and last.code != -signal.SIGABRT:
        return Status.KILLED, "disk" if last.code == -signal.SIGXFSZ else limit
    return Status.FAILED, limit


def _gave_up_for_memory(outcome: JobOutcome, last: StepExit, job: Job) -> bool:
    """Whether a runtime with a heap limit of its own (V8) ended itself before the kernel had to."""
    return last.code in (-signal.SIGABRT, -signal.SIGTRAP) and (outcome.peak_bytes or 0) >= job.memory_bytes * 3 // 4


def _was_refused_memory(outcome: JobOutcome, last: StepExit, job: Job) -> bool:
    """Whether a program ended because it got no more memory, where that is how the limit is held.

    Without a control group nobody kills it: an allocation fails, and what follows is the program's own. Runtimes say
    what happened; a program that does not look at the answer dies of its use, with almost all of its memory taken.
    """
    if not outcome.reading.refuses_memory:
        return False
    if last.code < 0:
        died = last.code in (-signal.SIGSEGV, -signal.SIGBUS)
        return died and (outcome.peak_bytes or 0) >= job.memory_bytes * 3 // 4
    return any(word in outcome.stderr.text[-4096:].lower() for word in _OUT_OF_MEMORY)


def _survived_limit(outcome: JobOutcome, last: StepExit | None) -> str | None:
    """The limit that a program met and lived through, or died of by its own hand."""
    flags = last.flags if last is not None else ()
    if outcome.reading.forks_refused or "processes" in flags:
        return "processes"
    if outcome.disk_full or "disk" in flags:
        return "disk"
    if "open_files" in flags:
        return "open_files"
    if outcome.stdout.truncated or outcome.stderr.truncated:
        return "output"
    return None


def _notes(outcome: JobOutcome, job: Job, plan: ProgramPlan) -> tuple[Note, ...]:
    """What is worth knowing beside the status."""
    step = job.steps[min(len(outcome.exits), len(job.steps) - 1)]
    stopped = step.compiles and outcome.stopped_by is not None
    return (*plan.notes, notes.compile_stopped()) if stopped else plan.notes


def make_result(
    request: ExecRequest, outcome: JobOutcome, job: Job, plan: ProgramPlan, *, backend: str, isolation: str
) -> ExecResult:
    """The result of one run on a backend."""
    status, limit = judge(outcome, job)
    last = outcome.exits[-1] if outcome.exits else None
    ended_itself = last is not None and outcome.stopped_by is None
    code = last.code if ended_itself and last is not None else None
    cpu = outcome.reading.cpu_seconds
    if outcome.exits:
        cpu = max(cpu or 0.0, max(e.cpu_seconds for e in outcome.exits))
    return ExecResult(
        stdout=outcome.stdout.text,
        stderr=outcome.stderr.text,
        exit_code=None if code is None else code if code >= 0 else 128 - code,
        duration=outcome.duration_s,
        status=status,
        signal=-code if code is not None and code < 0 else None,
        limit=limit,
        compile_duration=outcome.compile_s if plan.messages is None else 0.0,
        stdout_bytes=outcome.stdout.total,
        stderr_bytes=outcome.stderr.total,
        stdout_truncated=outcome.stdout.truncated,
        stderr_truncated=outcome.stderr.truncated,
        peak_memory_bytes=outcome.peak_bytes,
        cpu_seconds=cpu,
        language=str(request.language),
        backend=backend,
        isolation=isolation,
        timeout=request.timeout,
        memory_limit_mb=request.memory_mb,
        notes=_notes(outcome, job, plan),
    )

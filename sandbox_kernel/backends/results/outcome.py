"""The result of a run, from what its jail saw. Pure; ``jail/ending.py`` has the order in which evidence counts."""

from __future__ import annotations

import signal

from sandbox_kernel.jail import ending
from sandbox_kernel.jail.ending import HEAP_SIGNALS, Evidence, Verdict
from sandbox_kernel.jail.gate_messages import StepExit
from sandbox_kernel.jail.run_job import Job, JobOutcome
from sandbox_kernel.languages.recipe import ProgramPlan
from sandbox_kernel.model import ExecRequest, ExecResult, Limit, Note, Status, notes

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
    return ending.judge(
        Evidence(
            out_of_memory=outcome.reading.memory_exceeded
            or (outcome.stopped_by is None and last is not None and _out_of_memory(outcome, last, job)),
            stopped_by=outcome.stopped_by,
            own=own,
            survived=limit,
        )
    )


def _own_ending(outcome: JobOutcome, last: StepExit | None, job: Job) -> tuple[Status, Limit | None]:
    """How a run ended that the host did not stop, by the exit of its last step."""
    limit = ending.survived_limit(
        kills=False,
        forks_refused=outcome.reading.forks_refused,
        said=() if last is None else [flag for flag in last.flags if flag != Limit.MEMORY],
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
    return Limit.MEMORY in last.flags or _gave_up(outcome, last, job) or _was_refused_memory(outcome, last, job)


def _gave_up(outcome: JobOutcome, last: StepExit, job: Job) -> bool:
    """Whether a runtime with a heap limit of its own (V8) ended itself before the kernel had to."""
    return last.code in HEAP_SIGNALS and ending.gave_up_near(outcome.peak_bytes, job.memory_bytes)


def _was_refused_memory(outcome: JobOutcome, last: StepExit, job: Job) -> bool:
    """Whether an allocation failed, where the limit is held by refusing memory (no control group).

    Runtimes then write what happened. A program that does not check the result of an allocation dies when it uses it,
    with almost all of its memory taken.
    """
    if not outcome.reading.refuses_memory:
        return False
    if last.code < 0:
        died = last.code in (-signal.SIGSEGV, -signal.SIGBUS)
        return died and ending.gave_up_near(outcome.peak_bytes, job.memory_bytes)
    return any(words in outcome.stderr.text[-4096:].lower() for words in OUT_OF_MEMORY_WORDS.values())


def _notes(outcome: JobOutcome, job: Job, plan: ProgramPlan) -> tuple[Note, ...]:
    """What is worth knowing beside the status."""
    step = job.steps[min(len(outcome.exits), len(job.steps) - 1)]
    stopped = step.compiles and outcome.stopped_by is not None
    return (*plan.notes, notes.compile_stopped()) if stopped else plan.notes


def make_result(
    request: ExecRequest, outcome: JobOutcome, job: Job, plan: ProgramPlan, *, backend: str, isolation: str
) -> ExecResult:
    """The result of one run on a backend."""
    status, limit = judge_run(outcome, job)
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
        peak_gpu_memory_bytes=outcome.gpu_peak_bytes,
        cpu_seconds=cpu,
        language=str(request.language),
        backend=backend,
        isolation=isolation,
        timeout=request.timeout,
        memory_limit_mb=request.memory_mb,
        gpu_memory_limit_mb=request.limits.gpu_memory_mb,
        notes=_notes(outcome, job, plan),
    )

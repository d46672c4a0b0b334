"""The result of a run from what its jail saw, and its notes on the network. Pure; ``jail/ending.py`` judges the end."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable
from dataclasses import replace

from sandbox_kernel.jail import ending
from sandbox_kernel.jail.ending import HEAP_SIGNALS, Verdict
from sandbox_kernel.jail.gate_messages import StepExit
from sandbox_kernel.jail.run_job import Job, JobOutcome
from sandbox_kernel.jail.streams import Capture
from sandbox_kernel.languages.recipe import ProgramPlan
from sandbox_kernel.model import CellError, ExecRequest, ExecResult, Limit, Note, NoteKind, Status, notes
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


#: The stream of a program that did not begin.
SILENT = Capture(0)


def make_result(
    request: ExecRequest,
    status: Status,
    limit: Limit | None = None,
    *,
    stdout: Capture = SILENT,
    stderr: Capture = SILENT,
    code: int | None = None,
    error: CellError | None = None,
    memory_mb: int = 0,
) -> ExecResult:
    """Return a result that says what was asked for, how it ended, and what was written; callers ``replace`` the rest.

    ``code`` is that of the last process, below zero for a signal. The ``error`` of a cell stands at the end of its
    stderr, as a program would have left it there. A cell whose request names no memory has the ``memory_mb`` of its
    session.
    """
    return ExecResult(
        language=str(request.language),
        timeout=request.timeout,
        memory_limit_mb=memory_mb or request.memory_mb,
        gpu_memory_limit_mb=request.limits.gpu_memory_mb,
        status=status,
        limit=limit,
        exit_code=None if code is None else code if code >= 0 else 128 - code,
        signal=-code if code is not None and code < 0 else None,
        stdout=stdout.text,
        stdout_bytes=stdout.total,
        stdout_truncated=stdout.truncated,
        stderr=stderr.text if error is None else f"{stderr.text}{_printed(error)}",
        stderr_bytes=stderr.total,
        stderr_truncated=stderr.truncated,
        error=error,
    )


def run_result(
    request: ExecRequest,
    outcome: JobOutcome,
    job: Job,
    plan: ProgramPlan,
    *,
    backend: str,
    isolation: str,
    chosen: str = "",
) -> ExecResult:
    """Return the result of the job of one program, as its jail saw it."""
    cpu = outcome.reading.cpu_seconds
    for ended in outcome.exits:
        cpu = max(cpu or 0.0, ended.cpu_seconds)
    status, limit = judge_run(outcome, job)
    step = job.steps[min(len(outcome.exits), len(job.steps) - 1)]
    stopped = step.compiles and outcome.stopped_by is not None
    code = outcome.exits[-1].code if outcome.exits and outcome.stopped_by is None else None
    found = [*plan.notes, *([notes.compile_stopped()] if stopped else [])]
    if limit is Limit.MEMORY and outcome.reading.forks_refused:
        found.append(notes.many_processes(request.limits.processes))
    return replace(
        make_result(request, status, limit, stdout=outcome.stdout, stderr=outcome.stderr, code=code),
        backend=backend,
        isolation=isolation,
        duration=outcome.duration_s,
        cpu_seconds=cpu,
        peak_memory_bytes=outcome.peak_bytes,
        peak_gpu_memory_bytes=outcome.gpu_peak_bytes,
        compile_duration=outcome.compile_s if plan.messages is None else 0.0,
        notes=tuple(found),
        chosen=chosen,
    )


def _printed(error: CellError) -> str:
    """Return the traceback of a cell as text; empty where the cell only left."""
    return "" if error.ename == "SystemExit" else re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error.traceback)) + "\n"


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
    beside = (notes.network_beside_proxy(),) if complained and not has_note(known, NoteKind.UNREACHED) else ()
    return (notes.network_open(), *beside) if policy.network else beside

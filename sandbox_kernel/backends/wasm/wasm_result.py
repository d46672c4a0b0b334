"""Reads what the embedder inside the jail left, its report and its files, and makes the result of a run.

The embedder shares its process with the guest, so its report is untrusted: only the ending of the guest is taken from
it. Time, CPU time and memory are measured by the jail.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, replace
from enum import StrEnum

from sandbox_kernel.backends.outcome import RunFacts, run_facts
from sandbox_kernel.backends.wasm.wasm_job import PREPARE_DISK_MB
from sandbox_kernel.errors import EnforcerFailed
from sandbox_kernel.ground.wire import BadMessage, decode
from sandbox_kernel.jail import ending
from sandbox_kernel.jail.ending import Evidence, Verdict
from sandbox_kernel.jail.gate_messages import readable_text
from sandbox_kernel.jail.run_job import Job, JobOutcome
from sandbox_kernel.languages.recipe import ProgramPlan
from sandbox_kernel.limits import MIB
from sandbox_kernel.model import ExecRequest, ExecResult, Limit, Status


class GuestEnd(StrEnum):
    """How a guest ended, by the words of the embedder inside the jail (``guest/wasm/engine.py``)."""

    EXIT = "exit"
    TRAP = "trap"
    FUEL = "fuel"
    MEMORY = "memory"
    EPOCH = "epoch"
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
    return found and replace(found, message=readable_text(found.message[:_MOST_MESSAGE]))


#: The status of a guest by its ending, where its exit code does not decide.
_OWN_STATUS = {
    GuestEnd.FUEL: Status.FUEL_EXHAUSTED,
    GuestEnd.MEMORY: Status.MEMORY_EXCEEDED,
    GuestEnd.EPOCH: Status.TIMEOUT,
    GuestEnd.UNTRANSLATED: Status.COMPILE_FAILED,
}


def judge_guest(report: WasmEnding, otherwise: Limit | None) -> Verdict:
    """Return status and limit of a guest that the jail did not end; ``otherwise`` is a limit that the jail noticed."""
    own = _OWN_STATUS.get(report.end, Status.FAILED)
    if report.end is GuestEnd.EXIT and report.code == 0:
        own = Status.OK
    return ending.judge(Evidence(own=own, survived=Limit.MEMORY if report.refused else otherwise))


def wasm_facts(outcome: JobOutcome, job: Job, chosen: str) -> RunFacts:
    """Return how a run ended: by the limit if the jail ended it, else by the ending of the guest."""
    plan = ProgramPlan(steps=tuple(job.steps))
    facts = run_facts(outcome, job, plan, backend="wasm", isolation="wasm", chosen=chosen)
    report = read_report(outcome.report)
    if report is None:
        return facts
    if outcome.stopped_by is not None or outcome.reading.memory_exceeded:
        facts.peak_bytes = report.memory_bytes
        return facts
    facts.status, facts.limit = judge_guest(report, facts.limit)
    has_code = report.end in (GuestEnd.EXIT, GuestEnd.UNTRANSLATED)
    facts.code = TRAPPED if report.end is GuestEnd.TRAP else report.code if has_code else None
    facts.fuel_used = report.fuel_used
    if report.memory_bytes is not None:
        facts.peak_bytes = report.memory_bytes
    return facts


def unfinished(request: ExecRequest, status: Status, limit: Limit | None, compile_s: float) -> ExecResult:
    """Return the result of a run that ended before the guest began."""
    return ExecResult(
        status=status,
        limit=limit,
        duration=compile_s,
        compile_duration=compile_s,
        language=str(request.language),
        backend="wasm",
        isolation="wasm",
        timeout=request.timeout,
        memory_limit_mb=request.memory_mb,
    )


def read_file(folder: int, name: str, most_bytes: int = PREPARE_DISK_MB * MIB) -> bytes:
    """Read a file from the work folder of a jail. Raises ``EnforcerFailed`` unless it is a plain file within the size.

    The jail compiled untrusted input, so the file may be a link, an endless pipe, or too large.
    """
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        raise EnforcerFailed("compiler", f"it left no file {name!r} that can be read: {error.strerror}") from None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > most_bytes:
            raise EnforcerFailed("compiler", f"it left no plain file {name!r} of at most {most_bytes} bytes")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(most_bytes)
    finally:
        os.close(descriptor)

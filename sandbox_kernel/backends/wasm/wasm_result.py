"""Reads the report of the embedder inside the jail and makes the result of a run.

The embedder shares its process with the guest, so its report is untrusted: only the ending of the guest is taken from
it. Time, CPU time and memory are measured by the jail.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from enum import StrEnum

from sandbox_kernel.backends.results.outcome import make_result
from sandbox_kernel.backends.wasm.advice import ModuleDefect
from sandbox_kernel.jail.core.gate_messages import readable_text
from sandbox_kernel.jail.core.job import Job, JobOutcome
from sandbox_kernel.jail.run import ending
from sandbox_kernel.jail.run.ending import Evidence, Verdict
from sandbox_kernel.languages.recipe import ProgramPlan
from sandbox_kernel.model import ExecRequest, ExecResult, Limit, Status


class GuestEnd(StrEnum):
    """How a guest ended, by the words of the embedder inside the jail (``guest/wasm/endings.py``)."""

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
    #: What is wrong with a module that is invalid.
    defect: ModuleDefect = ModuleDefect.OTHER


def read_report(data: bytes) -> WasmEnding | None:
    """Parse the report; None when it cannot be parsed, because the embedder died."""
    line, newline, _ = data.partition(b"\n")
    if not newline:
        return None
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict) or fields.get("end") not in list(GuestEnd):
        return None
    code, message = _whole(fields.get("code")), fields.get("message")
    end = GuestEnd(fields["end"])
    if end is GuestEnd.EXIT and code is None:
        return None
    return WasmEnding(
        end=end,
        code=code,
        message=readable_text(message[:_MOST_MESSAGE]) if isinstance(message, str) else "",
        fuel_used=_whole(fields.get("fuel_used")),
        memory_bytes=_whole(fields.get("memory_bytes")),
        refused=_whole(fields.get("refused")) or 0,
        defect=ModuleDefect(fields["defect"]) if fields.get("defect") in list(ModuleDefect) else ModuleDefect.OTHER,
    )


def _whole(value: object) -> int | None:
    good = isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63
    return value if good and isinstance(value, int) else None


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


def wasm_result(request: ExecRequest, outcome: JobOutcome, job: Job, *, backend: str, isolation: str) -> ExecResult:
    """Return the result of one run: by the limit if the jail ended it, else by the ending of the guest."""
    result = make_result(
        request, outcome, job, ProgramPlan(steps=tuple(job.steps)), backend=backend, isolation=isolation
    )
    report = read_report(outcome.report)
    if outcome.stopped_by is not None or outcome.reading.memory_exceeded or report is None:
        return result if report is None else replace(result, peak_memory_bytes=report.memory_bytes)
    status, limit = judge_guest(report, result.limit)
    has_code = report.end in (GuestEnd.EXIT, GuestEnd.UNTRANSLATED)
    code = TRAPPED if report.end is GuestEnd.TRAP else report.code if has_code else None
    return replace(
        result,
        status=status,
        limit=limit,
        exit_code=code,
        signal=None,
        fuel_used=report.fuel_used,
        peak_memory_bytes=report.memory_bytes if report.memory_bytes is not None else result.peak_memory_bytes,
    )


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

"""From how a cell ended to what its author is told: pure, and the only place where it is decided."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from signal import SIGABRT, SIGTRAP

from sandbox_kernel.backends.outcome import STOPPED
from sandbox_kernel.jail.run.ending import Ending
from sandbox_kernel.jail.streams.output import Capture
from sandbox_kernel.model import Display, ExecResult, Language, Status, Violation, signal_name
from sandbox_kernel.session.cell.cell_order import CellEnd
from sandbox_kernel.session.worker.worker import RolledBack

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, kw_only=True)
class CellFacts:
    """What was measured around a cell."""

    stdout: Capture
    stderr: Capture
    displays: tuple[Display, ...]
    dropped_displays: int
    late_displays: int
    violations: tuple[Violation, ...]
    oom_kills: int
    forks_refused: bool
    cpu_seconds: float | None
    peak_bytes: int | None


def no_notes(_stderr: str) -> Sequence[str]:
    """Of a session without network there is nothing to say."""
    return ()


@dataclass(frozen=True, kw_only=True)
class Frame:
    """What is the same for all cells of a session."""

    language: str
    backend: str
    isolation: str
    memory_mb: int
    #: Why this backend, when nobody had named one.
    chosen: str = ""
    #: What is said of the network, by what the cell wrote to stderr.
    network_notes: Callable[[str], Sequence[str]] = no_notes


def ended_by_its_heap(end: CellEnd, frame: Frame, peak_bytes: int | None) -> bool:
    """Whether a runtime with a heap limit of its own (V8) gave up before the kernel had to."""
    own = frame.language in (Language.JAVASCRIPT, Language.TYPESCRIPT) and end.how is Ending.DIED
    return own and end.code in (-SIGABRT, -SIGTRAP) and (peak_bytes or 0) >= (frame.memory_mb << 20) * 3 // 4


def judge(end: CellEnd, facts: CellFacts, frame: Frame) -> tuple[Status, str | None]:
    """Status and limit of a cell: by the kernel's counters first, then by who stopped it, then by what it said."""
    survived = survived_limit(end, facts)
    if ended_by_its_heap(end, frame, facts.peak_bytes):
        return Status.MEMORY_EXCEEDED, "memory"
    if end.how is Ending.DIED:
        return (Status.MEMORY_EXCEEDED, "memory") if facts.oom_kills else (Status.KILLED, survived)
    if end.how is Ending.LOST and facts.oom_kills:
        return Status.MEMORY_EXCEEDED, "memory"
    if end.done is None:
        return STOPPED[end.how], end.how.limit
    if end.done.status == "ok":
        return Status.OK, survived
    if end.done.status == "interrupted" and end.interrupted:
        return Status.INTERRUPTED, survived
    if ran_out_of_memory(end):
        return Status.MEMORY_EXCEEDED, "memory"
    return Status.FAILED, survived


def ran_out_of_memory(end: CellEnd) -> bool:
    """Whether a cell ended with an error for want of memory, and its worker lives."""
    return end.done is not None and end.done.status == "error" and end.done.limit == "memory"


def survived_limit(end: CellEnd, facts: CellFacts) -> str | None:
    """A limit that the cell met and lived through."""
    said = end.done.limit if end.done is not None else None
    if facts.oom_kills:
        return "memory"
    if facts.forks_refused or said == "processes":
        return "processes"
    if said is not None:
        return said
    if end.disk_full:
        return "disk"
    if facts.stdout.truncated or facts.stderr.truncated:
        return "output"
    return None


def reason(end: CellEnd) -> str:
    """Why the worker had to go, in words for a note; empty where the status says it all."""
    if end.how is Ending.PROTOCOL:
        return f"the worker was ended: {end.problem}"
    if end.how is Ending.DIED and end.code is not None:
        return (
            f"the cell ended its own process by signal {-end.code} ({signal_name(-end.code)})"
            if end.code < 0
            else f"the cell ended its own process with exit code {end.code}"
        )
    if end.how is Ending.INTERRUPT:
        return "the cell did not end when it was interrupted"
    return ""


def comeback_notes(back: RolledBack, steps: int) -> list[str]:
    """What came back with a checkpoint. ``steps`` is how many cells were taken back besides the present one."""
    kept = f"{back.names} variable{'' if back.names == 1 else 's'} kept"
    if steps:
        notes = [f"rolled back to an older state: the last {steps} cells are taken back too; {kept}"]
    else:
        notes = [f"rolled back to the state before this cell; {kept}"]
    return notes + loss_notes(back)


def loss_notes(back: RolledBack) -> list[str]:
    """What did not come back with a checkpoint."""
    notes = []
    if back.files:
        notes.append(f"files in the work folder were left as they are: {back.files}")
    if back.threads:
        notes.append(f"{back.threads} thread{'' if back.threads == 1 else 's'} of earlier cells did not come back")
    return notes


def lost_notes(cells: Collection[int], present: int) -> list[str]:
    """Which checkpoints were killed without an order of ours. ``present`` counts the cells that are in the state."""
    back = sorted(present - cell for cell in cells if cell < present)
    if not back:
        return []
    many = ", ".join(map(str, back))
    why = "some checkpoints were killed, by the session itself or for memory"
    return [f"{why}: undo of {many} cell{_s(back[-1])} is not possible"]


def _s(count: int) -> str:
    return "" if count == 1 else "s"


def _told(end: CellEnd) -> str:
    """The traceback as plain text, as a program would have left it on stderr; pages draw ``error`` instead."""
    if end.done is None or end.done.error is None or end.done.error.ename == "SystemExit":
        return ""
    return _COLOURS.sub("", "\n".join(end.done.error.traceback)) + "\n"


def make_result(
    end: CellEnd, facts: CellFacts, frame: Frame, *, timeout: float, rolled_back: bool, notes: Sequence[str]
) -> ExecResult:
    """The result of one cell."""
    status, limit = judge(end, facts, frame)
    code = end.done.exit_code if end.done is not None else end.code if end.how is Ending.DIED else None
    more = [f"{facts.dropped_displays} further outputs were too many to be shown"] if facts.dropped_displays else []
    if facts.late_displays:
        more.append(f"{facts.late_displays} outputs were not shown: the time was over before they had been checked")
    if facts.oom_kills and end.how is Ending.DONE:
        more.append("the kernel ended a process that the cell had started, for its memory; the session lives on")
    if end.done is not None and end.done.unsaved:
        more.append("the shell ended without leaving its state: variables and functions are as before this cell")
    stderr = facts.stderr.text + _told(end)
    more += frame.network_notes(stderr)
    return ExecResult(
        stdout=facts.stdout.text,
        stderr=stderr,
        exit_code=None if code is None else code if code >= 0 else 128 - code,
        duration=end.duration_s,
        status=status,
        signal=-code if code is not None and code < 0 else None,
        limit=limit,
        violations=facts.violations,
        stdout_bytes=facts.stdout.total,
        stderr_bytes=facts.stderr.total,
        stdout_truncated=facts.stdout.truncated,
        stderr_truncated=facts.stderr.truncated,
        peak_memory_bytes=facts.peak_bytes,
        cpu_seconds=facts.cpu_seconds,
        displays=facts.displays,
        error=end.done.error if end.done is not None else None,
        rolled_back=rolled_back,
        language=frame.language,
        backend=frame.backend,
        isolation=frame.isolation,
        timeout=timeout,
        memory_limit_mb=frame.memory_mb,
        notes=(*notes, *more),
        chosen=frame.chosen,
    )

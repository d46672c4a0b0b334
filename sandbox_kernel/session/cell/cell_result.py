"""The result of a cell, from how it ended and what was measured around it. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from sandbox_kernel.backends.outcome import NetworkSigns
from sandbox_kernel.ground.values import dataclass
from sandbox_kernel.jail import ending
from sandbox_kernel.jail.ending import HEAP_SIGNALS, Ending, Evidence, Verdict
from sandbox_kernel.jail.streams import Capture
from sandbox_kernel.model import Display, ExecResult, Language, Limit, Note, Status, Violation, notes
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
    gpu_peak_bytes: int | None = None


def no_notes(_signs: NetworkSigns, _notes: Sequence[Note]) -> Sequence[Note]:
    """Makes no notes on the network."""
    return ()


@dataclass(frozen=True, kw_only=True)
class Frame:
    """What is the same for all cells of a session."""

    language: str
    backend: str
    isolation: str
    memory_mb: int
    gpu_memory_mb: int | None = None
    #: Why this backend, when nobody had named one.
    chosen: str = ""
    #: Makes the notes on the network, from the signs that the cell wanted it and the other notes of the cell.
    network_notes: Callable[[NetworkSigns, Sequence[Note]], Sequence[Note]] = no_notes


def ended_by_its_heap(end: CellEnd, frame: Frame, peak_bytes: int | None) -> bool:
    """Whether a runtime with a heap limit of its own (V8) ended itself before the kernel had to."""
    own = frame.language in (Language.JAVASCRIPT, Language.TYPESCRIPT) and end.how is Ending.DIED
    return own and end.code in HEAP_SIGNALS and ending.gave_up_near(peak_bytes, frame.memory_mb << 20)


def judge_cell(end: CellEnd, facts: CellFacts, frame: Frame) -> Verdict:
    """Status and limit of a cell; see ``jail/ending.py`` for what counts first."""
    killed = end.how in (Ending.DIED, Ending.LOST) and facts.oom_kills > 0
    return ending.judge(
        Evidence(
            out_of_memory=killed or ended_by_its_heap(end, frame, facts.peak_bytes) or ran_out_of_memory(end),
            stopped_by=None if end.how in (Ending.DONE, Ending.DIED) else end.how,
            own=_own_ending(end),
            survived=survived_limit(end, facts),
        )
    )


def _own_ending(end: CellEnd) -> Status:
    """The status of a cell that the host did not stop, by the last message of its worker."""
    if end.done is None:
        return Status.KILLED
    if end.done.status == "ok":
        return Status.OK
    return Status.INTERRUPTED if end.done.status == "interrupted" and end.interrupted else Status.FAILED


def ran_out_of_memory(end: CellEnd) -> bool:
    """Whether a cell failed because an allocation failed, and its worker lives.

    Only the worker knows: the kernel refuses one large allocation without counting it. A worker that lies gets what a
    real allocation beyond the limit would get it, which is its own cell taken back.
    """
    return end.done is not None and end.done.status == "error" and end.done.limit == Limit.MEMORY


def survived_limit(end: CellEnd, facts: CellFacts) -> Limit | None:
    """A limit that the cell met and lived through."""
    said = end.done.limit if end.done is not None else None
    return ending.survived_limit(
        kills=facts.oom_kills > 0,
        forks_refused=facts.forks_refused,
        said=() if said is None else (said,),
        disk_full=end.disk_full,
        truncated=facts.stdout.truncated or facts.stderr.truncated,
    )


def reason(end: CellEnd) -> Note | None:
    """Why the worker was ended; None where the status of the result says it all."""
    if end.how is Ending.PROTOCOL:
        return notes.broke_protocol(end.problem)
    if end.how is Ending.DIED and end.code is not None:
        return notes.ended_itself(end.code)
    return notes.ignored_interrupt() if end.how is Ending.INTERRUPT else None


def comeback_notes(back: RolledBack, steps: int) -> list[Note]:
    """What a rollback restored and what it did not. ``steps`` cells before the present one were taken back too."""
    return [notes.rolled_back(back.names, steps), *loss_notes(back)]


def loss_notes(back: RolledBack) -> list[Note]:
    """What a rollback or an undo did not restore."""
    files = [notes.lost_files(back.files)] if back.files else []
    return [*files, notes.lost_threads(back.threads)] if back.threads else files


def lost_notes(steps: Sequence[int], names: Sequence[str]) -> list[Note]:
    """Which checkpoints, so many cells back, were killed, and not by the host; and which named states are gone."""
    return [*([notes.lost_checkpoints(steps)] if steps else []), *([notes.lost_names(names)] if names else [])]


def _traceback(end: CellEnd) -> str:
    """The traceback as plain text, as a program would have left it on stderr; pages draw ``error`` instead."""
    if end.done is None or end.done.error is None or end.done.error.ename == "SystemExit":
        return ""
    return _COLOURS.sub("", "\n".join(end.done.error.traceback)) + "\n"


def _cell_notes(end: CellEnd, facts: CellFacts) -> Iterator[Note]:
    """The notes that follow from how the cell ended and what was measured around it."""
    if facts.dropped_displays:
        yield notes.displays_dropped(facts.dropped_displays)
    if facts.late_displays:
        yield notes.displays_late(facts.late_displays)
    if facts.oom_kills and end.how is Ending.DONE:
        yield notes.child_out_of_memory()
    if end.done is not None and end.done.unsaved:
        yield notes.state_not_saved()
    if end.done is not None and end.done.accelerator and not end.told_of_gpu:
        yield notes.state_on_gpu()


def make_result(
    end: CellEnd,
    facts: CellFacts,
    frame: Frame,
    *,
    timeout: float,
    rolled_back: bool,
    told: Sequence[Note],
    code_text: str = "",
) -> ExecResult:
    """The result of one cell, whose source is ``code_text``."""
    status, limit = judge_cell(end, facts, frame)
    code = end.done.exit_code if end.done is not None else end.code if end.how is Ending.DIED else None
    stderr = facts.stderr.text + _traceback(end)
    told = [*told, *_cell_notes(end, facts)]
    told += frame.network_notes(NetworkSigns(stderr, code_text, end.done.tried if end.done is not None else ()), told)
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
        peak_gpu_memory_bytes=facts.gpu_peak_bytes,
        cpu_seconds=facts.cpu_seconds,
        displays=facts.displays,
        error=end.done.error if end.done is not None else None,
        rolled_back=rolled_back,
        language=frame.language,
        backend=frame.backend,
        isolation=frame.isolation,
        timeout=timeout,
        memory_limit_mb=frame.memory_mb,
        gpu_memory_limit_mb=frame.gpu_memory_mb,
        notes=tuple(told),
        chosen=frame.chosen,
        calls=end.calls,
    )

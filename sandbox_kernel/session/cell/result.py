"""How a cell ended, and what its result says of it. Pure."""

from __future__ import annotations

from dataclasses import replace

from sandbox_kernel.backends.outcome import make_result
from sandbox_kernel.jail import ending
from sandbox_kernel.jail.ending import HEAP_SIGNALS, Ending, Verdict
from sandbox_kernel.jail.streams import Capture
from sandbox_kernel.limits import Limit
from sandbox_kernel.model import Call, ExecResult, Language, Note, Status, notes
from sandbox_kernel.session.cell.displays import Displays
from sandbox_kernel.session.cell.request import CellRequest, SessionSpec
from sandbox_kernel.session.worker.memory_budget import MemoryUse
from sandbox_kernel.session.worker.messages import CellDone
from sandbox_kernel.util.values import dataclass


@dataclass(frozen=True, kw_only=True)
class CellEnd:
    """How a cell ended and what was measured around it. Anything but ``DONE``: the worker is dead or must die.

    It is evidence and no result: the rollback is decided by it, before there is a result. ``disk_full`` is true when
    the disk filled up during the cell, not when it was full before.
    """

    how: Ending
    done: CellDone | None
    duration_s: float
    interrupted: bool
    disk_full: bool
    code: int | None = None
    problem: str = ""
    calls: tuple[Call, ...] = ()
    oom_kills: int = 0
    forks_refused: bool = False
    #: Whether it had so many processes at its end that more memory would not help.
    crowded: bool = False
    cpu_seconds: float | None = None
    #: The most that the whole jail has held, kept states too; ``memory`` is what the session is told of.
    peak_bytes: int | None = None
    memory: MemoryUse = MemoryUse()
    gpu_peak_bytes: int | None = None

    @property
    def ran_out_of_memory(self) -> bool:
        """Whether a cell failed because an allocation failed, and its worker lives.

        Only the worker knows: the kernel refuses one large allocation without counting it. A worker that lies gets what
        a real allocation beyond the limit would get it, which is its own cell taken back.
        """
        return self.done is not None and self.done.status == "error" and self.done.limit == "memory"

    @property
    def ended_well(self) -> bool:
        """Whether the cell ended by itself without an error."""
        return self.done is not None and self.done.status == "ok"

    def gave_up_its_heap(self, language: Language, memory_mb: int) -> bool:
        """Whether a runtime with a heap limit of its own (V8) ended itself before the kernel had to."""
        own = language in (Language.JAVASCRIPT, Language.TYPESCRIPT) and self.how is Ending.DIED
        return own and self.code in HEAP_SIGNALS and ending.gave_up_near(self.peak_bytes, memory_mb << 20)

    def reason(self) -> Note | None:
        """Why the worker was ended; None where the status of the result says it all."""
        if self.how is Ending.PROTOCOL:
            return notes.broke_protocol(self.problem)
        if self.how is Ending.DIED and self.code is not None:
            return notes.ended_itself(self.code)
        return notes.ignored_interrupt() if self.how is Ending.INTERRUPT else None


def judge_cell(end: CellEnd, language: Language, memory_mb: int, *, truncated: bool = False) -> Verdict:
    """Status and limit of a cell; see ``jail/ending.py`` for what counts first."""
    killed = end.how in (Ending.DIED, Ending.LOST) and end.oom_kills > 0
    said = end.done.limit if end.done is not None else None
    if end.done is None:
        own = Status.KILLED
    elif end.ended_well:
        own = Status.OK
    else:
        own = Status.INTERRUPTED if end.done.status == "interrupted" and end.interrupted else Status.FAILED
    return ending.judge(
        out_of_memory=killed or end.gave_up_its_heap(language, memory_mb) or end.ran_out_of_memory,
        stopped_by=None if end.how in (Ending.DONE, Ending.DIED) else end.how,
        own=own,
        survived=ending.survived_limit(
            kills=end.oom_kills > 0,
            forks_refused=end.forks_refused,
            said=() if said is None else (said,),
            disk_full=end.disk_full,
            truncated=truncated,
        ),
    )


def cell_result(
    request: CellRequest,
    spec: SessionSpec,
    end: CellEnd,
    stdout: Capture,
    stderr: Capture,
    shown: Displays,
    memory_mb: int,
) -> ExecResult:
    """Return the result of a cell, which had ``memory_mb``, as its worker and its jail saw it."""
    done = end.done
    status, limit = judge_cell(end, spec.language, memory_mb, truncated=stdout.truncated or stderr.truncated)
    code = done.exit_code if done is not None else end.code if end.how is Ending.DIED else None
    error = done.error if done is not None else None
    # Who ends it looks a few times a second, and what grows fast is not seen at its largest.
    was_ended = limit is Limit.MEMORY and end.how is not Ending.DONE
    peak = memory_mb << 20 if was_ended else end.memory.peak_bytes
    found: list[Note] = []
    if shown.dropped:
        found.append(notes.displays_dropped(shown.dropped))
    if limit is Limit.MEMORY and (end.crowded or end.forks_refused):
        found.append(notes.many_processes(request.limits.processes))
    elif end.oom_kills and end.how is Ending.DONE:
        found.append(notes.child_out_of_memory())
    if done is not None and done.unsaved:
        found.append(notes.state_not_saved())
    return replace(
        make_result(request, status, limit, stdout=stdout, stderr=stderr, code=code, error=error, memory_mb=memory_mb),
        backend=spec.backend,
        isolation=spec.isolation,
        duration=end.duration_s,
        cpu_seconds=end.cpu_seconds,
        peak_memory_bytes=peak,
        added_memory_bytes=max(0, peak - end.memory.before_bytes),
        kept_memory_bytes=end.memory.kept_bytes,
        wanted_memory_bytes=end.memory.wanted_bytes if was_ended else None,
        peak_gpu_memory_bytes=end.gpu_peak_bytes,
        notes=tuple(found),
        calls=end.calls,
        displays=shown.all(),
        chosen=spec.chosen,
    )

"""How a cell ended, and the result that is made of it. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sandbox_kernel.backends.outcome import NetworkSigns
from sandbox_kernel.jail import ending
from sandbox_kernel.jail.ending import HEAP_SIGNALS, Ending, Verdict
from sandbox_kernel.model import Call, ExecResult, FsChange, Language, Note, Status, Violation, notes
from sandbox_kernel.session.cell.request import CellRequest, NetworkNotes, SessionSpec
from sandbox_kernel.session.worker.messages import CellDone
from sandbox_kernel.util.values import dataclass

if TYPE_CHECKING:
    from sandbox_kernel.jail.streams import Capture
    from sandbox_kernel.session.cell.displays import Displays

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, kw_only=True)
class CellEnd:
    """How a cell ended and what was measured around it. Anything but ``DONE``: the worker is dead or must die.

    ``disk_full`` is true when the disk filled up during the cell, not when it was full before.
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
    cpu_seconds: float | None = None
    peak_bytes: int | None = None
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


def make_result(
    spec: SessionSpec,
    request: CellRequest,
    memory_mb: int,
    end: CellEnd,
    stdout: Capture,
    stderr: Capture,
    shown: Displays,
    *,
    rolled_back: bool = False,
    told: Sequence[Note] = (),
    violations: tuple[Violation, ...] = (),
    changes: tuple[FsChange, ...] = (),
    here: str = "",
    network_notes: NetworkNotes | None = None,
) -> ExecResult:
    """Return the result of one cell, which had ``memory_mb``. ``told`` are notes that are known already."""
    done = end.done
    status, limit = judge_cell(end, spec.language, memory_mb, truncated=stdout.truncated or stderr.truncated)
    code = done.exit_code if done is not None else end.code if end.how is Ending.DIED else None
    error = done.error if done is not None else None
    errors = stderr.text
    if error is not None and error.ename != "SystemExit":
        # As a program would have left it on stderr; pages draw ``error`` instead.
        errors += _COLOURS.sub("", "\n".join(error.traceback)) + "\n"
    found = list(told)
    if shown.dropped:
        found.append(notes.displays_dropped(shown.dropped))
    if end.oom_kills and end.how is Ending.DONE:
        found.append(notes.child_out_of_memory())
    if done is not None and done.unsaved:
        found.append(notes.state_not_saved())
    signs = NetworkSigns(errors, str(request.code), done.tried if done is not None else ())
    return ExecResult(
        stdout=stdout.text,
        stderr=errors,
        exit_code=None if code is None else code if code >= 0 else 128 - code,
        duration=end.duration_s,
        status=status,
        signal=-code if code is not None and code < 0 else None,
        limit=limit,
        violations=violations,
        stdout_bytes=stdout.total,
        stderr_bytes=stderr.total,
        stdout_truncated=stdout.truncated,
        stderr_truncated=stderr.truncated,
        peak_memory_bytes=end.peak_bytes,
        peak_gpu_memory_bytes=end.gpu_peak_bytes,
        cpu_seconds=end.cpu_seconds,
        changes=changes,
        displays=shown.all(),
        error=error,
        rolled_back=rolled_back,
        language=str(spec.language),
        backend=spec.backend,
        isolation=spec.isolation,
        timeout=request.timeout,
        memory_limit_mb=memory_mb,
        gpu_memory_limit_mb=spec.limits.gpu_memory_mb,
        notes=(*found, *(network_notes or spec.network_notes)(signs, found)),
        chosen=spec.chosen,
        here=here,
        calls=end.calls,
    )

"""The result of one run or cell. ``status`` and ``limit`` say how it ended, so no caller has to parse ``stderr``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields
from enum import StrEnum

from sandbox_kernel.errors import ExecutionFailed, MemoryExceeded, SandboxError, SandboxTimeout
from sandbox_kernel.limits import Limit, Status
from sandbox_kernel.model.notes import Note, as_notes, signal_name
from sandbox_kernel.receipt import MIME, measurements, mime_bundle, one_line
from sandbox_kernel.util.values import dataclass


class CallOutcome(StrEnum):
    """How a call of a host function ended."""

    #: The function returned, or its stream was begun.
    OK = "ok"
    #: The function raised an exception, or returned something that cannot be sent.
    ERROR = "error"
    #: The function was not called: an unknown name, wrong arguments, or a used-up budget.
    REFUSED = "refused"
    #: The time for functions was used up while the function ran.
    TIMEOUT = "timeout"
    #: The run or cell ended while the function ran.
    CANCELLED = "cancelled"


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call of a host function.

    Args:
        name: The name of the function, as the program gave it.
        arguments: The arguments by the names of their parameters; long values are shortened.
        outcome: How the call ended.
        duration: Seconds that the function took.
        error: Type and message of the exception that the program got; empty when there was none.
    """

    name: str
    arguments: Mapping[str, object] = field(default_factory=dict)
    outcome: CallOutcome
    duration: float = 0.0
    error: str = ""

    @property
    def happened(self) -> bool:
        """Whether the function was called, so that it may have had effects outside the sandbox."""
        return self.outcome is not CallOutcome.REFUSED


#: No text of a violation is longer: a result may hold a hundred of them.
MOST_VIOLATION_TEXT = 500


@dataclass(frozen=True, kw_only=True)
class Violation:
    """Something the program tried and the policy refused, with the line that would allow it.

    Each text is one line and short, whatever the program wrote into the part that is quoted from it.
    """

    rule: str
    subject: str
    reason: str
    remedy: str = ""

    def __post_init__(self) -> None:
        for name in ("rule", "subject", "reason", "remedy"):
            object.__setattr__(self, name, one_line(getattr(self, name), MOST_VIOLATION_TEXT))

    @property
    def sentence(self) -> str:
        """What was refused, why, and what would allow it. Receipts draw the same fields (``receipt.py``)."""
        advice = f"; to allow it: {self.remedy}" if self.remedy else ""
        return f"{self.subject} was refused ({self.rule}): {self.reason}{advice}"


@dataclass(frozen=True, kw_only=True)
class FsChange:
    """One difference of the work folder: ``kind`` is created, modified, deleted or renamed."""

    path: str
    kind: str
    type: str = "file"
    size: int = 0
    renamed_from: str | None = None


@dataclass(frozen=True, kw_only=True)
class Display:
    """A rich output: a MIME bundle, sanitised by the session that it comes from, and its metadata."""

    data: Mapping[str, object]
    metadata: Mapping[str, object] = field(default_factory=dict)
    kind: str = "display"


@dataclass(frozen=True, kw_only=True)
class CellError:
    """An exception of the user's own code, as a session saw it."""

    ename: str
    evalue: str
    traceback: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ExecResult:
    """What one run did: all output so far whatever happened, and who or what ended it."""

    stdout: str = ""
    stderr: str = ""
    exit_code: int | None = None
    duration: float = 0.0
    status: Status = Status.OK
    signal: int | None = None
    #: The limit that was met, whether it ended the program or not.
    limit: Limit | None = None
    violations: tuple[Violation, ...] = ()
    compile_duration: float | None = None
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    #: The most memory that counted against the limit: of a run, or of the session while its cell ran.
    peak_memory_bytes: int | None = None
    #: Of a cell: how much of it the cell added, and what kept states hold beside the limit. None where not counted.
    added_memory_bytes: int | None = None
    kept_memory_bytes: int | None = None
    #: Of a cell that was ended for memory: what it had asked for, as far as that was seen.
    wanted_memory_bytes: int | None = None
    #: The most memory on accelerators that was seen; None where none was allowed or counted.
    peak_gpu_memory_bytes: int | None = None
    cpu_seconds: float | None = None
    fuel_used: int | None = None
    changes: tuple[FsChange, ...] = ()
    displays: tuple[Display, ...] = ()
    error: CellError | None = None
    rolled_back: bool = False
    language: str = ""
    backend: str = ""
    isolation: str = ""
    timeout: float | None = None
    memory_limit_mb: int | None = None
    gpu_memory_limit_mb: int | None = None
    #: Sentences for the user; programs compare the ``kind`` of each. See ``model/notes.py``.
    notes: tuple[Note, ...] = ()
    #: Why this backend, when nobody had named one; empty when somebody had.
    chosen: str = ""
    #: How the program saw the user's folder: ``layer`` (copy-on-write), ``copy``, or empty when it did not.
    here: str = ""
    #: The calls of host functions, in their order.
    calls: tuple[Call, ...] = ()

    def __post_init__(self) -> None:
        # Callers outside of this package may give plain strings. Most results have none.
        if self.notes != ():
            object.__setattr__(self, "notes", as_notes(self.notes))
        if self.limit is not None:
            object.__setattr__(self, "limit", Limit(self.limit))

    @property
    def ok(self) -> bool:
        """Whether the program ended by itself and said that all was well."""
        return self.status is Status.OK

    def raise_for_status(self) -> ExecResult:
        """Return self when ok; else raise the typed error that carries this result, with hints as its notes."""
        if self.ok:
            return self
        error: SandboxError
        if self.status is Status.TIMEOUT:
            error = SandboxTimeout(self.timeout or 0.0, self)
        elif self.status is Status.MEMORY_EXCEEDED:
            error = MemoryExceeded(self.memory_limit_mb or 0, self)
        else:
            error = ExecutionFailed(f"execution failed: {describe_end(self)}", self)
        from sandbox_kernel.model.hints import Spelling, Stumble, hints  # most results are good

        for hint in hints(self, Stumble(spelling=Spelling.LIBRARY)):
            error.add_note(str(hint))
        raise error

    def to_dict(self) -> dict[str, object]:
        """Everything as JSON-safe values (bytes in displays never occur: sessions send text)."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)} | {"ok": self.ok}

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> tuple[dict[str, object], dict[str, object]]:
        """Data, the same at every run, and metadata with what was measured; see ``receipt``."""
        return mime_bundle(self, describe_end(self)), {MIME: measurements(self)}


def _plain(value: object) -> object:
    if isinstance(value, StrEnum | Note):
        return str(value)
    if isinstance(value, Violation | FsChange | Display | CellError | Call):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value


def describe_end(result: ExecResult) -> str:
    """One stable sentence about how a run ended: limits, never measured values."""
    match result.status:
        case Status.OK:
            return "ok" if result.limit is None else f"ok, after reaching the {result.limit} limit"
        case Status.TIMEOUT:
            return f"time limit of {result.timeout:g} s exceeded" if result.timeout else "time limit exceeded"
        case Status.MEMORY_EXCEEDED if result.limit is Limit.GPU_MEMORY:
            return f"GPU memory limit of {result.gpu_memory_limit_mb} MB exceeded"
        case Status.MEMORY_EXCEEDED:
            return f"memory limit of {result.memory_limit_mb} MB exceeded"
        case Status.CPU_LIMIT:
            return "CPU time limit exceeded"
        case Status.FUEL_EXHAUSTED:
            return "fuel limit exhausted"
        case Status.INTERRUPTED:
            return "interrupted"
        case Status.COMPILE_FAILED:
            return "compilation failed"
    if result.signal is not None:
        suffix = f" at the {result.limit} limit" if result.limit else ""
        if result.status is Status.FAILED:
            # Nobody killed it: an assertion or an uncaught exception ends programs of C, C++ and Rust this way.
            return f"aborted ({signal_name(result.signal)}){suffix}"
        return f"killed by signal {result.signal} ({signal_name(result.signal)}){suffix}"
    if result.status is Status.KILLED and result.exit_code is None:
        return f"killed at the {result.limit} limit" if result.limit else "killed"
    if result.error is not None and result.error.ename == "SystemExit" and result.limit is None:
        return "it called exit; the session goes on"
    if result.limit is not None:
        return f"exit code {result.exit_code}, after reaching the {result.limit} limit"
    return f"exit code {result.exit_code}"
